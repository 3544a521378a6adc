"""Tests of resuming.py: how a new process finds out from the stored events where a session continues."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, position
from pipeline.documents.stored import pack_chunk
from pipeline.events import (
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    Warned,
    WordsCommitted,
)
from pipeline.timed_events import TimedEvent
from pipeline.words import Chunk, Segment, Word
from server.live.event_rendering import EventRenderer, LogBatch
from server.live.resuming import (
    LEAD,
    LONGEST_REPEATED,
    MARGIN,
    REPEATED,
    SessionPast,
    read_past,
    resume_position,
)
from server.model.events import Event

AT_S = 1_795_176_000.25
WORDS = (Word("Guten", 1600, 8000, 0.9), Word("日", 8000, 16_000, 0.51239, spaced=False))


def timed_event(event, *lags_s: float) -> TimedEvent:
    return TimedEvent(event, AT_S, lags_s)


def render(*events: TimedEvent, words: int = 0, segments: int = 0) -> LogBatch:
    return EventRenderer(words=words, segments=segments).batch(events)


def bodies(batch: LogBatch) -> list[tuple[str, dict[str, object]]]:
    return [(event.type, orjson.loads(event.body)) for event in batch.events]


def test_words_are_told_with_their_place_their_times_and_their_lag():
    batch = render(timed_event(WordsCommitted(WORDS, 0, 0), 0.5, 0.4321), words=4, segments=2)
    assert bodies(batch) == [
        ("word", {"index": 4, "segment": 2, "word": "Guten", "start": 0.1, "end": 0.5, "probability": 0.9,
                  "emitted_at": "2026-11-20T12:00:00.250Z", "lag_ms": 500}),
        ("word", {"index": 5, "segment": 2, "word": "日", "start": 0.5, "end": 1.0, "probability": 0.5124,
                  "spaced": False, "emitted_at": "2026-11-20T12:00:00.250Z", "lag_ms": 432}),
    ]  # fmt: skip
    assert batch.lags_s == [0.5, 0.4321]


def test_a_session_that_goes_on_counts_words_and_segments_from_where_the_one_before_stopped():
    events = [
        timed_event(SpeechStarted(800)),
        timed_event(WordsCommitted(WORDS, 0, 0), 0.1, 0.1),
        timed_event(SegmentClosed(0, Segment(WORDS, -0.1, 0.0), forced=True)),
        timed_event(SpeechEnded(16_000)),
    ]
    seen = bodies(render(*events, words=7, segments=3))
    assert seen[0] == ("speech.started", {"at": 0.05})
    assert [(body["index"], body["segment"]) for kind, body in seen if kind == "word"] == [(7, 3), (8, 3)]
    assert seen[3][1] == seen[3][1] | {"id": 3, "start": 0.1, "end": 1.0, "forced": True}
    assert seen[4] == ("speech.ended", {"at": 1.0})


def test_language_and_warnings_are_events_too():
    batch = render(timed_event(LanguageDetected("de", 0.98765)), timed_event(Warned("late", "the model is slow")))
    assert bodies(batch) == [
        ("language", {"language": "de", "probability": 0.9877}),
        ("warning", {"code": "late", "message": "the model is slow"}),
    ]


def test_readers_are_warned_once_when_more_than_three_seconds_may_be_in_another_language():
    words = [Word("bueno", position(at), position(at + 2), 0.9, language="es") for at in (0, 5, 10, 15)]
    closed = [
        timed_event(SegmentClosed(number, Segment((word,), -0.1, 0.0, language_probability=probability)))
        for number, (word, probability) in enumerate(zip(words, (0.9, 0.3, 0.01, 0.01), strict=True))
    ]
    seen = bodies(render(*closed))
    assert [kind for kind, _ in seen] == ["segment", "segment", "segment", "warning", "segment"]
    assert seen[3][1]["code"] == "language_doubtful"


def test_only_the_newest_partial_that_no_word_has_overtaken_is_shown():
    first, second = timed_event(Partial(WORDS[:1], 0)), timed_event(Partial(WORDS, 0))
    committed = timed_event(WordsCommitted(WORDS, 0, 0), 0.1, 0.1)
    assert orjson.loads(render(first, second).shown[None] or b"") == {
        "segment": 0, "text": "Guten日", "start": 0.1, "end": 1.0,
    }  # fmt: skip
    assert render(first, committed).shown == {None: None}
    assert render(committed, first).shown[None] is not None
    nothing = render(timed_event(Partial((), 3))).shown[None]
    assert orjson.loads(nothing or b"") == {"segment": 0, "text": "", "start": None, "end": None}


@st.composite
def stories(draw: st.DrawFn) -> list[list[TimedEvent]]:
    """Make what a session reports, in batches, from its first word to any later point."""
    at, count, batches = 0, 0, []
    for number, sizes in enumerate(draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=5))):
        segment: list[Word] = []
        for size in sizes:
            words = []
            for _ in range(size):
                start = at + draw(st.integers(0, 5000))
                at = start + draw(st.integers(1, 5000))
                words.append(Word(f"w{count + len(words)}", start, at, 0.5, spaced=draw(st.booleans())))
            batches.append([timed_event(WordsCommitted(tuple(words), count, number), *([0.1] * size))])
            count += size
            segment += words
        closing = timed_event(SegmentClosed(number, Segment(tuple(segment), -0.2, 0.1)))
        if draw(st.booleans()):
            batches[-1].append(closing)
        else:
            batches.append([closing])
    return batches[: draw(st.integers(0, len(batches)))]


def store(batches: Sequence[Sequence[TimedEvent]], before: SessionPast) -> tuple[list[bytes], list[Event]]:
    """Return what is stored of *batches*, chunks and log, after what was stored before."""
    chunks, log = list(before.chunks), []
    renderer = EventRenderer(words=before.words, segments=before.segments)
    for batch in batches:
        said = renderer.batch(batch)
        log += [Event("job", len(log) + 1, 0, event.type, event.body) for event in said.events]
        if said.segments:
            start = chunks[-1].end if chunks else 0
            end = said.segments[-1].end
            chunks.append(Chunk(len(chunks), 0, start, end, tuple(said.segments), "en", 0.9))
    return [pack_chunk(chunk) for chunk in chunks], log


def later(batches: Sequence[Sequence[TimedEvent]], at: int) -> list[list[TimedEvent]]:
    """Return what a session reports if everything is said *at* samples later."""

    def moved(words: Sequence[Word]) -> tuple[Word, ...]:
        return tuple(word.at(word.start + at, word.end + at) for word in words)

    def move(event: WordsCommitted | SegmentClosed) -> WordsCommitted | SegmentClosed:
        if isinstance(event, WordsCommitted):
            return replace(event, words=moved(event.words))
        return replace(event, segment=replace(event.segment, words=moved(event.segment.words)))

    return [[replace(one, event=move(one.event)) for one in batch] for batch in batches]


def in_windows(at_s: float) -> int:
    """Return the first border of windows at or after a time."""
    return -(-position(at_s) // WINDOW) * WINDOW


def words_of(before: SessionPast) -> list[Word]:
    return [word for chunk in before.chunks for segment in chunk.segments for word in segment.words]


def open_words(before: SessionPast) -> tuple[Word, ...]:
    return before.open[0].words if before.open else ()


@given(stories(), stories())
def test_a_session_goes_on_behind_every_word_that_was_told_and_repeats_none(first, second):
    chunks, log = store(first, SessionPast())
    before = read_past(chunks, log)
    said = [
        word for batch in first for one in batch if isinstance(one.event, WordsCommitted) for word in one.event.words
    ]
    assert [word.text for word in (*words_of(before), *open_words(before))] == [word.text for word in said]
    assert before.words == len(said)
    closed = [one for batch in first for one in batch if isinstance(one.event, SegmentClosed)]
    assert before.segments == len(closed) + bool(before.open)
    end = said[-1].end if said else 0
    assert abs(before.settled_position() - end) <= RATE / 1000  # the log is in milliseconds
    assert before.resumes_at < max(1, before.settled_position() - LEAD + WINDOW)
    assert before.resumes_at >= before.settled_position() - LONGEST_REPEATED - MARGIN - RATE / 1000
    assert before.resumes_at % WINDOW == 0
    acknowledged = resume_position(end, said[-REPEATED:])
    assert acknowledged <= before.resumes_at <= acknowledged + WINDOW, "a writer still has what is asked for"
    tail = said[len(said) - len(open_words(before)) :]
    assert all(abs(a.end - b.end) <= RATE / 1000 for a, b in zip(open_words(before), tail, strict=True))

    # The open words become a segment, and the next process may die as well.
    for still_open in before.open:
        segment = still_open.closed
        chunk = Chunk(len(before.chunks), 0, before.end(), segment.end, (segment,), "en", 0.9)
        after = SessionPast((*before.chunks, chunk))
        assert (after.resumes_at, after.words, after.segments) == (before.resumes_at, before.words, before.segments)
        assert segment.avg_logprob <= 0
        before = SessionPast((*before.chunks, chunk))
    # A session that goes on reports no word before what is settled.
    chunks, more = store(later(second, before.settled_position()), before)
    again = read_past(chunks, [*log, *more])
    told_then = [one.event for batch in second for one in batch if isinstance(one.event, WordsCommitted)]
    assert again.words == len(said) + sum(len(event.words) for event in told_then)
    starts = [word.start for word in (*words_of(again), *open_words(again))]
    assert starts == sorted(starts)


def test_the_last_two_words_are_recognised_again_whole_unless_they_are_long_ago_or_hidden():
    """A model takes the rest of a word for the word that comes after a pause, which would then be lost."""
    fellow, americans = (
        Word("fellow", position(1.4), position(1.8), 0.9),
        Word("Americans.", position(1.8), 35_000, 0.9),
    )
    assert resume_position(35_000, [fellow, americans]) == in_windows(1.3)
    assert resume_position(35_000, [replace(fellow, redacted=True), americans]) == in_windows(1.8)
    assert resume_position(35_000, [fellow, replace(americans, redacted=True)]) == in_windows(1.8875), "LEAD alone"
    assert resume_position(position(9), [fellow, americans]) == in_windows(8.7), "after long silence"
    assert resume_position(0, []) == 0


def test_a_word_that_was_written_otherwise_may_be_heard_again_as_it_was_said():
    word = Word("Kubernetes", 0, position(0.8), 0.9, heard="cooper netties")
    chunk = Chunk(0, 0, 0, word.end, (Segment((word,), -0.1, 0.0),), "en", 1.0)
    assert [word.text for word in SessionPast((chunk,)).starts[None].said][-1:] == ["netties"]
