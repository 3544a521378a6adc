"""Inputs that several targets share: bytes like those of a valid input, strange texts, JSON values."""

import random
from typing import Any

from hypothesis import strategies as st

STRANGE = (
    b"", b" ", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"%0a%0d", b"'\"\\", b"a" * 9000, b"\x1b[2J", b"{}", b"[]", b"null",
    b'{"type": 1}', b'{"type": "close"', b"-1", b"1e999", b"NaN", b"9" * 40, "٣".encode(),
)  # fmt: skip

seeds = st.integers(0, 2**32 - 1)
"""For mutate(): an input that is a seed is small when it is printed."""

texts = st.sampled_from([text.decode("utf-8", "replace") for text in STRANGE])


def mutate(valid: bytes, seed: int) -> bytes:
    """Return *valid* with some bytes changed, cut out, doubled or moved, always the same for one *seed*."""
    chance, data = random.Random(seed), bytearray(valid)
    for _ in range(chance.choice((0, 1, 1, 2, 5, 30))):
        if not data:
            break
        at = chance.randrange(min(len(data), chance.choice((64, 512, len(data)))))
        length = chance.choice((1, 1, 2, 8, 64))
        match chance.randrange(6):
            case 0:
                data[at] = chance.choice((0, 255, 127, 128, chance.randrange(256)))
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = chance.choice((*STRANGE, chance.randbytes(length)))
            case 3:
                data[at:at] = data[at : at + length] * chance.choice((1, 2, 50))
            case 4:
                data[at : at + length] = chance.randbytes(length)
            case _:
                del data[at + chance.randrange(len(data) - at) :]
    return bytes(data)


def json_values() -> "st.SearchStrategy[Any]":
    numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | numbers | st.text(max_size=30) | texts
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
        max_leaves=9,
    )
