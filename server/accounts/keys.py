"""The format of API keys and webhook secrets: making them from random bytes and checking them without the database.

A key is `sw_live_` (production) or `sw_test_` (sandbox), 30 random base62 characters (178 bits) and a checksum of six.
The prefix is not `sk_live_`, because secret scanners take that for another service's. The checksum is the CRC-32 of
everything before it. So a typing error, or a live key edited into a test key, is found without the database, and a
scanner can be sure that it has found a key. Keys are stored as SHA-256. A slow hash would add no protection, because
178 random bits cannot be guessed.
"""

import base64
import re
import zlib
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from server.model.errors import RequestError

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
        raise MalformedKey("this is no API key: it was mistyped or cut off")
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
