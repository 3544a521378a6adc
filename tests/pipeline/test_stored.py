"""Tests of stored.py: a checkpoint gives back what was written, or a clear error."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.documents.stored import DamagedChunk, pack_chunk, unpack_chunk
from pipeline.words import Chunk, Segment, Word

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
POSITION = st.integers(0, 2**53)
PROBABILITY = st.floats(0, 1)
WORD = st.builds(Word, TEXT, POSITION, POSITION, PROBABILITY, st.booleans())
SEGMENT = st.builds(
    Segment, st.lists(WORD, min_size=1, max_size=5).map(tuple), st.floats(-1e9, 0, allow_nan=False), PROBABILITY
)
CHUNK = st.builds(
    Chunk,
    index=st.integers(0, 9999),
    jobs_done=st.integers(0, 9999),
    start=POSITION,
    end=POSITION,
    segments=st.lists(SEGMENT, max_size=4).map(tuple),
    language=st.none() | TEXT,
    language_probability=st.none() | PROBABILITY,
    notes=st.lists(TEXT, max_size=3).map(tuple),
)
PLAIN = Chunk(
    index=1,
    jobs_done=3,
    start=480_000,
    end=960_000,
    segments=(Segment((Word("Hola.", 490_000, 500_000, 0.1 + 0.2, spaced=False),), -0.3, 0.02),),
    language="es",
    language_probability=0.9,
    notes=("frames_skipped",),
)


@settings(max_examples=200)
@given(CHUNK)
def test_a_chunk_comes_back_equal(chunk):
    assert unpack_chunk(pack_chunk(chunk)) == chunk


def test_the_stored_form_is_readable_and_stable():
    assert pack_chunk(PLAIN) == (
        b'{"version":1,"index":1,"jobs_done":3,"start":480000,"end":960000,"language":"es",'
        b'"language_probability":0.9,"notes":["frames_skipped"],"segments":[{"avg_logprob":-0.3,'
        b'"no_speech_prob":0.02,"words":[["Hola.",490000,500000,0.30000000000000004,false]]}]}'
    )


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_damaged(data):
    with pytest.raises(DamagedChunk):
        unpack_chunk(data)


@given(st.integers(0, len(pack_chunk(PLAIN)) - 1))
def test_cut_off_bytes_are_damaged(length):
    with pytest.raises(DamagedChunk):
        unpack_chunk(pack_chunk(PLAIN)[:length])


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "x", [], {}, [1], {"a": 1}, [[]], [{}]])
@pytest.mark.parametrize(
    "path",
    [
        (),
        ("version",),
        ("index",),
        ("start",),
        ("segments",),
        ("segments", 0),
        ("segments", 0, "avg_logprob"),
        ("segments", 0, "words"),
        ("segments", 0, "words", 0),
        ("segments", 0, "words", 0, 0),
        ("segments", 0, "words", 0, 1),
        ("segments", 0, "words", 0, 3),
        ("segments", 0, "words", 0, 4),
        ("notes", 0),
        ("language",),
    ],
)
def test_a_value_of_the_wrong_kind_is_damaged_or_of_the_right_kind(path, value):
    """If the value happens to be valid at its place, it is read back unchanged."""
    document = [orjson.loads(pack_chunk(PLAIN))]
    place, last = document, 0
    for step in path:
        place, last = place[last], step
    place[last] = value
    try:
        chunk = unpack_chunk(orjson.dumps(document[0]))
    except DamagedChunk:
        return
    assert orjson.loads(pack_chunk(chunk)) == document[0]


def test_a_damage_report_never_quotes_what_was_said():
    data = pack_chunk(PLAIN).replace(b"490000", b'"secret words"')
    with pytest.raises(DamagedChunk) as caught:
        unpack_chunk(data)
    assert "secret" not in str(caught.value)
