"""The parts that can be erased, the reasons, and how long data without a job are kept. Spans are milliseconds."""

from dataclasses import dataclass
from enum import StrEnum

DAY_MS = 24 * 60 * 60 * 1000

USAGE_KEPT_MS = 62 * DAY_MS
"""What an ended job used, for the operator's questions; counted allowances are kept as long after their window."""
ADDRESSES_KEPT_MS = 30 * DAY_MS
"""How webhook addresses behave, and which of them were given up; from the last attempt on."""
KEYS_KEPT_MS = 30 * DAY_MS
"""Keys that were revoked or have expired."""
UNTRIED_ACCOUNTS_KEPT_MS = 30 * DAY_MS
"""Accounts of the plan of sign-ups, without own limits and jobs, none of whose keys was ever used."""
IDLE_ACCOUNTS_KEPT_MS = 365 * DAY_MS
"""The same, from the last use of a key on."""
ERASURES_KEPT_MS = 730 * DAY_MS


class ErasedPart(StrEnum):
    """The part of a job that was erased."""

    JOB = "job"  # everything: record, words, events, deliveries, audio and outputs
    OUTPUTS = "outputs"  # text, words, prompt and output files; the record stands


class ErasureReason(StrEnum):
    """Why it was erased."""

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
