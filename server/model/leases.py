"""Leases: the right of one worker to work on a job for a while. Every write of a worker names its lease."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NotRequired, TypedDict

from server.model.jobs import Job, JobError
from server.model.orders import Source


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
