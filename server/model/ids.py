"""Identifiers: a short prefix, an underscore and a ULID. They sort by their time and cannot be guessed."""

from enum import StrEnum

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
CHANCE_BYTES = 10
LENGTH = 26  # characters of 48 bits of time and 80 of chance, five bits each
LATEST_MS = 2**48 - 1  # in the year 10889
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]  # of ten bits: every request has an id


class Prefix(StrEnum):
    """What an identifier names."""

    JOB = "job"
    REQUEST = "req"
    MESSAGE = "msg"  # a webhook message, equal on every attempt
    DELIVERY = "dlv"  # that message on its way to one address
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
    number = ms << 80 | int.from_bytes(chance)
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(10 * (LENGTH // 2 - 1), -1, -10)])
