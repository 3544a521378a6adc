"""Tests of assemble.py: a Transcript has all chunks, each once, and nothing outside the recording."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.documents.assemble import GRID, BrokenSequence, assemble
from pipeline.words import Chunk, Segment, Transcript, Word


def segment(*spans: tuple[int, int]) -> Segment:
    return Segment(tuple(Word(f"w{start}", start, end, 0.5) for start, end in spans), -0.1, 0.0)


def chunk(index: int, start: int, end: int, *segments: Segment, language: str | None = "en", **more) -> Chunk:
    return Chunk(index, index + 1, start, end, segments, language, 0.9 if language else None, **more)


def whole(chunks: list[Chunk], duration: int) -> Transcript:
    return assemble(chunks, duration=duration, engine="whisper", model_of=lambda _: "base")


def test_segments_follow_each_other_with_all_their_words():
    first, second, third = segment((0, 10), (10, 30)), segment((40, 50)), segment((100, 120))
    transcript = whole([chunk(0, 0, 90, first, second), chunk(1, 90, 130, third)], 130)
    assert transcript == Transcript((first, second, third), 130, "en", 0.9, "whisper", "base")


def test_nothing_heard_is_a_transcript_without_words():
    assert whole([chunk(0, 0, 90, language=None)], 90) == Transcript((), 90, None, None, "whisper", "base")
    assert whole([], 0) == Transcript((), 0, None, None, "whisper", "base")


def test_the_language_is_that_of_the_last_chunk_that_knows_one():
    chunks = [chunk(0, 0, 10, language=None), chunk(1, 10, 20, language="es"), chunk(2, 20, 30, language=None)]
    assert (whole(chunks, 30).language, whole(chunks, 30).language_probability) == ("es", 0.9)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [chunk(0, 0, 50)],
        [chunk(0, 10, 100)],
        [chunk(0, 0, 50), chunk(1, 60, 100)],
        [chunk(0, 0, 50), chunk(1, 40, 100)],
        [chunk(0, 0, 50), chunk(2, 50, 100)],
        [chunk(1, 0, 50), chunk(0, 50, 100)],
        [chunk(0, 0, 100), chunk(0, 0, 100)],
        [chunk(0, 0, 150), chunk(1, 150, 100)],
        [chunk(0, 0, 101)],
    ],
    ids=["none", "tail", "head", "gap", "overlap", "number", "order", "twice", "backwards", "past the end"],
)
def test_chunks_that_are_not_the_whole_recording_are_refused(chunks):
    with pytest.raises(BrokenSequence):
        whole(chunks, 100)


def test_words_are_clipped_to_the_duration_and_only_there():
    duration = 10 * RATE
    inside = segment((0, 100), (200, 150_000))
    across = segment((159_000, 159_500), (159_500, 160_200), (160_100, 160_300))
    transcript = whole([chunk(0, 0, duration, inside, across)], duration)
    assert transcript.segments[0] is inside
    assert [(word.start, word.end) for word in transcript.segments[1].words] == [
        (159_000, 159_500),
        (159_500, 160_000),
        (160_000, 160_000),
    ]
    assert transcript.text == " ".join(word.text for word in (*inside.words, *across.words))


def test_a_word_on_another_clock_is_refused():
    with pytest.raises(BrokenSequence, match="of a recording of"):
        whole([chunk(0, 0, 100, segment((100 + GRID + 1, 100 + GRID + 2)))], 100)


@pytest.mark.parametrize("spans", [[(50, 60), (40, 70)], [(50, 40)]])
def test_words_that_go_back_in_time_are_refused(spans):
    with pytest.raises(BrokenSequence, match="a word at"):
        whole([chunk(0, 0, 100, segment(*spans))], 100)


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=30).map(sorted), st.data())
def test_any_cut_into_chunks_gives_the_same_transcript(starts, data):
    duration = starts[-1] + 1000
    segments = [segment((start, start + 500)) for start in starts]
    cuts = sorted(data.draw(st.sets(st.integers(0, duration), max_size=5)) | {0, duration})
    chunks = [
        chunk(index, start, end, *(s for s in segments if start <= s.start < end))
        for index, (start, end) in enumerate(pairwise(cuts))
    ]
    assert whole(chunks, duration) == whole([chunk(0, 0, duration, *segments)], duration)
