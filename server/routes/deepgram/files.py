"""POST /v1/listen: a file or an address as Deepgram's clients send it, over a job of our own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def _answer(job: Job, chunks: Sequence[bytes], listening: Listening, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    segments = [[word_object(word) for word in segment.words] for body in chunks for segment in restored(body).segments]
    said = alternative([word for words in segments for word in words], punctuated=listening.punctuated)
    channel: dict[str, Any] = {"alternatives": [said]}
    if listening.paragraphs:
        said["paragraphs"] = _paragraphs(segments, listening)
    if listening.detects_language:
        channel |= {"detected_language": job.language, "language_confidence": job.language_probability}
    results: dict[str, Any] = {"channels": [channel]}
    if listening.utterances:
        results["utterances"] = [_utterance(job.id, number, words, listening) for number, words in enumerate(segments)]
    return {"metadata": metadata, "results": results}


def _metadata(job: Job, offer: Offer, sha256: str) -> Mapping[str, Any]:
    model = model_uuid(offer.model)
    return {
        "transaction_key": "deprecated",
        "request_id": job.id,
        "sha256": sha256,
        "created": iso(job.created_at),
        "duration": job.duration_s,
        "channels": 1,
        "models": [model],
        "model_info": {model: model_info(offer.model)},
    }


def _utterance(job_id: str, number: int, words: Sequence[Mapping[str, Any]], listening: Listening) -> Mapping[str, Any]:
    times = {"start": words[0]["start"], "end": words[-1]["end"]}
    said = alternative(words, punctuated=listening.punctuated)
    return {"id": f"{job_id}-{number}", **times, "channel": 0, **said}


def _paragraphs(segments: Sequence[Sequence[Mapping[str, Any]]], listening: Listening) -> Mapping[str, Any]:
    """Each segment as a paragraph with one sentence: sentences are not looked for."""
    texts = [transcript_of(words, punctuated=listening.punctuated) for words in segments]
    shown = []
    for text, words in zip(texts, segments, strict=True):
        times = {"start": words[0]["start"], "end": words[-1]["end"]}
        shown.append({"sentences": [{"text": text, **times}], "num_words": len(words), **times})
    return {"transcript": "\n\n".join(["", *texts]).removeprefix("\n"), "paragraphs": shown}
