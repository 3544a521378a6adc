"""/v1/audio/transcriptions and /v1/audio/translations, for OpenAI's clients.

A request makes an ordinary transcription job. Only its answer and its errors have another form. Members without effect
here, such as chunking_strategy, get a warning. The API is documented at
platform.openai.com/docs/api-reference/audio.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pipeline.documents.formats import OUTPUT_FORMATS
from pipeline.recognition.engine import TRANSCRIBE, TRANSLATE
from pipeline.speakers.options import NOT_INSTALLED
from server.background import compute, total_bytes
from server.dialects.dialect import RESULT_CODES, answer_finished, unsuccessful
from server.dialects.openai.bodies import (
    diarized_body,
    error_body,
    invalid_value,
    logprob,
    segment_name,
    spoken_segment,
    spoken_segments,
    stream_event,
    text_body,
    unknown_model,
    usage,
    verbose_body,
    word_logprobs,
)
from server.http.bodies import MULTIPART, off_loop
from server.http.headers import warning_headers
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, json_response
from server.http.problems import Problem
from server.http.streamed import KEEP_ALIVE, STREAM_HEADERS, event
from server.model.errors import invalid_member
from server.model.events import Event
from server.model.jobs import Job, Received, State
from server.model.offers import DIARIZING_MODEL, Offer
from server.model.orders import Order
from server.parsing.declared import (
    CHANNEL_MODE,
    DIARIZE,
    KEYWORDS,
    KNOWN_SPEAKERS,
    MAX_SPEAKERS,
    PROMPT,
    RAW_MEMBERS,
    RETENTION,
    SUBTITLE_MEMBERS,
    TRACK,
    TRANSLATE_TO,
    known_speakers,
)
from server.parsing.members import Fields, Member, Members, Parser, boolean, plain_fields, texts
from server.parsing.orders import ParsedRequest, audio_order, common_order, ignored_speakers, unknown_members
from server.parsing.text import LANGUAGE, LANGUAGES, TERMS, TEXT_MEMBERS
from server.requests.request import FILE_CODES, RouteParts, receive_upload

FILE_FORMATS = {"text": "txt", "srt": "srt", "vtt": "vtt"}
DIARIZED = "diarized_json"
RESPONSE_FORMATS = ("json", "verbose_json", *FILE_FORMATS)
LOGPROBS = "logprobs"
GRANULARITIES = ("word", "segment")
COMMON: tuple[Member[Any], ...] = (
    LANGUAGE, LANGUAGES, TRANSLATE_TO, PROMPT, KEYWORDS, RETENTION, CHANNEL_MODE, TRACK, DIARIZE, MAX_SPEAKERS,
    *RAW_MEMBERS, *TEXT_MEMBERS, *SUBTITLE_MEMBERS,
)  # fmt: skip
COMMON_NAMES = tuple(member.name for member in COMMON)
KNOWN = {
    *COMMON_NAMES,
    "file",
    "model",
    "response_format",
    "temperature",
    "timestamp_granularities",
    "stream",
    "include",
}


class ResponseOptions:
    """The form of the answer to a request. read() fills it in. *translating* means that the text must be English."""

    def __init__(self, *, translating: bool = False) -> None:
        self.translating = translating
        self.response_format = "json"
        self.granularities: tuple[str, ...] = ("segment",)
        self.stream = False
        self.logprobs = False

    @property
    def task(self) -> str:
        """The task of the order."""
        return TRANSLATE if self.translating else TRANSCRIBE

    @property
    def diarized(self) -> bool:
        """Whether the answer has the speaker of each segment."""
        return self.response_format == DIARIZED

    def read(self, received: Received, offer: Offer) -> ParsedRequest:
        """Parse the request. Raises Refused: missing_input, empty_file, model_not_found, invalid_parameter."""
        fields = plain_fields(received.fields)
        if received.file is None:
            raise Problem("missing_input", "give the audio as the multipart part file")
        if received.file.bytes == 0:
            raise Problem("empty_file", "the file has no bytes")
        model = _model(fields.get("model", ()), offer)
        chosen = offer.model_named(model)
        offer = offer.of(chosen)
        formats = RESPONSE_FORMATS if self.translating else (*RESPONSE_FORMATS, DIARIZED)
        self.response_format = _choice(fields, "response_format", formats, "json")
        self.granularities = _granularities(fields.get("timestamp_granularities", ())) or ("segment",)
        _check_temperature(fields.get("temperature", ["0"])[0])
        if self.translating:
            _check_translation(offer)
        else:
            members = Members(fields)
            self.stream = members.take("stream", boolean, False)
            asked = members.take("include", Parser(texts, TERMS), [])
            members.check()
            self.logprobs = self.response_format == "json" and LOGPROBS in asked
        order = replace(_order(fields, offer), task=self.task, model=chosen)
        if _wants_speakers(model, offer) or (self.diarized and offer.speakers and not order.separate):
            order = replace(order, diarize=True)
        output = FILE_FORMATS.get(self.response_format, "json")
        people = _people(fields, order)
        order = replace(order, output_formats=(output,), known_speakers=tuple(people))
        warnings = Members(fields).shortened_prompt(PROMPT) + ignored_speakers(order)
        without_effect = set() if self.logprobs else {"include"}
        warnings += unknown_members(fields, (KNOWN | KNOWN_SPEAKERS) - without_effect)
        return ParsedRequest(order, warnings=warnings, known_speakers=people)


def _people(fields: Fields, order: Order) -> Mapping[str, bytes]:
    members = Members(fields)
    people = known_speakers(members, diarize=order.diarize, max_speakers=order.max_speakers)
    members.check()
    return people


def _wants_speakers(model: str, offer: Offer) -> bool:
    """Whether the name of the model asks for speakers. Raises Refused if this server cannot label them."""
    if model != DIARIZING_MODEL or offer.model == DIARIZING_MODEL:
        return False
    if not offer.speakers:
        raise invalid_member("model", "not_offered", NOT_INSTALLED)
    return True


def _order(fields: Fields, offer: Offer) -> Order:
    members = Members({name: fields[name] for name in COMMON_NAMES if name in fields})
    order = common_order(members, offer=offer, word_timestamps=True)
    audio = audio_order(members)
    members.check()
    return replace(order, **audio)


def _model(given: Sequence[object], offer: Offer) -> str:
    """The name of the model; left out, one that leaves the choice to the server. Raises Refused model_not_found."""
    if len(set(map(str, given))) > 1:
        raise invalid_value("model", "may be given only once")
    name = str(given[0]) if given else offer.aliases[0]
    if not offer.has(name):
        raise unknown_model(name, offer)
    return name


def _granularities(given: Sequence[object]) -> tuple[str, ...]:
    """The granularities: repeated, with commas, as a JSON array or as other languages print a list."""
    names = [name for value in given for name in re.split(r"[][\s,\"']+", str(value).lower()) if name]
    if not set(names) <= set(GRANULARITIES):
        raise invalid_value("timestamp_granularities", f"must be of {', '.join(GRANULARITIES)}")
    return tuple(dict.fromkeys(names))


def _check_translation(offer: Offer) -> None:
    if (refusal := offer.translation_refusal) is not None:
        raise invalid_member("model", "unknown_value", refusal)


def _check_temperature(given: object) -> None:
    """Raise Refused for an impossible temperature. A possible one has no effect."""
    try:
        sound = 0 <= float(str(given)) <= 1
    except ValueError:
        sound = False
    if not sound:
        raise invalid_value("temperature", "must be a number from 0 to 1")


def _choice(fields: Fields, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = str(fields.get(name, [default])[0]).strip().lower()
    if value not in allowed:
        raise invalid_value(name, f"must be one of {', '.join(allowed)}")
    return value


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
