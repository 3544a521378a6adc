"""API keys and webhook secrets: made from given chance, told apart and checked without a look into the database.

A key is `sw_live_` (production) or `sw_test_` (sandbox), 30 random base62 characters (178 bits) and six of checksum.
The prefix is our own and not `sk_live_`, which secret scanners take for another service's. The checksum is the CRC-32
of all before it, so a typing error, or a live key turned into a test key by hand, is told without asking the database,
and a scanner can be sure that what it found is a key. Keys are stored as SHA-256: with 178 random bits there is nothing
to guess that a slow hash would protect.
"""

import base64
import re
import zlib
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from server.model.errors import RequestError

ENVIRONMENT_OF: Mapping[str, str] = MappingProxyType({"sw_live_": "production", "sw_test_": "sandbox"})
"""What a key starts with -> the environment that takes it."""

KEY_CHANCE_BYTES = 32
RANDOM_LENGTH = 30
CHECK_LENGTH = 6

_PREFIX_OF = {environment: prefix for prefix, environment in ENVIRONMENT_OF.items()}
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(f"(sw_live_|sw_test_)[0-9A-Za-z]{{{RANDOM_LENGTH + CHECK_LENGTH}}}")


class MalformedKey(RequestError):
    """No key of ours looks like this: cut off, mistyped or from another service. Copy the key again."""

    code = "invalid_key"


def make_key(environment: str, chance: bytes) -> str:
    """The key of KEY_CHANCE_BYTES random bytes, for "production" or "sandbox"."""
    number = _number(chance) % 62**RANDOM_LENGTH  # 2**256 is so much more that no key is likelier by 2**-77
    body = _PREFIX_OF[environment] + _base62(number, RANDOM_LENGTH)
    return body + _check(body)


def environment_of(key: str) -> str:
    """The environment that takes *key*. Raises MalformedKey when it cannot be a key, whoever sends it."""
    match = _KEY.fullmatch(key)
    if match is None or not key.endswith(_check(key[:-CHECK_LENGTH])):
        raise MalformedKey("this is no API key: it was mistyped or cut off")
    return ENVIRONMENT_OF[match[1]]


def digest(key: str) -> bytes:
    """What is stored of the key, and what it is found by."""
    return sha256(key.encode()).digest()


def display_prefix(key: str) -> str:
    """Enough to recognise the key in a list: `sw_live_9fK2`."""
    return key[: len("sw_live_") + 4]


def last4(key: str) -> str:
    return key[-4:]


def make_webhook_secret(chance: bytes) -> str:
    """`whsec_` and the base64 of KEY_CHANCE_BYTES random bytes, as Standard Webhooks writes secrets."""
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
