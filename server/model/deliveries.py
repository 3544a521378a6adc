"""Webhook messages and the attempts to deliver them. Instants are milliseconds since 1970 UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    tried: int = 0  # attempts of the present schedule; redeliver() starts a new one, *attempts* has all
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """How many deliveries may be on their way to one host and of one account, and how many are at present."""

    per_host: int
    per_account: int
    hosts: Mapping[str, int] = field(default_factory=dict)
    accounts: Mapping[str, int] = field(default_factory=dict)
