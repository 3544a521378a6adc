"""Tests of ids.py: ids sort by time and cannot be guessed."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.model.ids import ALPHABET, CHANCE_BYTES, LATEST_MS, Prefix, new_id, ulid

MS = st.integers(0, LATEST_MS)
CHANCE = st.lists(st.integers(0, 31), min_size=CHANCE_BYTES, max_size=CHANCE_BYTES).map(bytes)


def test_the_known_answers_of_the_ulid_format():
    assert ulid(0, bytes(16)) == "0" * 26
    assert ulid(LATEST_MS, b"\xff" * 16) == "7" + "Z" * 25
    assert ulid(1_469_918_176_385, bytes(16))[:10] == "01ARYZ6S41"  # the example of the specification


def test_a_job_id_is_of_the_shape_that_the_schema_wants():
    assert re.fullmatch("job_[0-9A-Za-z]{20,40}", new_id(Prefix.JOB, ms=1_795_174_200_000, chance=bytes(16)))


@given(st.sampled_from(Prefix), MS, CHANCE)
def test_every_id_made_is_one(prefix, ms, chance):
    assert re.fullmatch(f"{prefix}_[0-7][{ALPHABET}]{{25}}", new_id(prefix, ms=ms, chance=chance))


@given(MS, MS, CHANCE, CHANCE)
def test_ids_sort_as_their_instants_do(one, other, chance, other_chance):
    made = sorted([(one, ulid(one, chance)), (other, ulid(other, other_chance))])
    assert one == other or made[0][1] < made[1][1]


@given(MS, CHANCE, MS, CHANCE)
def test_different_chance_or_time_gives_a_different_id(ms, chance, other_ms, other_chance):
    assert (ulid(ms, chance) == ulid(other_ms, other_chance)) == ((ms, chance) == (other_ms, other_chance))


def test_every_bit_of_chance_counts_as_often():
    """Each character comes of 8 of the 256 bytes, so 16 random bytes give 80 bits."""
    made = Counter(ulid(0, bytes([byte, *bytes(15)]))[10] for byte in range(256))
    assert made == dict.fromkeys(ALPHABET, 8)


@pytest.mark.parametrize(
    ("ms", "chance"), [(-1, bytes(16)), (LATEST_MS + 1, bytes(16)), (0, bytes(15)), (0, bytes(17))]
)
def test_what_does_not_fit_is_refused(ms, chance):
    with pytest.raises(ValueError, match="a ULID is made of"):
        ulid(ms, chance)
