"""Renders the job record, which clients see in answers, lists, events and webhooks, with every absolute URL in it."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Raw
from msgspec.json import encode
from msgspec.structs import replace

from pipeline.attribution import segments_in_time
from pipeline.corrections import Correcting, corrected_chunks, people_segments
from pipeline.documents.formats import language_objects, search_members, word_object
from pipeline.documents.service_v1 import SCHEMA, Speaker
from pipeline.documents.translated import output_format
from pipeline.text.options import NO_CHANGES, TextOptions
from pipeline.timeline import unpack
from pipeline.transcription import Transcription
from pipeline.words import words_in_time
from server.accounts.signed import Scope, check_link, link_query, make_channel_token, make_token
from server.background import compute, total_bytes
from server.clock import iso, now_ms
from server.config import LOOPBACK
from server.model import answers
from server.model.accounts import Channel, SigningKeys
from server.model.jobs import Job, LiveProgress, State
from server.model.orders import AUDIO, CONTAINER, SEMANTIC, LiveOptions, Order, without_defaults
from server.storage.sql.storage import Storage

DOWNLOAD_TTL_S = 3600
WEBHOOK_TTL_S = 24 * 3600
MAX_TTL_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Links:
    """Builds the URLs of jobs, and signs those that need no key.

    They begin with the configured public address, never with that of a header.
    """

    public_base_url: str
    keys: SigningKeys

    def base(self, environment: str) -> str:
        return self.public_base_url + ("/sandbox" if environment == "sandbox" else "")

    def job(self, job: Job) -> str:
        return f"{self.base(job.environment)}/v1/jobs/{job.id}"

    def job_path(self, job: Job) -> str:
        """The path of the job's URL, for Location headers. It works under any host name of the server."""
        return urlsplit(self.job(job)).path

    def events(self, job: Job) -> str:
        return f"{self.job(job)}/events"

    def channel(self, channel: Channel, view: str) -> str:
        """The address of a channel's *view* (events, live.vtt). It needs no key, and works while the channel exists."""
        token = make_channel_token(self.keys, channel.id)
        return f"{self.base(channel.environment)}/v1/channels/{channel.id}/{view}?token={token}"

    def channel_page(self, channel: Channel) -> str:
        """The page with the channel's captions. The token follows a #, which browsers never send to a server."""
        token = make_channel_token(self.keys, channel.id)
        return f"{self.base(channel.environment)}/live/{channel.id}#token={token}"

    @property
    def reachable(self) -> bool:
        """Whether other machines can open these addresses."""
        return urlsplit(self.public_base_url).hostname not in LOOPBACK

    def page(self, job: Job, token: str) -> str:
        """The page with a live session's captions, for whoever has its address. See channel_page()."""
        return f"{self.base(job.environment)}/live/{job.id}#token={token}"

    def ingest(self, job: Job) -> str:
        """The address for a live job's audio in HTTP requests."""
        return f"{self.job(job)}/audio"

    def ingest_socket(self, job: Job, *, expires_s: int) -> str:
        """The WebSocket's address for a live job's audio. It needs no key until the second *expires_s* (since 1970)."""
        token = make_token(self.keys, job_id=job.id, scope=Scope.INGEST, expires_s=expires_s)
        return f"ws{self.ingest(job).removeprefix('http')}?token={token}"

    def output(self, job: Job, name: str, *, ttl_s: int = DOWNLOAD_TTL_S) -> str:
        """A link to a finished output. It needs no key, for *ttl_s* seconds from now."""
        query = link_query(self.keys, output_path(job.id, name), expires_s=link_expiry(ttl_s))
        return f"{self.job(job)}/outputs/{name}?{query}"

    def check_output(self, job_id: str, name: str, query: Mapping[str, str]) -> None:
        """Raise Refused invalid_signature or url_expired unless output() made this link and it is still valid."""
        exp, kid, sig = (query.get(part, "") for part in ("exp", "kid", "sig"))
        check_link(self.keys, output_path(job_id, name), exp=exp, kid=kid, sig=sig, now_s=now_ms() / 1000)


def link_expiry(ttl_s: int) -> int:
    """The second (since 1970) at which a link for *ttl_s* seconds expires."""
    return -(-now_ms() // 1000) + ttl_s


def output_path(job_id: str, name: str) -> str:
    """The signed part of a link: the path below the base URL, so that a proxy's prefix does not matter."""
    return f"/v1/jobs/{job_id}/outputs/{name}"


MAX_NOTICE_TEXT = 4096  # bytes of a transcript in the body of a webhook
MAX_PARTING_BYTES = 1024 * 1024  # of a body with all results, which are erased afterwards
CallbackBody: TypeAlias = Callable[[Job, Sequence[bytes] | None], dict[str, Any]]
"""Makes the body of a dialect's callback from an ended job and its stored timeline; None: the results were erased."""


class ProgressSource(Protocol):
    """Knows the progress of live jobs. SessionRegistry implements it."""

    async def progress(self, job: Job) -> LiveProgress: ...


@dataclass(frozen=True, slots=True)
class Announcement:
    """The JSON that announces a job's end. *delivers_results*: it has all results of a job that keeps none."""

    body: bytes
    delivers_results: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """Renders job records from the storage and, for running live sessions, from *live*."""

    storage: Storage
    links: Links
    live: ProgressSource
    callbacks: Mapping[str, CallbackBody] = field(default_factory=dict)  # by the name of the dialect

    async def full(self, job: Job, *, ttl_s: int = DOWNLOAD_TTL_S, asked_at: int = 0) -> answers.Job:
        """The record, with words if they were ordered. Its links are valid for *ttl_s* seconds.

        With retention "none" it has the results in place of links, if the request came before their first delivery.
        *asked_at* is the time of the request (ms since 1970 UTC).
        """
        found: Mapping[str, Any] = {}
        visible, order = job.shows_results(asked_at), job.order
        if visible and (order.word_timestamps or order.text.paragraphs or order.text.search):
            stored = await self.storage.timelines.entries(job.id)
            found = await compute(job.account, total_bytes(stored), search_members_of, stored, order)
        shown = record(job, self.links, ttl_s=ttl_s, **found)
        if visible and not order.keeps_results:
            shown.outputs = await self._outputs(job)
        elif not visible:
            shown.text, shown.speakers = None, UNSET
        if isinstance(shown.live, answers.LiveState):
            shown.live = replace(shown.live, **(await self.live.progress(job)).to_json())
        if job.order.keeps_audio and await self.storage.jobs.artifact(job.id, AUDIO) is not None:
            shown.audio_url = self.links.output(job, AUDIO, ttl_s=ttl_s)
            if isinstance(shown.live, answers.LiveState):
                shown.live.audio_url = shown.audio_url
        return shown

    def list_item(self, job: Job) -> answers.Job:
        """The record in a list, without text."""
        return record(job, self.links, text=UNSET)

    async def announcement(self, job: Job, *, seq: int | None = None, event: str | None = None) -> Announcement:
        """The body of a webhook and of a stream's last event: type, time, and the record without words.

        *event*: its type; None: that of the job's end.

        If results are not kept, it has all of them, words too, unless they are larger than MAX_PARTING_BYTES. *seq* is
        the number of the stream's event.
        """
        place: Mapping[str, Any] = {} if seq is None else {"job_id": job.id, "seq": seq}
        if job.erased_after_delivery:
            whole = encode(_notice(job, await self.full(job, ttl_s=WEBHOOK_TTL_S), place))
            if len(whole) <= MAX_PARTING_BYTES:
                return Announcement(whole, delivers_results=True)
        return Announcement(encode(self.notice(job, event=event, **place)))

    async def message(self, job: Job, event: str) -> Announcement:
        """The body of the job's webhook about *event*. A dialect makes it, if the request had its callback."""
        callback = job.order.callback
        make_body = None if callback is None else self.callbacks.get(callback["dialect"])
        if make_body is None:  # also if this version of the server no longer has the dialect
            return await self.announcement(job, event=event)
        if not job.shows_results(now_ms()):
            return Announcement(encode(make_body(job, None)))
        stored = await self.storage.timelines.entries(job.id)
        body = await compute(job.account, total_bytes(stored), make_body, job, stored)
        return Announcement(encode(body), delivers_results=job.erased_after_delivery)

    def notice(self, job: Job, *, event: str | None = None, **more: Any) -> answers.Notice:
        """The body of a webhook, without words, and without the text if that is longer than MAX_NOTICE_TEXT."""
        is_long = job.text is not None and len(job.text.encode()) > MAX_NOTICE_TEXT
        shown = record(job, self.links, ttl_s=WEBHOOK_TTL_S, **({"text": UNSET} if is_long else {}))
        return _notice(job, shown, more, event)

    async def _outputs(self, job: Job) -> dict[str, str]:
        """The content of the job's output files by name; of a file that is no text, in base64."""
        found = {name: await self.storage.jobs.artifact(job.id, name) for name in job.order.outputs}
        return {
            name: _as_text(name, b"".join([piece async for piece in self.storage.blobs.read(artifact.blob)]))
            for name, artifact in found.items()
            if artifact is not None
        }


def _as_text(name: str, content: bytes) -> str:
    return content.decode() if output_format(name)[0].is_text else base64.b64encode(content).decode()


def _notice(job: Job, shown: answers.Job, more: Mapping[str, Any], event: str | None = None) -> answers.Notice:
    at = job.created_at if job.finished_at is None else job.finished_at
    return answers.Notice(event or f"job.{job.state}", iso(at), shown, **more)


def search_members_of(bodies: Sequence[bytes], order: Order) -> dict[str, Raw]:
    """The record's members with words, paragraphs and search hits, as JSON that is copied into answers."""
    past = Transcription.of(map(unpack, bodies))
    segments = segments_in_time(past.chunks())
    if past.corrections:
        state = Correcting(past.said, past.labels, past.corrections)
        segments = people_segments(segments_in_time(corrected_chunks(past.chunks(), state)), state)
    found: dict[str, Any] = search_members(segments, paragraphs=order.text.paragraphs, terms=order.text.search)
    if order.word_timestamps:
        found["words"] = [word_object(*pair) for pair in words_in_time(segments)]
    return {name: Raw(encode(value)) for name, value in found.items()}


def record(job: Job, links: Links, *, ttl_s: int = DOWNLOAD_TTL_S, **more: Any) -> answers.Job:
    """The job record with its links, and *more* members: words, or others that replace those of the job."""
    order, completed = job.order, job.state is State.COMPLETED
    linked = order.outputs if completed and order.keeps_results else ()
    members = {
        "job_id": job.id,
        "object": "job",
        "status": job.state,
        "progress": round(job.progress, 4),
        "source": answers.Source.of(job.source),
        "output_formats": order.output_formats,
        "translate_to": order.translate_to,
        "word_timestamps": order.word_timestamps,
        "duration": None if job.duration_s is None else round(job.duration_s, 3),
        "task": order.task,
        "language_probability": None if job.language_probability is None else round(job.language_probability, 4),
        "languages": language_objects(job.languages) if job.languages else UNSET,
        "formats": {name: links.output(job, name, ttl_s=ttl_s) for name in linked},
        "error": None if job.error is None else answers.JobError.of(job.error, param=None),
        "metadata": order.metadata,
        "text_options": _text_options(order.text) or UNSET,
        "text": job.text,
        "revision": job.revision,
        "corrected": job.revision > 0,
        "retention": order.retention,
        "events_url": links.events(job),
        "schema": SCHEMA if completed and "json" in order.output_formats else UNSET,
        "live": UNSET if order.live is None else _live(job, order.live, separate=order.separate),
        "speakers": UNSET if job.speakers is None else _speakers(job.speakers),
    }
    return answers.Job.of(job, **members | more)


def _speakers(seconds: Mapping[str, float]) -> list[Speaker]:
    return [{"speaker": name, "seconds": spoken} for name, spoken in seconds.items()]


def _text_options(text: TextOptions) -> Mapping[str, Any]:
    """The order's text options that differ from their defaults, as members of a request."""
    if text is NO_CHANGES or text == NO_CHANGES:  # most orders share it
        return {}
    given = without_defaults(text)
    return {**given, "sounds_like": True} if text.sounds_like else given


def _live(job: Job, options: LiveOptions, *, separate: bool) -> answers.LiveState:
    """The record's member `live`, with the progress that is stored at the job's end."""
    members: dict[str, Any] = LiveProgress(job.source.bytes, job.duration_s, settled_bytes=job.source.bytes).to_json()
    if options.endpointing != SEMANTIC:
        members["eagerness"] = None
    if options.encoding == CONTAINER:
        members["sample_rate"] = UNSET
        if not separate:
            members["channels"] = UNSET
    if separate:
        members["separate"] = True
    return answers.LiveState.of(options, **members)
