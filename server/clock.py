"""The wall clock, which the server reads only with now_ms(), and how its instants are written.

An instant is milliseconds since 1970 inside the server, and RFC 3339 in UTC outside.
"""

import time
from datetime import UTC, datetime
from functools import lru_cache


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(4096)  # clients poll records
def iso(ms: int) -> str:
    """The instant as 2026-11-20T11:30:00.123Z."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03}Z"


def iso_or_none(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def parse_iso(text: str) -> int:
    """Milliseconds of an RFC 3339 instant; one without an offset is taken as UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
