"""POST /v1/listen: a file or an address as Deepgram's clients send it, over a job of our own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from pipeline.documents.formats import word_object
from pipeline.documents.stored import restored
from server.clock import now_ms
from server.http.bodies import JSON, Received
from server.http.caller import Caller
from server.http.operation import Answer, Operation, json_response
from server.http.problems import Problem
from server.http.schemas import ref
from server.jobs.erasing import Eraser
from server.jobs.orders import Asked
from server.jobs.waiter import JobWaiter
from server.model.instants import iso
from server.model.jobs import Job
from server.model.offers import Offer
from server.routes.asking import handing_over
from server.routes.deepgram.errors import REQUEST_ID, SHAPE
from server.routes.deepgram.parameters import Listening, file_listening, url_of
from server.routes.deepgram.results import alternative, model_info, model_uuid, transcript_of
from server.routes.finished import HOLD_S, check_shown
from server.routes.transcriptions import FILE_CODES, Transcriptions
from server.storage.ports import JobStore

RAW = "application/octet-stream"
Phrase: TypeAlias = Sequence[Mapping[str, Any]]
"""The words of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListening:
    """The handler for files of Deepgram's clients."""

    transcriptions: Transcriptions
    waiter: JobWaiter
    jobs: JobStore
    eraser: Eraser
    offers: Mapping[str, Offer]  # by environment

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="POST",
                path="/v1/listen",
                handle=self.create,
                id="listen",
                tag="deepgram",
                summary="Transcribe as Deepgram's clients ask for it",
                description="The body is the audio itself, of any media type, or JSON with its url. "
                "Always synchronous. The same path takes a WebSocket for live audio.",
                bodies={JSON: ref("DeepgramUrl"), RAW: {"type": "string", "format": "binary"}},
                body_examples={JSON: {"url": "https://example.org/talk.mp3"}},
                answers={
                    200: Answer(description="The transcript", schema=ref("DeepgramAnswer"), headers=(REQUEST_ID,))
                },
                codes=(
                    *FILE_CODES,
                    "invalid_json",
                    "url_not_allowed",
                    "engine_error",
                    "engine_timeout",
                    "unfinished",
                    "job_not_completed",
                    "output_not_found",
                    "shutting_down",
                ),
                errors_as=SHAPE,
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        offer = self.offers[caller.environment]
        listening = file_listening(request.query_params, offer)

        sha256 = ""

        def asked(received: Received) -> Asked:
            nonlocal sha256
            sha256 = (received.file.sha256 if received.file is not None else None) or ""
            if received.file is not None and received.file.bytes == 0:
                raise Problem("empty_file", "the body has no bytes")
            return Asked(listening.order, url_of(received.fields), None, ())

        _, submitted = await self.transcriptions.accept(request, caller, asked, raw=True)
        await self.eraser.settle(submitted.job.id)
        asked_at = now_ms()
        with self.eraser.holding(submitted.job.id):
            job = await self.waiter.until_over(submitted.job, wait_s=HOLD_S)
            check_shown(job, asked_at)
            body = _answer(job, await self.jobs.chunks(job.id), listening, _metadata(job, offer, sha256))
        response = json_response(body, headers={REQUEST_ID: job.id})
        return await handing_over(response, request, job, eraser=self.eraser, asked_at=asked_at)


def _answer(job: Job, bodies: Sequence[bytes], listening: Listening, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    chunks = [restored(body) for body in bodies]
    spoken: dict[int, list[Phrase]] = {chunk.channel or 0: [] for chunk in chunks}
    for chunk in chunks:
        spoken[chunk.channel or 0] += [[word_object(word) for word in segment.words] for segment in chunk.segments]
    results: dict[str, Any] = {"channels": [_channel(job, spoken[number], listening) for number in sorted(spoken)]}
    if listening.utterances:
        told = sorted(
            ((phrase, number) for number, phrases in spoken.items() for phrase in phrases),
            key=lambda one: float(one[0][0]["start"]),
        )
        results["utterances"] = [
            {"id": f"{job.id}-{count}", "channel": number, **_utterance(phrase, listening)}
            for count, (phrase, number) in enumerate(told)
        ]
    return {"metadata": {**metadata, "channels": len(spoken)}, "results": results}


def _channel(job: Job, phrases: Sequence[Phrase], listening: Listening) -> Mapping[str, Any]:
    said = alternative([word for phrase in phrases for word in phrase], punctuated=listening.punctuated)
    if listening.paragraphs:
        said["paragraphs"] = _paragraphs(phrases, listening)
    if not listening.detects_language:
        return {"alternatives": [said]}
    return {
        "alternatives": [said],
        "detected_language": job.language,
        "language_confidence": job.language_probability,
    }


def _metadata(job: Job, offer: Offer, sha256: str) -> Mapping[str, Any]:
    model = model_uuid(offer.model)
    return {
        "transaction_key": "deprecated",
        "request_id": job.id,
        "sha256": sha256,
        "created": iso(job.created_at),
        "duration": job.duration_s,
        "models": [model],
        "model_info": {model: model_info(offer.model)},
    }


def _utterance(phrase: Phrase, listening: Listening) -> Mapping[str, Any]:
    times = {"start": phrase[0]["start"], "end": phrase[-1]["end"]}
    return {**times, **alternative(phrase, punctuated=listening.punctuated)}


def _paragraphs(phrases: Sequence[Phrase], listening: Listening) -> Mapping[str, Any]:
    """Each phrase as a paragraph with one sentence: sentences are not looked for."""
    texts = [transcript_of(words, punctuated=listening.punctuated) for words in phrases]
    shown = []
    for text, words in zip(texts, phrases, strict=True):
        times = {"start": words[0]["start"], "end": words[-1]["end"]}
        shown.append({"sentences": [{"text": text, **times}], "num_words": len(words), **times})
    return {"transcript": "\n\n".join(["", *texts]).removeprefix("\n"), "paragraphs": shown}
