"""Strategies that several targets share: bytes like those of a valid input, header values, JSON values, names."""

import random
from typing import Any

from hypothesis import strategies as st

NASTY_NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"9" * 40, b"1.5", b"0x10", b"+1", "٣".encode())
NASTY_TEXTS = (
    b"", b" ", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"%0a%0d", b"../../etc/passwd", b"'\"\\", b"a" * 9000, b"\x1b[2J",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe".encode(), b"{}", b"[]", b"null", b"${x}", b";", b",", b"=",
)  # fmt: skip
ADDRESSES = (
    "http://127.0.0.1:1/", "https://[::1]/", "http://169.254.169.254/latest", "https://0x7f000001/", "file:///etc/passwd",
    "https://user:pass@10.0.0.1/", "gopher://127.0.0.1", "https://", "http://127.0.0.1:99999/", "https://[::ffff:10.0.0.1]/",
)  # fmt: skip
"""Addresses that the server must refuse. None of them needs a name server."""


def mutate(valid: bytes, chance: random.Random) -> bytes:
    """Return *valid* with some bytes changed, cut out, doubled or moved."""
    data = bytearray(valid)
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
                data[at:at] = chance.choice((*NASTY_TEXTS, *NASTY_NUMBERS, chance.randbytes(length)))
            case 3:
                data[at:at] = data[at : at + length] * chance.choice((1, 2, 50))
            case 4:
                data[at : at + length] = chance.randbytes(length)
            case _:
                del data[at + chance.randrange(len(data) - at) :]
    return bytes(data)


seeds = st.integers(0, 2**32 - 1)
"""For mutate(): the input of a target holds the seed, so that it is small and can be written down."""

header_values = st.one_of(
    st.sampled_from((*NASTY_TEXTS, *NASTY_NUMBERS)),
    st.binary(max_size=40),
    st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=40).map(str.encode),
)


def json_values() -> "st.SearchStrategy[Any]":
    """Return a strategy of JSON values that Python literals can express."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=30),
        st.sampled_from(ADDRESSES),
        st.sampled_from([text.decode("utf-8", "replace") for text in NASTY_TEXTS]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
        max_leaves=9,
    )
