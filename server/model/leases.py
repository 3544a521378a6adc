"""Leases: the right of one worker to work on a job for a while. Every write of a worker names its lease."""

from dataclasses import dataclass
from enum import StrEnum

from server.model.jobs import Job, JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on *job* until *until*. Every write names it."""

    job: Job
    lease_id: str
    epoch: int
    until: int
    blob: str | None
    chunks: tuple[bytes, ...]  # bodies already checkpointed, in order: where to go on


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
