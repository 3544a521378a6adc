"""Accounts, their keys, plans, channels and counted allowances. Instants are milliseconds since 1970 UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.model.errors import BadLimits, QuotaExceeded, RateLimited

TRANSLATED_CHARACTERS = "translated_characters"
"""The name of a count of the month that has no limit: the characters of texts that were translated, for each target."""

SIGNUP_PLAN = "free"
"""The plan of accounts that people make themselves by open signup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """An allowance from which accepting a job takes *amount*. *limit* None counts without refusing."""

    name: str  # "transcriptions", "audio_seconds"
    window: str  # the calendar window's name: "2026-11" or "2026-11-20"
    limit: int | None
    amount: int
    resets_at: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"{self.name}: {self.amount} would give back what was used")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    current: str  # whsec_...
    created_at: int
    previous: str | None = None
    previous_expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: str
    plan: str
    created_at: int
    webhook_secret: WebhookSecret
    sandbox_webhook_secret: WebhookSecret
    limits: Mapping[str, object] = field(default_factory=dict)  # overrides of the plan's numbers

    def webhook_secret_of(self, environment: str) -> WebhookSecret:
        """The secret that signs the webhooks of this environment."""
        return self.sandbox_webhook_secret if environment == "sandbox" else self.webhook_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: str
    account: str
    environment: str
    name: str | None
    hash: bytes  # SHA-256 of the key
    prefix: str
    last4: str
    created_at: int
    last_used_at: int | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    retention: str | None = None  # of jobs that are ordered with this key and name none


@dataclass(frozen=True, slots=True)
class Count:
    """The state of an allowance after a call."""

    allowed: bool
    used: int
    limit: int | None
    resets_at: int

    def check(self, name: str) -> None:
        """Raise QuotaExceeded for the allowance *name* if the call was not allowed."""
        if not self.allowed:
            raise QuotaExceeded(name, limit=self.limit or 0, used=self.used, resets_at=self.resets_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one account may use. None is unlimited."""

    requests_per_minute: int
    estimates_per_day: int | None
    transcriptions_per_month: int | None
    audio_hours_per_month: int | None
    audio_minutes_per_file: int
    upload_mib: int
    active_jobs: int | None
    live_sessions: int | None
    translation_targets: int
    retention_hours: int
    weight: float

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise BadLimits(f"weight must be more than 0, got {self.weight}: a queue divides by it")

    @property
    def audio_seconds_per_month(self) -> int | None:
        return None if self.audio_hours_per_month is None else self.audio_hours_per_month * 3600

    @property
    def audio_s_per_file(self) -> int:
        return self.audio_minutes_per_file * 60

    @property
    def upload_bytes(self) -> int:
        return self.upload_mib * 1024 * 1024

    @property
    def retention_ms(self) -> int:
        return self.retention_hours * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """The account and environment for which a job is made, with its plan and its key's retention."""

    account: str
    environment: str
    plan: Plan
    retention: str | None = None  # of the key, for orders that name none


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The server's signing secrets by their ids. Signatures of all are accepted; new ones are made with *current*."""

    secrets: Mapping[str, bytes] = field(repr=False)
    current: str

    def __post_init__(self) -> None:
        if self.current not in self.secrets or not all(kid.isascii() and kid.isalnum() for kid in self.secrets):
            raise ValueError("a key ring needs its current key, and ids of ASCII letters and digits")


@dataclass(frozen=True, slots=True)
class WindowUse:
    """The state of one counted window after a request."""

    name: str  # "minute", "transcriptions", "estimates", ...
    limit: int
    used: int
    window_s: int
    resets_at: int  # when something becomes free again
    allowed: bool = True

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def check(self) -> None:
        """Raise RateLimited if the request does not fit into the window."""
        if not self.allowed:
            raise RateLimited(self.name, limit=self.limit, used=self.used, resets_at=self.resets_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A permanent address at which readers find the account's newest live session with the channel's name.

    It works until it is deleted; a new channel of the same name has another address.
    """

    id: str
    account: str
    environment: str
    name: str
    created_at: int  # ms since 1970 UTC
    job: str | None = None  # the newest live session that named it; it may be deleted by now
