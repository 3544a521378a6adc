"""Webhook signatures of Standard Webhooks 1.0.0, which any of its libraries can verify.

The signed content is `{id}.{timestamp}.{body}`, the MAC is HMAC-SHA256, the secret is `whsec_` and base64.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from typing import ClassVar

TOLERANCE_S = 5 * 60
"""How far a message's time may be from the receiver's clock: older ones may be replays."""


class BadWebhookSignature(Exception):
    """The message was not signed with the secret, or too long ago. Answer 401 and do nothing of what it says."""

    code: ClassVar[str] = "invalid_signature"


def signed_headers(secrets: Sequence[str], *, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers by which a receiver with any of *secrets* (`whsec_…`, at least one) can trust *body*.

    While a secret is being replaced, the old and the new one both sign.
    """
    signatures = [_signature(_key(secret), message_id, str(timestamp_s), body) for secret in secrets]
    if not signatures:
        raise ValueError("a message is signed with at least one secret")
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": " ".join(signatures)}


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> None:
    """Return if one of the signatures in *headers* (names in lower case) was made with *secret*, within TOLERANCE_S.

    Raises BadWebhookSignature, whatever the headers contain.
    """
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    expected = _signature(_key(secret), message_id, timestamp, body).encode()
    given = headers.get("webhook-signature", "").split(" ")
    if not any([hmac.compare_digest(expected, _bytes(signature)) for signature in given]):  # noqa: C419  no early end
        raise BadWebhookSignature("no signature of this message matches")
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now_s - float(timestamp)) > TOLERANCE_S:
        raise BadWebhookSignature("the time of this message is too far from now")


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a webhook secret is whsec_ and base64") from None  # never quote a secret


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    mac = hmac.digest(key, _bytes(f"{message_id}.{timestamp}.") + body, "sha256")
    return "v1," + base64.b64encode(mac).decode()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # broken headers must be refused, not crash
