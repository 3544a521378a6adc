"""Tests of timeline.py: an entry comes back equal to the last bit, or there is a clear error."""

from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from pipeline.timeline import (
    DamagedEntry,
    DecidedUpTo,
    Entry,
    SegmentEnd,
    StoredWord,
    Words,
    entries_of,
    pack,
    unpack,
)
from pipeline.words import Chunk, Segment, Word

PLAIN = {
    int: st.integers(0, 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    bool: st.booleans(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Draw values of a field's type, or of a kind of entry."""
    if get_origin(kind) is Annotated:
        return values(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), min_size=1, max_size=3).map(tuple)
    if isinstance(kind, UnionType):
        return st.one_of(*map(values, get_args(kind)))
    return PLAIN[kind] if kind in PLAIN else st.builds(kind, *(values(one.type) for one in fields(kind)))


HOLA = Words(7, 2, (StoredWord("Hola.", 490_000, 500_000, 0.1 + 0.2, 812),), emitted_at=1_795_176_000_250)


@settings(max_examples=300)
@given(st.one_of(*map(values, get_args(Entry))))
def test_every_entry_comes_back_equal(entry):
    assert unpack(pack(entry)) == entry


def test_the_stored_form_is_readable_short_and_stable():
    assert pack(HOLA) == b'["w",7,2,[["Hola.",490000,500000,0.30000000000000004,812]],null,1795176000250]'
    assert pack(DecidedUpTo(480_000)) == b'["d",480000]'


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_damaged(data):
    with pytest.raises(DamagedEntry):
        unpack(data)


@given(st.integers(0, len(pack(HOLA)) - 1))
def test_cut_off_bytes_are_damaged(length):
    with pytest.raises(DamagedEntry):
        unpack(pack(HOLA)[:length])


@pytest.mark.parametrize(
    "data",
    [b'["w",7,2,[]]', b'["w",7,2,[["a",-1,2,0.5]]]', b'["w",7,2,[["a",1.5,2,0.5]]]', b'["d",true]', b'["?",1]', b"[]"],
)
def test_a_value_of_the_wrong_kind_is_damaged(data):
    with pytest.raises(DamagedEntry):
        unpack(data)


def test_a_damage_report_never_quotes_what_was_said():
    with pytest.raises(DamagedEntry) as caught:
        unpack(pack(HOLA).replace(b"490000", b'"secret words"'))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="not finite"):
        pack(Words(0, 0, (StoredWord("a", 0, 1, value),)))
    with pytest.raises(ValueError, match="not finite"):
        pack(SegmentEnd(0, 0, 1, "a", value, 0.0))


def test_a_finished_part_of_a_file_is_its_words_its_segments_and_a_mark():
    segment = Segment((Word("so", 0, 8000, 0.9), Word("my", 8000, 16_000, 0.8)), -0.1, 0.0)
    chunk = Chunk(3, 5, 0, 20_000, (segment,), "en", 0.97, notes=("audio_truncated",))
    assert entries_of(chunk, words=10, segments=4, shown=False) == [
        Words(10, 4, (StoredWord("so", 0, 8000, 0.9), StoredWord("my", 8000, 16_000, 0.8)), shown=False),
        SegmentEnd(4, 0, 16_000, "so my", -0.1, 0.0),
        DecidedUpTo(20_000, None, 5, "en", 0.97, ("audio_truncated",)),
    ]
