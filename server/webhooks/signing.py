"""Signs webhooks as Standard Webhooks 1.0.0 describes, so that its libraries can verify them.

The signed content is `{id}.{timestamp}.{body}`, the MAC is HMAC-SHA256, the secret is `whsec_` and base64.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence


def signed_headers(secrets: Sequence[str], *, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers with which a receiver that has one of *secrets* (`whsec_…`, at least one) verifies *body*."""
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
