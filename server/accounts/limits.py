"""The numbers of limits.toml and the plans in it, calendar windows, and each client's failures within a minute.

Instants are milliseconds since 1970 UTC.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from server.clock import now_ms
from server.config import PREFIX, Config
from server.keyed_limits import MINUTE_MS
from server.model.accounts import Plan, WindowUse
from server.model.errors import BadLimits
from server.model.jobs import Job
from server.storage.ports import RateCounter
from server.storage.sql.accounts import AccountStore

BUILT_IN = Path(__file__).parents[1] / "limits.toml"
DAY_S = 24 * 3600
MONTH_S = 30 * DAY_S  # what RateLimit-Policy says for a calendar month; the resets are exact
MAX_REFUSED = 10_000  # clients at their limit in memory; beyond it all are dropped
T = TypeVar("T")


# --- the numbers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The numbers that replace a plan's in the sandbox, where nothing is limited by month."""

    requests_per_minute: int
    upload_mib: int  # unless the plan's is smaller
    active_jobs: int | None
    live_sessions: int | None
    retention_hours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyless:
    """What one address may use without a key."""

    requests_per_minute: int
    estimates_per_day: int
    signups_per_day: int
    refused_keys_per_minute: int
    free_requests_per_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """How many event streams may be open, and how they behave."""

    per_job: int  # of a file
    per_account: int  # of files, in one environment
    per_session: int  # of a live session, by any reader
    downloads_per_job: int
    keep_alive_s: float
    retry_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRules:
    """How webhooks are delivered. There is one attempt more than there are delays."""

    delays_s: tuple[float, ...]
    timeout_s: float
    connect_s: float
    reply_kib: int
    exhausted_before_disable: int

    @property
    def reply_bytes(self) -> int:
        return self.reply_kib * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All numbers of a limits.toml."""

    plans: Mapping[str, Plan]
    sandbox: Sandbox
    keyless: Keyless
    streams: StreamRules
    webhooks: WebhookRules

    @classmethod
    def from_toml(cls, text: str) -> "Limits":
        """Parse a limits.toml, which must have exactly these numbers. Raises BadLimits."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadLimits(f"limits are no TOML: {error}") from None
        _check_names("limits", tables, {table.name for table in fields(cls)})
        plans = _table("plans", tables["plans"])
        _check_names("plans", plans, {"free", *plans})  # new accounts start with this plan
        return cls(
            plans={name: _parse_table(Plan, f"plans.{name}", plan) for name, plan in plans.items()},
            sandbox=_parse_table(Sandbox, "sandbox", tables["sandbox"]),
            keyless=_parse_table(Keyless, "keyless", tables["keyless"]),
            streams=_parse_table(StreamRules, "streams", tables["streams"]),
            webhooks=_parse_table(WebhookRules, "webhooks", tables["webhooks"]),
        )

    def plan(self, name: str, overrides: Mapping[str, object], *, sandbox: bool) -> Plan:
        """The limits of an account with the plan *name*. Raises BadLimits for an unknown plan or override.

        *overrides* are the account's own numbers, named like the members of Plan; None is unlimited. In the sandbox the
        numbers of Sandbox replace the plan's.
        """
        if name not in self.plans:
            raise BadLimits(f"there is no plan {name!r}, only {', '.join(self.plans)}")
        plan = with_overrides(self.plans[name], overrides) if overrides else self.plans[name]
        if not sandbox:
            return plan
        return replace(
            plan,
            requests_per_minute=self.sandbox.requests_per_minute,
            upload_mib=min(plan.upload_mib, self.sandbox.upload_mib),
            active_jobs=self.sandbox.active_jobs,
            live_sessions=self.sandbox.live_sessions,
            retention_hours=self.sandbox.retention_hours,
            transcriptions_per_month=None,
            audio_hours_per_month=None,
        )


def read_limits(config: Config) -> Limits:
    """The limits that *config* names. Raises BadLimits with the file's name."""
    path = config.limits_file or BUILT_IN
    try:
        return Limits.from_toml(path.read_text(encoding="utf-8"))
    except (BadLimits, OSError, UnicodeDecodeError) as error:
        raise BadLimits(f"{PREFIX}LIMITS_FILE must be a usable limits.toml, got {path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Plans:
    accounts: AccountStore
    limits: Limits

    async def of_job(self, job: Job) -> Plan:
        """The plan of the job's account, with the account's own numbers. A deleted account has the free plan.

        Raises BadLimits for a plan or a number that the limits file does not have.
        """
        account = await self.accounts.account(job.account)
        name, own = ("free", {}) if account is None else (account.plan, account.limits)
        return self.limits.plan(name, own, sandbox=job.environment == "sandbox")


def with_overrides(plan: Plan, overrides: Mapping[str, object]) -> Plan:
    """The plan with an account's own numbers in place of the plan's. Raises BadLimits."""
    kinds = {number.name: number.type for number in fields(Plan)}
    unknown = sorted(overrides.keys() - kinds.keys())
    if unknown:
        raise BadLimits(f"there is no limit {unknown[0]!r}, only {', '.join(kinds)}")
    own: dict[str, Any] = {name: _number(name, kinds[name], value) for name, value in overrides.items()}
    return replace(plan, **own)


def _table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadLimits(f"{where} must be a table, got {value!r}")
    return value


def _check_names(where: str, given: Mapping[str, object], expected: Collection[str]) -> None:
    for name in [*given, *expected]:
        if name not in expected:
            raise BadLimits(f"{where} knows no {name!r}, only {', '.join(sorted(expected))}")
        if name not in given:
            raise BadLimits(f"{where} lacks {name!r}")


def _parse_table(kind: type[T], where: str, value: object) -> T:
    table = _table(where, value)
    kinds: dict[str, Any] = {number.name: number.type for number in fields(kind)}  # type: ignore[arg-type]  # dataclass
    _check_names(where, table, kinds.keys())
    return kind(**{name: _number(f"{where}.{name}", kinds[name], table[name]) for name in kinds})


def _number(where: str, kind: object, value: object) -> object:
    if kind == int | None and value in ("unlimited", None):
        return None
    if kind == tuple[float, ...]:
        if not isinstance(value, list):
            raise BadLimits(f"{where} must be a list of numbers, got {value!r}")
        return tuple(_number(where, float, item) for item in value)
    takes, types = ("a number", (int, float)) if kind is float else ("a whole number", (int,))
    if not isinstance(value, types) or isinstance(value, bool) or not 0 <= value < 2**53:
        more = ' or "unlimited"' if kind == int | None else ""
        raise BadLimits(f"{where} must be {takes} from 0{more}, got {value!r}")
    return value


# --- calendar windows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calendar:
    """One calendar window of an allowance."""

    name: str  # "2026-11-20" or "2026-11"
    resets_at: int
    window_s: int


def day_of(now: int) -> Calendar:
    """The UTC day of *now*."""
    midnight = datetime.fromtimestamp(now // 1000, UTC).replace(hour=0, minute=0, second=0)
    return Calendar(f"{midnight:%Y-%m-%d}", _ms(midnight + timedelta(days=1)), DAY_S)


def month_of(now: int) -> Calendar:
    """The UTC calendar month of *now*."""
    first = datetime.fromtimestamp(now // 1000, UTC).replace(day=1, hour=0, minute=0, second=0)
    return Calendar(f"{first:%Y-%m}", _ms((first + timedelta(days=32)).replace(day=1)), MONTH_S)


def _ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000


@dataclass(slots=True, kw_only=True)
class Failures:
    """Counts each client's failures within the last minute, called *what*: wrong keys by address, bad files by account.

    look() costs nothing, because this process remembers the clients that it found at their limit. So each further node
    allows a client one failure more than the limit.
    """

    what: str
    rates: RateCounter
    _refused: dict[str, WindowUse] = field(init=False, default_factory=dict)  # clients at their limit, until it resets

    def look(self, client: str, *, limit: int) -> WindowUse:
        """Whether this node allows *client* another failure."""
        now = now_ms()
        window = self._refused.get(client)
        if window is not None and now < window.resets_at <= now + MINUTE_MS:  # unless the clock went back
            return window
        return WindowUse("minute", limit, 0, MINUTE_MS // 1000, now)

    async def count(self, client: str, *, limit: int) -> WindowUse:
        """Count a failure of *client* if fewer than *limit* are counted. Raises StorageError."""
        window = await self.rates.hit(f"{self.what} of {client}", limit=limit)
        if window.used >= limit:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            self._refused[client] = replace(window, allowed=False)
        return window
