"""Tests of transcription.py: where a job goes on, and what was said, from the entries of its timeline."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.documents.assemble import assemble
from pipeline.timeline import (
    DamagedEntry,
    DecidedUpTo,
    Entry,
    LanguageFound,
    Notice,
    SegmentEnd,
    SpeakersRevised,
    StoredRun,
    StoredWord,
    TurnEnd,
    Words,
    end_of,
    entries_of,
    pack,
    unpack,
)
from pipeline.transcription import LAST_WORDS, Continuation, Transcription
from pipeline.words import Chunk, Segment, SpeakerTurn, Word, join_words


@st.composite
def chunks(draw: st.DrawFn) -> list[Chunk]:
    """Draw the finished parts of a file with one channel."""
    made: list[Chunk] = []
    at = jobs = 0
    for index in range(draw(st.integers(0, 4))):
        start, segments = at, []
        for _ in range(draw(st.integers(0, 3))):
            words = []
            for _ in range(draw(st.integers(1, 4))):
                begin = at + draw(st.integers(0, 9000))
                at = begin + draw(st.integers(1, 9000))
                words.append(Word(f"w{begin}", begin, at, draw(st.floats(0, 1)), draw(st.booleans())))
            segments.append(Segment(tuple(words), -draw(st.floats(0, 5)), draw(st.floats(0, 1))))
        at += draw(st.integers(0, 9000))
        jobs += draw(st.integers(0, 2))
        made.append(Chunk(index, jobs, start, at, tuple(segments), "en", draw(st.floats(0, 1)), notes=("a: b",)))
    return made


def entries(parts: list[Chunk]) -> list[Entry]:
    made: list[Entry] = []
    for part in parts:
        past = Transcription.of(made)
        made += entries_of(part, words=past.place.words, segments=past.place.segments, shown=True)
    return made


@given(chunks())
def test_the_finished_parts_of_a_file_come_back_equal(parts):
    past = Transcription.of([unpack(pack(entry)) for entry in entries(parts)])
    assert past.chunks() == parts
    assert past.place.channel(None).jobs_done == (parts[-1].jobs_done if parts else 0)
    assert past.place.words == sum(len(segment.words) for part in parts for segment in part.segments)


def test_the_turns_of_speakers_belong_to_the_last_part_of_a_file():
    segment = Segment((Word("so", 0, 8000, 0.9),), -0.1, 0.0)
    turns = (SpeakerTurn("S1", 0, 9000), SpeakerTurn("Anna", 9000, 9500, 1))
    parts = [Chunk(0, 1, 0, 16_000, (segment,), "en", 0.9, turns=turns)]
    assert Transcription.of(entries(parts)).chunks() == parts


def said(first: int, segment: int, *words: Word, channel: int | None = None, speaker: str | None = None) -> Words:
    return Words(first, segment, tuple(StoredWord.of(word, lag_ms=500, speaker=speaker) for word in words), channel)


SO, MY, FELLOW = (Word(text, at * 8000, at * 8000 + 8000, 0.9) for at, text in enumerate(("so", "my", "fellow")))


def test_a_session_goes_on_after_its_last_word_with_its_open_segment():
    past = Transcription.of(
        [LanguageFound("de", 0.8), said(0, 0, SO), end_of(0, Segment((SO,), -0.1, 0.2), forced=False), said(1, 1, MY)]
    )
    state = past.place.channel(None)
    assert (state.settled, state.language, state.last_words) == (MY.end, "de", [SO, MY])
    assert (past.place.words, past.place.segments, past.place.begun) == (2, 2, True)
    (still_open,) = past.place.open.values()
    ended = still_open.end()
    assert (ended.segment, ended.text, ended.forced, ended.speaker) == (1, "my", True, None)
    past.add(ended)
    transcript = assemble(
        past.chunks(duration=40_000, channels=[None]), duration=40_000, engine="e", model_of=lambda _: "m"
    )
    assert (transcript.text, transcript.duration, transcript.language) == ("so my", 40_000, "de")


def test_words_end_where_the_audio_does_and_silence_moves_on():
    past = Continuation()
    past.add(replace_audio_end(said(0, 0, SO), 7000))
    assert past.channel(None).settled == 7000
    past.add(end_of(0, Segment((SO,), -0.1, 0.2), forced=False))
    past.add(DecidedUpTo(90_000))
    assert past.channel(None).settled == 90_000


def replace_audio_end(entry: Words, end: int) -> Words:
    return Words(entry.first, entry.segment, entry.words, audio_end=end)


def test_channels_go_on_each_after_its_own_words_and_share_their_numbers():
    past = Transcription.of([said(0, 0, SO, channel=0), said(1, 1, MY, channel=1), said(2, 0, FELLOW, channel=0)])
    assert {number: state.settled for number, state in past.place.channels.items()} == {0: FELLOW.end, 1: MY.end}
    assert [join_words(one.words) for one in past.place.open.values()] == ["so fellow", "my"]
    assert past.said == [(SO, 0), (MY, 1), (FELLOW, 0)]


def test_a_revision_gives_earlier_words_other_speakers_and_the_open_segment_that_of_most():
    past = Transcription.of([said(0, 0, SO, speaker=""), said(1, 0, MY, FELLOW, speaker="S1")])
    assert past.labels == [None, "S1", "S1"]
    past.add(SpeakersRevised((StoredRun(0, 1, "S2"),)))
    assert past.labels == ["S2", "S2", "S1"]
    assert past.place.open[0].end(past.labels).speaker == "S2"


def test_a_turn_is_open_from_its_words_to_its_end():
    past = Continuation()
    past.add(said(0, 0, SO))
    assert past.channel(None).open_turn == SO.end
    past.add(TurnEnd(SO.end, 0.9))
    assert past.channel(None).open_turn is None


def test_the_first_message_of_each_warning_is_known():
    past = Transcription.of([Notice("late", "by 3 s"), Notice("late", "by 9 s"), Notice("quiet", "speak up")])
    assert past.notices == {"late": "by 3 s", "quiet": "speak up"}


def test_a_running_session_keeps_only_its_last_words():
    past = Continuation()
    for number in range(1000):
        word = replace(SO, start=number * 8000, end=number * 8000 + 8000)
        past.add(said(number, number, word))
        past.add(end_of(number, Segment((word,), -0.1, 0.2), forced=False))
    assert len(past.channel(None).last_words) == LAST_WORDS
    assert not past.open


def test_the_end_of_a_segment_without_words_is_a_damaged_timeline():
    with pytest.raises(DamagedEntry, match="segment 3"):
        Transcription.of([SegmentEnd(3, 0, 1, "a", -0.1, 0.0)])
