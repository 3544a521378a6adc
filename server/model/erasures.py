"""The parts that can be erased, the reasons, and how long data without a job are kept. Spans are milliseconds."""

from dataclasses import dataclass
from enum import StrEnum

DAY_MS = 24 * 60 * 60 * 1000

USAGE_KEPT_MS = 62 * DAY_MS
"""What an ended job used. Counted allowances are kept equally long after their window."""
ADDRESSES_KEPT_MS = 30 * DAY_MS
"""The failures of webhook addresses and which are disabled. The time begins with the last change."""
KEYS_KEPT_MS = 30 * DAY_MS
"""Keys that were revoked or have expired."""
UNTRIED_ACCOUNTS_KEPT_MS = 30 * DAY_MS
"""Accounts with the plan SIGNUP_PLAN, without own limits and jobs, none of whose keys was ever used."""
IDLE_ACCOUNTS_KEPT_MS = 365 * DAY_MS
"""Such accounts whose keys were used. The time begins with the last use."""
ERASURES_KEPT_MS = 730 * DAY_MS


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
