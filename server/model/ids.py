"""Identifiers: a short prefix, an underscore and a ULID. They sort by their time and cannot be guessed."""

from enum import StrEnum
from functools import lru_cache

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
LATEST_MS = 2**48 - 1  # in the year 10889
LENGTH = 26  # characters of five bits: ten for the time, 16 for random bits
CHANCE_BYTES = 16  # each gives a character, made of its last five bits
_CHARACTERS = bytes(ord(ALPHABET[byte % 32]) for byte in range(256))


class Prefix(StrEnum):
    """What an identifier names."""

    JOB = "job"
    REQUEST = "req"
    MESSAGE = "msg"  # a webhook message, equal on every attempt
    DELIVERY = "dlv"  # of such a message to one address
    KEY = "key"
    ACCOUNT = "acct"
    CHANNEL = "chn"
    SESSION = "sess"  # of a client of another service


def new_id(prefix: Prefix, *, ms: int, chance: bytes) -> str:
    """The id of *prefix* for the instant *ms* (since 1970), with CHANCE_BYTES random bytes."""
    return f"{prefix}_{ulid(ms, chance)}"


def ulid(ms: int, chance: bytes) -> str:
    """LENGTH characters that sort like *ms* (github.com/ulid/spec). Raises ValueError outside the bounds."""
    if not 0 <= ms <= LATEST_MS or len(chance) != CHANCE_BYTES:
        raise ValueError(f"a ULID is made of 0..{LATEST_MS} ms and {CHANCE_BYTES} bytes")
    return _time(ms) + chance.translate(_CHARACTERS).decode()


@lru_cache(8)
def _time(ms: int) -> str:
    return "".join(ALPHABET[ms >> shift & 31] for shift in range(45, -1, -5))
