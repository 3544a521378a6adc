"""Webhook messages and the attempts to deliver them. Instants are milliseconds since 1970 UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

MAX_PENDING_PER_ACCOUNT = 5_000
"""Deliveries of one account that may wait to be sent. Further ones are stored as failed and can be redelivered."""
MAX_PENDING_PER_URL = 1_000
"""The same for the deliveries of one account to one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to deliver a webhook."""

    n: int
    at: int
    status_code: int | None
    duration_ms: int
    error: str | None
    next_attempt_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One webhook message to one address, with its history."""

    id: str  # dlv_...
    webhook_id: str  # msg_..., equal on every attempt and redelivery
    job_id: str
    account: str
    environment: str
    event: str
    url: str
    host: str  # of the url, with its port
    state: str  # pending | delivered | failed | disabled
    created_at: int
    next_at: int | None
    tried: int = 0  # attempts since the last redeliver(); *attempts* has all
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """The most deliveries that may be under way to a host and of an account, and how many are."""

    per_host: int
    per_account: int
    hosts: Mapping[str, int] = field(default_factory=dict)
    accounts: Mapping[str, int] = field(default_factory=dict)


def host_of(url: str) -> str:
    """The host of a webhook's address with its port. Deliveries are bounded for each host."""
    return urlsplit(url).netloc.lower()
