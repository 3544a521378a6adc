"""What a job is, and the only ways it may change.

A job is accepted as QUEUED. A worker that claims it holds a lease; while the lease lives the job is PROCESSING. A lease
that ends without a result puts the job back (LEASE_LOST, RELEASED) until its attempts are used up, then it fails.
COMPLETED, FAILED and CANCELED are terminal: no pair that starts there is in the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class Cause(StrEnum):
    CLAIMED = "claimed"  # a worker took it
    FINISHED = "finished"  # every output is written
    BROKE = "broke"  # an error that ends the job
    CANCELED = "canceled"  # the client's wish, seen by whoever may act on it
    LEASE_LOST = "lease lost"  # the worker died, hangs or was too slow to renew
    RELEASED = "released"  # the worker hands it back: shutdown, or an error worth another attempt
    TOO_OLD = "too old"  # waited in the queue for longer than anyone would want the answer


NEXT: Mapping[tuple[State, Cause], State] = {
    (State.QUEUED, Cause.CLAIMED): State.PROCESSING,
    (State.QUEUED, Cause.CANCELED): State.CANCELED,
    (State.QUEUED, Cause.TOO_OLD): State.FAILED,
    (State.PROCESSING, Cause.FINISHED): State.COMPLETED,
    (State.PROCESSING, Cause.BROKE): State.FAILED,
    (State.PROCESSING, Cause.CANCELED): State.CANCELED,
    (State.PROCESSING, Cause.LEASE_LOST): State.QUEUED,
    (State.PROCESSING, Cause.RELEASED): State.QUEUED,
}

TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED})


class ImpossibleStep(Exception):
    """A change that the table does not know; the message names both sides."""


def step(state: State, cause: Cause) -> State:
    try:
        return NEXT[state, cause]
    except KeyError:
        raise ImpossibleStep(f"{cause} while {state}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a job's audio comes from."""

    type: str  # upload | url | live
    filename: str | None = None
    url: str | None = None
    bytes: int | None = None
    format: str | None = None  # as found in the bytes, never as claimed by a name


AUDIO = "audio"  # the output that is a live session's recording
CONTAINER = "container"  # the encoding that says itself what it is; the others are raw samples


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How a live session's audio arrives and when its words close. Units are in the names."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 16_000
    channels: int = 1
    interim_results: bool = True
    endpointing_ms: int = 500
    max_utterance_s: float = 15.0
    record: bool = False  # keep the audio as FLAC


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a live job's audio has come. None: not known (any more)."""

    received_bytes: int | None
    received_s: float | None
    settled_bytes: int | None = None  # what even a restart of the server would not ask for again
    lag_s: float | None = None  # of the last final word behind the arrival of its sound

    def to_json(self) -> dict[str, float | int | None]:
        return {
            "received_bytes": self.received_bytes,
            "received_seconds": self.received_s,
            "settled_bytes": self.settled_bytes,
            "lag_ms": None if self.lag_s is None else round(self.lag_s * 1000),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the client asked for, already parsed. Never changes after acceptance."""

    output_formats: tuple[str, ...] = ("json",)  # of json, srt, vtt, txt; at least one, no twice
    word_timestamps: bool = False
    language: str | None = None
    model: str | None = None
    prompt: str = ""
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    scenario: str | None = None  # sandbox only
    live: LiveOptions | None = None


def returns_quota(code: str) -> bool:
    """Whether a job that failed with *code* gives its allowance back: it was our fault or the source's."""
    return code in {"engine_error", "internal", "queue_timeout"} or code.startswith("source_")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """Why a job failed; *code* is one of the documented job error codes."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of the job table as everyone sees it. Instants are milliseconds since 1970 UTC; None until reached."""

    id: str
    account: str
    environment: str  # production | sandbox
    state: State
    order: Order
    source: Source
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None  # when the record and its outputs are deleted
    cancel_requested_at: int | None = None
    attempt: int = 0
    epoch: int = 0  # grows with every claim: outputs of one epoch never mix with another's
    progress: float = 0.0  # 0..1, never decreases
    stage: str | None = None  # downloading | transcribing | writing
    duration_s: float | None = None
    language: str | None = None
    language_probability: float | None = None
    engine: str | None = None
    model: str | None = None
    text: str | None = None
    error: JobError | None = None
    warnings: tuple[Mapping[str, str], ...] = ()  # {"code": ..., "param"?: ..., "message"?: ...}

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL
