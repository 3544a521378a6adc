"""Makes one attempt to deliver a webhook: signs the body, sends it and returns the result, and when to try again.

The schedule is the example of Standard Webhooks 1.0.0: quick while a receiver restarts, then slower and slower for
three days, which is longer than a weekend. Signatures are as it describes, so that its libraries can verify them.
"""

import asyncio
import base64
import binascii
import hmac
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

import httpx

from server.accounts.limits import WebhookRules
from server.clock import now_ms
from server.egress.guard import Egress, Unresolvable
from server.egress.targets import TargetNotAllowed
from server.keyed_limits import Tally
from server.logs import log
from server.model.accounts import Account
from server.model.deliveries import Crowding
from server.model.errors import Refused

USER_AGENT = "scribewire/1"
GONE = 410
JITTER = 0.2  # each delay varies by this fraction, so that deliveries that failed together are not retried together
LONGEST_RETRY_AFTER_S = 24 * 3600
MAX_AT_ONCE = 256
MAX_PER_HOST = 4
MAX_PER_ACCOUNT = 16
_SECONDS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one attempt."""

    status_code: int | None  # None without an answer
    duration_ms: int
    error: str | None  # None if it was delivered
    retry_after_s: float | None = None
    delivered_results: bool = False  # the receiver now has all results of a job that keeps none


@dataclass(slots=True)
class DeliverySlots:
    """Limits the messages that are under way at once: in all, of one account and to one host.

    Deliveries and tests on demand share these slots. So a receiver that does not answer keeps 4 of them until its time
    is over, an account with many such receivers 16, and the others go on. Used in one event loop only.
    """

    _hosts: Tally[str] = field(default_factory=Tally)
    _accounts: Tally[str] = field(default_factory=Tally)
    _left: asyncio.Event = field(default_factory=asyncio.Event)  # set when a slot becomes free

    @property
    def free(self) -> int:
        return MAX_AT_ONCE - self._accounts.total()

    def crowding(self) -> Crowding:
        """The numbers for Outbox.claim_due(). They change with those of this object."""
        return Crowding(per_host=MAX_PER_HOST, per_account=MAX_PER_ACCOUNT, hosts=self._hosts, accounts=self._accounts)

    async def wait_for_free(self) -> None:
        while self.free <= 0:
            self._left.clear()
            await self._left.wait()

    def claim(self, account: str, host: str) -> None:
        """Take a slot for a claimed message of *account* to *host*. leave() frees it."""
        self._accounts[account] += 1
        self._hosts[host] += 1

    def leave(self, account: str, host: str) -> None:
        self._accounts.leave(account)
        self._hosts.leave(host)
        self._left.set()

    @contextmanager
    def hold(self, account: str, host: str) -> Iterator[None]:
        """Take a slot while the block lasts, for a message that is no delivery. Raises Refused too_many_connections."""
        if self.free <= 0 or self._accounts[account] >= MAX_PER_ACCOUNT or self._hosts[host] >= MAX_PER_HOST:
            raise Refused("too_many_connections", "Too many webhooks are under way. Try again soon.", retry_after_s=5)
        self.claim(account, host)
        try:
            yield
        finally:
            self.leave(account, host)


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Signs a body and sends it to an address, once."""

    egress: Egress
    rules: WebhookRules
    slots: DeliverySlots

    async def send(self, url: str, body: bytes, *, account: Account, environment: str, webhook_id: str) -> Reply:
        """Send *body* to *url*, signed with the account's secret of *environment*, and return the result.

        Every failure becomes a Reply, even an error of this server.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.rules.timeout_s):
                status, wish = await self._send(url, body, account, signing_secrets(account, environment), webhook_id)
        except Exception as error:  # noqa: BLE001  an attempt that is not recorded would be repeated for ever
            return Reply(None, _since(began), _why(error))
        if httpx.codes.is_success(status):
            return Reply(status, _since(began), None)
        asked_s = retry_after_s(wish, now_s=time.time()) if status in (429, 503) else None
        return Reply(status, _since(began), f"status {status}", asked_s)

    async def _send(
        self, url: str, body: bytes, account: Account, secrets: Sequence[str], webhook_id: str
    ) -> tuple[int, str | None]:
        """The status and the Retry-After header of the answer."""
        signed = signed_headers(secrets, message_id=webhook_id, timestamp_s=now_ms() // 1000, body=body)
        sending = self.egress.request(
            "POST",
            self.egress.parse(url),
            asker=account.id,
            headers={"Content-Type": "application/json", "User-Agent": USER_AGENT, **signed},
            content=body,
            timeouts=httpx.Timeout(self.rules.timeout_s, connect=self.rules.connect_s),
        )
        async with sending as response:
            await _read_some(response, self.rules.reply_bytes)
            return response.status_code, response.headers.get("retry-after")


def _why(error: Exception) -> str:
    """The reason that the log of attempts shows. An unexpected *error* is also logged for the operator."""
    match error:
        case TimeoutError() | httpx.TimeoutException():
            return "timeout"
        case TargetNotAllowed() | Unresolvable():
            return f"address not allowed: {error}"
        case httpx.TransportError():
            return f"unreachable: {str(error) or type(error).__name__}"
        case _:
            log.error("sending a webhook failed", exc_info=error)
            return "the server failed to send it"


def signing_secrets(account: Account, environment: str) -> list[str]:
    """The secrets that sign now: the current one and, until it expires, the previous one."""
    secret = account.webhook_secret_of(environment)
    if secret.previous is None or (secret.previous_expires_at or 0) <= now_ms():
        return [secret.current]
    return [secret.current, secret.previous]


def signed_headers(secrets: Sequence[str], *, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers with which a receiver that has one of *secrets* (`whsec_` and base64) verifies *body*.

    Each signature is the HMAC-SHA256 of `{id}.{timestamp}.{body}`.
    """
    signatures = [_signature(_key(secret), message_id, str(timestamp_s), body) for secret in secrets]
    if not signatures:
        raise ValueError("a message is signed with at least one secret")
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": " ".join(signatures)}


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a webhook secret is whsec_ and base64") from None  # never quote a secret


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    mac = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(mac).decode()


async def _read_some(response: httpx.Response, most: int) -> None:
    """Read at most *most* bytes of the reply, so that the receiver can send a short one to its end."""
    read = 0
    async for piece in response.aiter_raw():
        read += len(piece)
        if read > most:
            return


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


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
