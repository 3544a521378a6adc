"""Computes when to try a webhook again.

The schedule is the example of Standard Webhooks: quick while a receiver restarts, then slower and slower for three
days, which is longer than a weekend.
"""

import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

JITTER = 0.2  # each delay varies by this fraction, so that deliveries that failed together are not retried together
LONGEST_RETRY_AFTER_S = 24 * 3600

_SECONDS = re.compile(r"[0-9]{1,9}")


def delay_after(
    attempt: int, *, schedule_s: Sequence[float], roll: float, retry_after_s: float | None = None
) -> float | None:
    """Return the seconds to wait after the failed *attempt* (1, 2, ...), or None after the last attempt.

    *schedule_s*: the delays between attempts, so there is one attempt more.
    *roll*: a random number in [0, 1), which chooses the jitter.
    *retry_after_s*: what the receiver asked for. The delay is at least that, up to a day.
    """
    if attempt > len(schedule_s):
        return None
    planned = schedule_s[attempt - 1] * (1 - JITTER + 2 * JITTER * roll)
    return max(planned, min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S))


def retry_after_s(header: str | None, *, now_s: float) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or as an HTTP date (RFC 9110); None if unreadable."""
    text = (header or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):  # the parser raises all of these
        return None
    return max(0.0, at_s - now_s)
