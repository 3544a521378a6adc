"""/v1/audio/transcriptions and /v1/audio/translations, for OpenAI's clients.

A request makes an ordinary transcription job. Only its answer and its errors have another form, documented at
platform.openai.com/docs/api-reference/audio.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pipeline.documents.formats import OUTPUT_FORMATS
from server.background import compute, total_bytes
from server.dialects.finished_jobs import RESULT_CODES, answer_finished, unsuccessful
from server.dialects.openai.bodies import (
    diarized_body,
    logprob,
    segment_name,
    spoken_segment,
    spoken_segments,
    stream_event,
    text_body,
    usage,
    verbose_body,
    word_logprobs,
)
from server.dialects.openai.errors import error_body
from server.dialects.openai.file_parameters import FILE_FORMATS, ResponseOptions
from server.http.bodies import MULTIPART
from server.http.caller import Caller
from server.http.headers import warning_headers
from server.http.large_bodies import off_loop
from server.http.operation import Answer, Endpoint, Operation, json_response
from server.http.problems import Problem
from server.http.schemas import ref
from server.http.sse import KEEP_ALIVE, STREAM_HEADERS, event
from server.model.events import Event
from server.model.jobs import Job, State
from server.requests.request import FILE_CODES, RouteParts, receive_upload


@dataclass(frozen=True, slots=True)
class AudioFiles:
    parts: RouteParts

    def operations(self) -> list[Operation]:
        return [
            _operation(
                Endpoint("POST", "/v1/audio/transcriptions", self.create, "createTranscription"),
                summary="Transcribe as OpenAI's clients ask for it",
                description="Always synchronous. Errors have OpenAI's shape. Counts as one transcription.",
                form="OpenAITranscriptionForm",
            ),
            _operation(
                Endpoint("POST", "/v1/audio/translations", self.translate, "createTranslation"),
                summary="Translate to English as OpenAI's clients ask for it",
                description="Always synchronous. Errors have OpenAI's shape. Counts as one transcription. A server "
                "whose model knows several languages and was not trained to translate refuses.",
                form="OpenAITranslationForm",
            ),
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        return await self._answer(request, caller, ResponseOptions())

    async def translate(self, request: Request, caller: Caller) -> Response:
        return await self._answer(request, caller, ResponseOptions(translating=True))

    async def _answer(self, request: Request, caller: Caller, wish: ResponseOptions) -> Response:
        async with receive_upload(self.parts, request, caller) as upload:
            offer = self.parts.offers[caller.environment]
            parsed = await off_loop(upload.received.field_bytes, wish.read, upload.received, offer)
            submitted = await upload.accept(parsed)
        if wish.stream:
            headers = {**STREAM_HEADERS, **warning_headers(submitted.job.warnings)}
            return StreamingResponse(self._stream(submitted.job, wish), headers=headers)
        return await answer_finished(request, submitted.job, lambda job: self._whole(job, wish), self.parts)

    async def _whole(self, job: Job, wish: ResponseOptions) -> Response:
        """The answer in the format that the request asks for."""
        if wish.response_format in FILE_FORMATS:
            return await self._file(job, FILE_FORMATS[wish.response_format])
        if wish.response_format == "verbose_json":
            chunks = await self.parts.storage.timelines.entries(job.id)
            words = "word" in wish.granularities
            body = await compute(job.account, total_bytes(chunks), verbose_body, job, chunks, words=words)
            return Response(body, media_type="application/json")
        if wish.diarized:
            chunks = await self.parts.storage.timelines.entries(job.id)
            body = await compute(job.account, total_bytes(chunks), diarized_body, job, chunks)
            return Response(body, media_type="application/json")
        if wish.logprobs:
            chunks = await self.parts.storage.timelines.entries(job.id)
            body = await compute(job.account, total_bytes(chunks), text_body, job, chunks)
            return Response(body, media_type="application/json")
        return json_response({"text": job.text, "usage": usage(job)})

    async def _file(self, job: Job, name: str) -> Response:
        artifact = await self.parts.jobs.artifact(job.id, name)
        assert artifact is not None, "a completed job has every output that was asked for"
        data = b"".join([piece async for piece in self.parts.storage.blobs.read(artifact.blob)])
        return Response(data, media_type=OUTPUT_FORMATS[name].media_type)

    async def _stream(self, job: Job, wish: ResponseOptions) -> AsyncIterator[bytes]:
        """Stream the words as they are recognised, then the text. A failure is an event, since the status is sent."""
        async with self.parts.eraser.sending(job.id):
            with self.parts.eraser.holding(job.id):
                async for piece in self._stream_answer(job, wish):
                    yield piece

    async def _stream_answer(self, job: Job, wish: ResponseOptions) -> AsyncIterator[bytes]:
        """Stream the answer. Segments with their speakers come at the end if voices tell the speakers apart."""
        first, diarized, voices = True, wish.diarized, job.order.diarize
        async with aclosing(
            self.parts.following.follow(job.id, after=0, quiet_s=self.parts.limits.streams.keep_alive_s)
        ) as view:
            async for seen in view:
                if seen is None:
                    yield KEEP_ALIVE
                elif isinstance(seen, Event) and seen.type == "word":
                    word = orjson.loads(seen.body)
                    yield _delta(word, first=first, diarized=diarized and not voices, logprobs=wish.logprobs)
                    first = False
                elif isinstance(seen, Event) and seen.type == "segment" and diarized and not voices:
                    yield stream_event("transcript.text.segment", **spoken_segment(orjson.loads(seen.body)))
        over = await self.parts.jobs.get(job.id)
        if over is None or over.state is not State.COMPLETED:
            problem = Problem("job_not_completed", "the job was deleted") if over is None else unsuccessful(over)
            yield stream_event("error", **error_body(problem))
            return
        if diarized and voices:
            chunks = await self.parts.storage.timelines.entries(job.id)
            for segment in await compute(job.account, total_bytes(chunks), spoken_segments, chunks):
                yield stream_event("transcript.text.segment", **segment)
        found = {}
        if wish.logprobs:
            chunks = await self.parts.storage.timelines.entries(job.id)
            found["logprobs"] = await compute(job.account, total_bytes(chunks), word_logprobs, over, chunks)
        yield stream_event("transcript.text.done", text=over.text, **found, usage=usage(over))
        yield event(None, b"[DONE]")


def _delta(word: Mapping[str, Any], *, first: bool, diarized: bool, logprobs: bool) -> bytes:
    delta = word["word"] if first or not word.get("spaced", True) else f" {word['word']}"
    segment = {"segment_id": segment_name(word["segment"])} if diarized else {}
    scores = {"logprobs": [logprob(delta, word["probability"])]} if logprobs else {}
    return stream_event("transcript.text.delta", delta=delta, **scores, **segment)


def _operation(endpoint: Endpoint, *, form: str, **shown: Any) -> Operation:
    return Operation(
        endpoint,
        media_types=(MULTIPART,),
        body_required=True,
        bodies={MULTIPART: ref(form)},
        answers={200: Answer("The text, in the shape of response_format", media_type="*/*")},
        codes=(*FILE_CODES, "model_not_found", *RESULT_CODES),
        **shown,
    )
