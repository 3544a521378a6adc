"""One attempt to deliver a webhook: sign the body, send it, say what came back."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from server.accounts.limits import WebhookRules
from server.clock import now_ms
from server.egress.guard import Egress, Patience, Unresolvable
from server.egress.targets import TargetNotAllowed
from server.model.accounts import Account
from server.webhooks.backoff import retry_after_s
from server.webhooks.signing import signed_headers

USER_AGENT = "scribewire/1"


GONE = 410


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one attempt. *status_code* None: no answer; *error* None: delivered."""

    status_code: int | None
    duration_ms: int
    error: str | None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Courier:
    """Signs a body and sends it to an address, once."""

    egress: Egress
    rules: WebhookRules

    async def bring(self, url: str, body: bytes, *, webhook_id: str, secrets: Sequence[str]) -> Reply:
        """Send *body* to *url* and say what came back. Never raises for a failure of the receiver."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            **signed_headers(secrets, message_id=webhook_id, timestamp_s=now_ms() // 1000, body=body),
        }
        patience = Patience(connect_s=self.rules.connect_s, read_s=self.rules.timeout_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.rules.timeout_s):
                target = self.egress.parse(url)
                async with self.egress.request(
                    "POST", target, headers=headers, content=body, patience=patience
                ) as response:
                    status, wish = response.status_code, response.headers.get("retry-after")
                    await _read_some(response, self.rules.reply_bytes)
        except (TimeoutError, httpx.TimeoutException):
            return Reply(None, _since(began), "timeout")
        except TargetNotAllowed as error:
            return Reply(None, _since(began), f"address not allowed: {error}")
        except (httpx.TransportError, Unresolvable) as error:
            return Reply(None, _since(began), f"unreachable: {str(error) or type(error).__name__}")
        if httpx.codes.is_success(status):
            return Reply(status, _since(began), None)
        asked_s = retry_after_s(wish, now_s=time.time()) if status in (429, 503) else None
        return Reply(status, _since(began), f"status {status}", asked_s)


def signing_secrets(account: Account) -> list[str]:
    """The account's secrets that sign at present: the current one, and the previous one during its overlap."""
    secret = account.webhook_secret
    if secret.previous is None or (secret.previous_expires_at or 0) <= now_ms():
        return [secret.current]
    return [secret.current, secret.previous]


async def _read_some(response: httpx.Response, most: int) -> None:
    """Read the reply, so that the receiver sees an orderly end, but at most *most* bytes of it."""
    read = 0
    async for piece in response.aiter_raw():
        read += len(piece)
        if read > most:
            return


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
