"""A channel: an address that lasts, where readers find the newest live session that an account gave its name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One row of the channels. Its address works until it is deleted; a new one of the same name has another."""

    id: str
    account: str
    environment: str
    name: str
    created_at: int  # ms since 1970 UTC
    job: str | None = None  # the newest live session that named it; it may be deleted by now
