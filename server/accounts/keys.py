"""API keys, webhook secrets and accounts: how they are made, and how a key is checked without the database.

A key is `sw_live_` (production) or `sw_test_` (sandbox), 30 random base62 characters (178 bits) and a checksum of six.
The prefix is not `sk_live_`, because secret scanners take that for another service's. The checksum is the CRC-32 of
everything before it. So a typing error, or a live key edited into a test key, is found without the database, and a
scanner can be sure that it has found a key. Keys are stored as SHA-256. A slow hash would add no protection, because
178 random bits cannot be guessed.
"""

import base64
import os
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from server.clock import now_ms
from server.model.accounts import Account, ApiKey, WebhookSecret
from server.model.errors import RequestError
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.storage.sql.accounts import AccountStore

ENVIRONMENT_OF: Mapping[str, str] = MappingProxyType({"sw_live_": "production", "sw_test_": "sandbox"})
"""The environment of a key, by the key's prefix."""

KEY_CHANCE_BYTES = 32
RANDOM_LENGTH = 30
CHECK_LENGTH = 6

_PREFIX_OF = {environment: prefix for prefix, environment in ENVIRONMENT_OF.items()}
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(f"(sw_live_|sw_test_)[0-9A-Za-z]{{{RANDOM_LENGTH + CHECK_LENGTH}}}")


class MalformedKey(RequestError):
    """The text cannot be a key of this service: it is cut off, mistyped or from another service. Copy it again."""

    code = "invalid_key"


def make_key(environment: str, chance: bytes) -> str:
    """The key of KEY_CHANCE_BYTES random bytes, for "production" or "sandbox"."""
    number = _number(chance) % 62**RANDOM_LENGTH  # 2**256 is so much larger that the bias is below 2**-77
    body = _PREFIX_OF[environment] + _base62(number, RANDOM_LENGTH)
    return body + _check(body)


def environment_of(key: str) -> str:
    """The environment that takes *key*. Raises MalformedKey for text that cannot be a key."""
    match = _KEY.fullmatch(key)
    if match is None or not key.endswith(_check(key[:-CHECK_LENGTH])):
        raise MalformedKey("This is no API key: it was mistyped or cut off. Copy it again.")
    return ENVIRONMENT_OF[match[1]]


def digest(key: str) -> bytes:
    """The hash by which a key is stored and found."""
    return sha256(key.encode()).digest()


def display_prefix(key: str) -> str:
    """The beginning of the key, enough to recognise it in a list: `sw_live_9fK2`."""
    return key[: len("sw_live_") + 4]


def make_webhook_secret(chance: bytes) -> str:
    """A webhook secret as Standard Webhooks writes it: `whsec_` and the base64 of KEY_CHANCE_BYTES random bytes."""
    _number(chance)
    return "whsec_" + base64.b64encode(chance).decode()


def _number(chance: bytes) -> int:
    if len(chance) != KEY_CHANCE_BYTES:
        raise ValueError(f"secrets are made of {KEY_CHANCE_BYTES} random bytes, got {len(chance)}")
    return int.from_bytes(chance)


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


@dataclass(frozen=True, slots=True)
class Issued:
    """A new key. *secret* is shown once and stored nowhere."""

    key: ApiKey
    secret: str


def fresh_id(prefix: Prefix) -> str:
    """A new id for this moment."""
    return new_id(prefix, ms=now_ms(), chance=os.urandom(CHANCE_BYTES))


def issue_key(
    account_id: str, *, environment: str, name: str | None, retention: str | None = None, chance: bytes | None = None
) -> Issued:
    """Make a key for an account; the caller stores it.

    *retention*: the default for jobs ordered with it.
    *chance*: what the secret is made of; None: random bytes. See signed.repeatable_chance().
    """
    secret = make_key(environment, chance or secrets.token_bytes(KEY_CHANCE_BYTES))
    key = ApiKey(
        id=fresh_id(Prefix.KEY),
        account=account_id,
        environment=environment,
        name=name,
        hash=digest(secret),
        prefix=display_prefix(secret),
        last4=secret[-4:],
        created_at=now_ms(),
        retention=retention,
    )
    return Issued(key, secret)


def issue_webhook_secret() -> WebhookSecret:
    return WebhookSecret(current=make_webhook_secret(secrets.token_bytes(KEY_CHANCE_BYTES)), created_at=now_ms())


async def open_account(
    accounts: AccountStore,
    *,
    plan: str,
    environment: str,
    name: str | None,
    limits: Mapping[str, object] | None = None,
    retention: str | None = None,
) -> tuple[Account, Issued]:
    """Store a new account with its first key and return both."""
    account = Account(
        id=fresh_id(Prefix.ACCOUNT),
        plan=plan,
        created_at=now_ms(),
        webhook_secret=issue_webhook_secret(),
        sandbox_webhook_secret=issue_webhook_secret(),
        limits=limits or {},
    )
    issued = issue_key(account.id, environment=environment, name=name, retention=retention)
    await accounts.create_account(account, issued.key)
    return account, issued
