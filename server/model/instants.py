"""Converts instants: milliseconds since 1970 inside the server, RFC 3339 UTC outside."""

from datetime import UTC, datetime
from functools import lru_cache

MAX_WRITTEN = 4096  # instants whose text is cached, because clients poll records


@lru_cache(MAX_WRITTEN)
def iso(ms: int) -> str:
    """The instant as 2026-11-20T11:30:00.123Z."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03}Z"


def iso_or_none(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def parse_iso(text: str) -> int:
    """Milliseconds of an RFC 3339 instant; one without an offset is taken as UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
