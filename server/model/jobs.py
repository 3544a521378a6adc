"""What a job is, the only ways in which its state may change, and the leases of those who work on it.

A job is accepted as QUEUED. A worker that claims it holds a lease; while the lease lasts the job is PROCESSING. A lease
that ends without a result puts the job back (LEASE_LOST, RELEASED) until its attempts are used up; then it fails.
COMPLETED, FAILED and CANCELED are terminal: nothing in the table begins there.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

from pipeline.documents.archive import Query
from pipeline.timeline import Entry
from server.model.accounts import Quota
from server.model.orders import Order, Source


class State(StrEnum):
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class Cause(StrEnum):
    """Why a job's state changes."""

    CLAIMED = "claimed"  # a worker took it
    FINISHED = "finished"  # every output is written
    BROKE = "broke"  # an error that ends the job
    CANCELED = "canceled"  # the client asked for it
    LEASE_LOST = "lease lost"  # the worker died, hung or was too slow to renew
    RELEASED = "released"  # the worker handed it back: shutdown, or an error worth another attempt
    TOO_OLD = "too old"  # it waited in the queue for too long
    UNREADABLE = "unreadable"  # its stored row cannot be read


NEXT: Mapping[tuple[State, Cause], State] = {
    (State.QUEUED, Cause.CLAIMED): State.PROCESSING,
    (State.QUEUED, Cause.CANCELED): State.CANCELED,
    (State.QUEUED, Cause.TOO_OLD): State.FAILED,
    (State.QUEUED, Cause.UNREADABLE): State.FAILED,
    (State.PROCESSING, Cause.UNREADABLE): State.FAILED,
    (State.PROCESSING, Cause.FINISHED): State.COMPLETED,
    (State.PROCESSING, Cause.BROKE): State.FAILED,
    (State.PROCESSING, Cause.CANCELED): State.CANCELED,
    (State.PROCESSING, Cause.LEASE_LOST): State.QUEUED,
    (State.PROCESSING, Cause.RELEASED): State.QUEUED,
}

TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED})
TERMINAL_EVENTS = frozenset(f"job.{state}" for state in TERMINAL)


class ImpossibleStep(Exception):
    """A change that is not in the table. The message describes it."""


def step(state: State, cause: Cause) -> State:
    """The state after *cause*. Raises ImpossibleStep."""
    try:
        return NEXT[state, cause]
    except KeyError:
        raise ImpossibleStep(f"{cause} while {state}") from None


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """How much of a live job's audio has arrived and is processed. None: the number is not known."""

    received_bytes: int | None
    received_s: float | None
    settled_bytes: int | None = None  # the client need not send them again, even after a restart of the server
    lag_s: float | None = None  # from the arrival of the last final word's sound until the word was final

    def to_json(self) -> dict[str, Any]:
        return {
            "received_bytes": self.received_bytes,
            "received_seconds": self.received_s,
            "settled_bytes": self.settled_bytes,
            "lag_ms": None if self.lag_s is None else round(self.lag_s * 1000),
        }


def returns_quota(code: str) -> bool:
    """Whether a job that failed with *code* gives its allowance back: the fault was ours or the source's."""
    return code in {"engine_error", "internal", "queue_timeout"} or code.startswith("source_")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """Why a job failed; *code* is one of the documented job error codes."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The state of a job and its results so far."""

    state: State
    duration_s: float | None = None
    language: str | None = None
    language_probability: float | None = None
    languages: Mapping[str, float] = field(default_factory=dict)  # that were found: the seconds of speech in each
    engine: str | None = None
    model: str | None = None
    text: str | None = None
    speakers: Mapping[str, float] | None = None  # seconds by speaker, where speakers are labelled by voice
    error: JobError | None = None
    warnings: tuple[Mapping[str, str], ...] = ()  # {"code": ..., "param"?: ..., "message"?: ...}


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Job(Result):
    """One row of the job table. Instants are milliseconds since 1970 UTC, and None until they are reached."""

    id: str
    account: str
    environment: str  # production | sandbox
    order: Order
    source: Source
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None  # when the record and its outputs are deleted
    cancel_requested_at: int | None = None
    attempt: int = 0
    revision: int = 0  # of the corrections by people
    epoch: int = 0  # grows with every claim, so that outputs of two claims never mix
    progress: float = 0.0  # 0..1, never decreases
    answered_at: int | None = None  # when the results of an order that keeps none were first delivered
    erased_at: int | None = None  # when they were erased
    stage: str | None = None  # downloading | transcribing | writing
    blob: str | None = None  # of the audio, or the newest one about the speakers of a live session

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def erased_after_delivery(self) -> bool:
        """Whether it still has results that are to be erased after their delivery."""
        return self.state is State.COMPLETED and not self.order.keeps_results and self.erased_at is None

    def shows_results(self, asked_at: int) -> bool:
        """Whether the answer to a request that came at *asked_at* contains the results.

        If results are not kept, only requests that came before their first delivery get them.
        """
        gone = self.erased_at is not None or (self.answered_at is not None and self.answered_at <= asked_at)
        return self.state is State.COMPLETED and not gone


UNANSWERED_KEPT_MS = 24 * 60 * 60 * 1000
"""How long a job whose results are not kept waits for its client to fetch them, if its plan keeps jobs that long."""

LIVE_GRACE_MS = 90_000  # 60 s for the writer to come (back), and 30 s for a server to restart


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be accepted. Its audio is already durable under *blob*, unless its source is a URL or live."""

    id: str
    account: str
    environment: str
    order: Order
    source: Source
    blob: str | None  # key in the BlobStore
    audio_s: float | None  # as probed; None when unknown
    weight: float = 1.0  # the plan's share in the queue's fairness
    retention_ms: int  # how long record and outputs are kept after the job ended
    quotas: tuple[Quota, ...] = ()
    delay_s: float = 0.0  # no worker gets the job before
    max_active: int | None = None  # the plan's bound on unfinished jobs of this kind; None: unbounded
    warnings: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """Identifies a request, so that its repetition makes no second job. The *fingerprint* is that of its content."""

    account: str
    path: str
    key: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of JobStore.submit()."""

    job: Job
    replayed: bool  # True: the job of an earlier request with the same key; nothing was counted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs of one account to list. Empty members do not filter."""

    account: str
    environment: str
    states: frozenset[State] = frozenset()
    created_after: int | None = None
    created_before: int | None = None
    source: str | None = None
    language: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    query: Query | None = None  # words and phrases that the transcript has
    name: str | None = None  # case-insensitive substring of the file's name or the address
    descending: bool = True
    after: tuple[int, str] | None = None  # (created_at, id) of the last row of the page before


JOB_CODES = (
    "source_unreachable",
    "source_timeout",
    "source_http_error",
    "source_too_large",
    "source_not_allowed",
    "unsupported_audio_format",
    "invalid_audio",
    "no_audio_stream",
    "empty_file",
    "audio_too_long",
    "decode_timeout",
    "engine_error",
    "engine_timeout",
    "queue_timeout",
    "internal",
)
"""What job.error.code may say."""


# --- leases: the right of one worker to work on a job for a while; every write of a worker names its lease ----------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on *job* until *until* (ms since 1970 UTC)."""

    job: Job
    lease_id: str
    epoch: int
    until: int
    last_seq: int  # the number of the last event of the job


class ClaimTerms(TypedDict):
    """Arguments of JobStore.claim()."""

    environments: Sequence[str]
    unfetched: NotRequired[bool]
    passing_over: NotRequired[Collection[str]]
    lease_s: float


class JobFacts(TypedDict, total=False):
    """Arguments of JobStore.note()."""

    stage: str
    source: Source  # with its format
    duration_s: float | None
    blob: str  # of the fetched audio


class Renewal(StrEnum):
    """The answer to a renewal."""

    OK = "ok"
    LOST = "lost"  # stop; write nothing, delete nothing
    CANCEL_REQUESTED = "cancel requested"  # finish with State.CANCELED


@dataclass(frozen=True, slots=True)
class HandBack:
    """The job goes back into the queue. *error* says why the attempt failed; None: it did not fail."""

    reason: str  # for the log
    delay_s: float = 0.0
    error: JobError | None = None


class LeaseLost(Exception):
    """Another worker has the job, or may have it by now. Stop; write nothing, delete nothing."""


class Verdict(StrEnum):
    """Why work on a job must stop before it is done."""

    LEASE_LOST = "lease lost"
    CANCELED = "canceled"
    STALLED = "stalled"
    SHUTDOWN = "shutdown"


# --- how a job ended, and the files that it left -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One finished output file."""

    kind: str  # json | srt | vtt | txt | docx | audio
    blob: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Result):
    """How a job ended. It is written with its usage, outbox rows and last event in one commit."""

    artifacts: tuple[Artifact, ...] = ()
    heard_s: float | None = None  # seconds of audio that count as used, summed over channels; None: the duration
    translated_characters: int = 0
    return_quota: bool = False  # True: the account gets its allowance back (canceled while queued, our own fault)
    revision: int = 0  # of the corrections that the text has
    again: "Callable[[], Awaitable[Outcome]] | None" = None  # makes it anew, with newer corrections
    entries: tuple[Entry, ...] = ()  # of the timeline, before its last one


# --- what arrived with a request that may become a job -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file that is stored."""

    blob: str
    bytes: int
    sha256: str | None  # None unless the request needs a fingerprint
    filename: str | None  # the client's name for it, cleaned; only for people


@dataclass(slots=True)
class Received:
    """The content of a body. Its stored files are deleted at the end of the request unless *keep* is set."""

    job_id: str
    fields: dict[str, list[object]] = field(default_factory=dict)
    field_bytes: int = 0
    file: StoredFile | None = None  # None: the audio is at an address, or comes later
    begun: bool = False  # whether files may be stored, even if the body did not arrive in full
    keep: bool = False


# --- what was erased ---------------------------------------------------------------------------------------------


class ErasedPart(StrEnum):
    """The part of a job that was erased."""

    JOB = "job"  # everything: record, words, events, deliveries, audio and outputs
    OUTPUTS = "outputs"  # text, words, prompt and output files; the record stands


class ErasureReason(StrEnum):
    """Why a job or its outputs were erased."""

    REQUESTED = "requested"  # by its owner
    EXPIRED = "expired"  # its retention was over
    NOT_KEPT = "not kept"  # its owner ordered that results are not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One line of the record of erasures, which outlives the job."""

    job_id: str
    at: int  # ms since 1970 UTC
    what: ErasedPart
    why: ErasureReason
