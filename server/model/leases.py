"""Leases: the right of one worker to work on a job for a while. Every write of a worker names its lease."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NotRequired, TypedDict

from server.model.jobs import Job, JobError
from server.model.orders import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on *job* until *until*. Every write names it."""

    job: Job
    lease_id: str
    epoch: int
    until: int
    blob: str | None
    chunks: tuple[bytes, ...]  # bodies already checkpointed, in order: where to go on


class ClaimTerms(TypedDict):
    """Which jobs a worker claims, and for how long. JobStore.claim() explains them."""

    environments: Sequence[str]
    unfetched: NotRequired[bool]
    passing_over: NotRequired[Collection[str]]
    lease_s: float


class JobFacts(TypedDict, total=False):
    """What becomes known of a job while it is worked on."""

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
    """The job goes back to the queue, for another attempt if *error* says why this one failed."""

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
