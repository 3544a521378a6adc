"""A channel: a permanent address at which readers find the account's newest live session with the channel's name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel. Its address works until it is deleted; a new channel of the same name has another address."""

    id: str
    account: str
    environment: str
    name: str
    created_at: int  # ms since 1970 UTC
    job: str | None = None  # the newest live session that named it; it may be deleted by now
