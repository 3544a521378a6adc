"""Renders the job record, which clients see in answers, lists, events and webhooks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeAlias

import orjson

from pipeline.attribution import segments_in_time
from pipeline.documents.formats import SCHEMA, search_members, word_object
from pipeline.documents.stored import unpack_chunk
from pipeline.text.options import NO_CHANGES, TextOptions
from pipeline.words import words_in_time
from server.background import compute, total_bytes
from server.clock import now_ms
from server.model.instants import iso, iso_or_none
from server.model.jobs import Job, JobError, LiveProgress, State
from server.model.orders import AUDIO, CONTAINER, SEMANTIC, LiveOptions, Order, Source, without_defaults
from server.records.links import DOWNLOAD_TTL_S, WEBHOOK_TTL_S, Links
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore

MAX_NOTICE_TEXT = 4096  # bytes of a transcript in the body of a webhook
MAX_PARTING_BYTES = 1024 * 1024  # of a body with all results, which are erased afterwards

CallbackBody: TypeAlias = Callable[[Job, Sequence[bytes] | None], dict[str, Any]]
"""Makes the body of a dialect's callback from an ended job and its stored chunks; None: the results were erased."""


class ProgressSource(Protocol):
    """Knows the progress of live jobs. SessionRegistry implements it."""

    async def progress(self, job: Job) -> LiveProgress: ...


@dataclass(frozen=True, slots=True)
class Announcement:
    """The body that announces a job's end. *delivers_results*: it has all results of a job that keeps none."""

    body: dict[str, Any]
    delivers_results: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """Renders job records from the storage and, for running live sessions, from *live*."""

    jobs: JobStore
    blobs: BlobStore
    links: Links
    live: ProgressSource
    callbacks: Mapping[str, CallbackBody] = field(default_factory=dict)  # by the name of the dialect

    async def full(self, job: Job, *, ttl_s: int = DOWNLOAD_TTL_S, asked_at: int = 0) -> dict[str, Any]:
        """The record as a JSON object, with words if they were ordered. Its links are valid for *ttl_s* seconds.

        With retention "none" it has the results in place of links, if the request came before their first delivery.
        *asked_at* is the time of the request (ms since 1970 UTC).
        """
        found: Mapping[str, Any] = {}
        visible, order = job.shows_results(asked_at), job.order
        if visible and (order.word_timestamps or order.text.paragraphs or order.text.search):
            chunks = await self.jobs.chunks(job.id)
            found = await compute(job.account, total_bytes(chunks), search_members_of, chunks, order)
        shown = {**record(job, self.links, ttl_s=ttl_s), **found}
        if visible and not job.order.keeps_results:
            shown["outputs"] = await self._outputs(job)
        elif not visible:
            shown["text"] = None
            shown.pop("speakers", None)
        if job.order.live is not None:
            shown["live"] |= (await self.live.progress(job)).to_json()
            if await self.jobs.artifact(job.id, AUDIO) is not None:
                shown["live"]["audio_url"] = self.links.output(job, AUDIO, ttl_s=ttl_s)
        return shown

    def list_item(self, job: Job) -> dict[str, Any]:
        """The record in a list, without text and warnings."""
        shown = record(job, self.links)
        del shown["text"], shown["warnings"]
        return shown

    async def announcement(self, job: Job) -> Announcement:
        """The body of a webhook and of a stream's last event: type, time, and the record without words.

        If results are not kept, it has all of them, words too, unless they are larger than MAX_PARTING_BYTES.
        """
        if job.erased_after_delivery:
            whole = self._notice(job, await self.full(job, ttl_s=WEBHOOK_TTL_S))
            if len(orjson.dumps(whole)) <= MAX_PARTING_BYTES:
                return Announcement(whole, delivers_results=True)
        return Announcement(self.notice(job))

    async def message(self, job: Job) -> Announcement:
        """The body of the job's webhook. The dialect of the order's callback makes it, if there is one."""
        callback = job.order.callback
        make_body = None if callback is None else self.callbacks.get(callback["dialect"])
        if make_body is None:  # also if this version of the server no longer has the dialect
            return await self.announcement(job)
        if not job.shows_results(now_ms()):
            return Announcement(make_body(job, None))
        chunks = await self.jobs.chunks(job.id)
        body = await compute(job.account, total_bytes(chunks), make_body, job, chunks)
        return Announcement(body, delivers_results=job.erased_after_delivery)

    def notice(self, job: Job) -> dict[str, Any]:
        """The body of a webhook, without words, and without the text if that is longer than MAX_NOTICE_TEXT."""
        data = record(job, self.links, ttl_s=WEBHOOK_TTL_S)
        if data["text"] is not None and len(data["text"].encode()) > MAX_NOTICE_TEXT:
            del data["text"]
        return self._notice(job, data)

    async def _outputs(self, job: Job) -> dict[str, str]:
        """The content of the job's output files by name."""
        found = {name: await self.jobs.artifact(job.id, name) for name in job.order.output_formats}
        return {
            name: b"".join([piece async for piece in self.blobs.read(artifact.blob)]).decode()
            for name, artifact in found.items()
            if artifact is not None
        }

    @staticmethod
    def _notice(job: Job, data: dict[str, Any]) -> dict[str, Any]:
        at = job.created_at if job.finished_at is None else job.finished_at
        return {"type": f"job.{job.state.value}", "timestamp": iso(at), "data": data}


def search_members_of(bodies: Sequence[bytes], order: Order) -> dict[str, orjson.Fragment]:
    """The record's members with words, paragraphs and search hits, as JSON that is copied into answers."""
    segments = segments_in_time([unpack_chunk(body) for body in bodies])
    found: dict[str, Any] = search_members(segments, paragraphs=order.text.paragraphs, terms=order.text.search)
    if order.word_timestamps:
        found["words"] = [word_object(*pair) for pair in words_in_time(segments)]
    return {name: orjson.Fragment(orjson.dumps(value)) for name, value in found.items()}


def record(job: Job, links: Links, *, ttl_s: int = DOWNLOAD_TTL_S) -> dict[str, Any]:
    """The job record without words."""
    order, completed = job.order, job.state is State.COMPLETED
    shown: dict[str, Any] = {
        "job_id": job.id,
        "object": "job",
        "status": job.state.value,
        "environment": job.environment,
        "created_at": iso(job.created_at),
        "started_at": iso_or_none(job.started_at),
        "finished_at": iso_or_none(job.finished_at),
        "expires_at": iso_or_none(job.expires_at),
        "cancel_requested_at": iso_or_none(job.cancel_requested_at),
        "progress": round(job.progress, 4),
        "stage": job.stage,
        "attempt": job.attempt,
        "source": _source(job.source),
        "output_formats": list(order.output_formats),
        "word_timestamps": order.word_timestamps,
        "duration": None if job.duration_s is None else round(job.duration_s, 3),
        "task": order.task,
        "language": job.language,
        "language_probability": _round(job.language_probability),
        "model": job.model,
        "engine": job.engine,
        "formats": {
            name: links.output(job, name, ttl_s=ttl_s)
            for name in order.output_formats
            if completed and order.keeps_results
        },
        "error": _error(job.error),
        "metadata": dict(order.metadata),
        "warnings": [dict(warning) for warning in job.warnings],
        **({"text_options": text} if (text := _text_options(order.text)) else {}),
        "retention": order.retention,
        "erased_at": iso_or_none(job.erased_at),
        "events_url": links.events(job),
    }
    if completed and "json" in order.output_formats:
        shown["schema"] = SCHEMA
    if order.live is not None:
        shown["live"] = _live(job, order.live, separate=order.separate)
    if job.speakers is not None:
        shown["speakers"] = [{"speaker": name, "seconds": spoken} for name, spoken in job.speakers.items()]
    shown["text"] = job.text
    return shown


def _text_options(text: TextOptions) -> Mapping[str, Any]:
    """The order's text options that differ from their defaults, as members of a request."""
    if text is NO_CHANGES or text == NO_CHANGES:  # most orders share it
        return {}
    given = without_defaults(text)
    return {**given, "sounds_like": True} if text.sounds_like else given


def _live(job: Job, options: LiveOptions, *, separate: bool) -> dict[str, Any]:
    """The record's member `live`, with the progress that is stored at the job's end."""
    shown: dict[str, Any] = asdict(options)
    del shown["ends_at_once"]
    if options.endpointing != SEMANTIC:
        shown["eagerness"] = None
    if options.encoding == CONTAINER:
        del shown["sample_rate"]
        if not separate:
            del shown["channels"]
    if separate:
        shown["separate"] = True
    return shown | LiveProgress(job.source.bytes, job.duration_s, settled_bytes=job.source.bytes).to_json()


def _source(source: Source) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"type": source.type}
    for name in ("filename", "url", "bytes", "format"):
        if (value := getattr(source, name)) is not None:
            shown[name] = value
    return shown


def _error(error: JobError | None) -> Mapping[str, Any] | None:
    if error is None:
        return None
    return {"code": error.code, "message": error.message, "retryable": error.retryable, "param": None}


def _round(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)
