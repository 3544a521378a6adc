"""Where a new process goes on with a session whose server died."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import WINDOW, position
from pipeline.events import SegmentClosed, TimedEvent, WordsCommitted
from pipeline.timeline import pack, unpack
from pipeline.transcription import ChannelState, Transcription
from pipeline.words import Segment, Word
from server.live.reporting import LEAD, LONGEST_REPEATED, MARGIN, resume_position, resumes_at, starts
from tests.server.session_registries import after, order, report

AT_S = 1_795_176_000.25


def timed_event(event, *lags_s: float) -> TimedEvent:
    return TimedEvent(event, AT_S, lags_s)


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


def words_in(batches: list[list[TimedEvent]]) -> list[Word]:
    return [
        word for batch in batches for one in batch if isinstance(one.event, WordsCommitted) for word in one.event.words
    ]


@given(stories(), stories())
async def test_a_session_goes_on_behind_every_word_that_was_reported_and_repeats_none(first, second):
    entries, reporter, _ = await report(first)
    past = Transcription.of([unpack(pack(entry)) for entry in entries])
    said = words_in(first)
    assert [word for word, _ in past.said] == said
    assert past.place.words == len(said)
    closed = [one for batch in first for one in batch if isinstance(one.event, SegmentClosed)]
    assert past.place.segments == len(closed) + bool(past.place.open)
    end = said[-1].end if said else 0
    assert past.place.channel(None).settled == end
    begin = resumes_at(past.place, order())
    assert begin == reporter.resume_position, "a writer still has what is asked for"
    assert max(0, end - LONGEST_REPEATED - MARGIN) <= begin <= max(0, end - LEAD + WINDOW)

    # The open words become a segment, and the next process may die as well.
    for segment in [*past.place.open.values()]:
        past.add(segment.end())
    assert resumes_at(past.place, order()) == begin
    moved = [
        [replace(one, event=shifted(one.event, end)) for one in batch] for batch in second
    ]  # a session that continues reports no word before that
    more, _, _ = await report(moved, Transcription.of([*entries, *past_ends(entries)]))
    again = Transcription.of([*entries, *past_ends(entries), *more])
    assert [word for word, _ in again.said] == said + words_in(moved)
    assert again.place.words == len(again.said)
    starts_of_words = [word.start for word, _ in again.said]
    assert starts_of_words == sorted(starts_of_words)


def past_ends(entries: list) -> list:
    """The entries that ended the segments which *entries* left open."""
    return [segment.end() for segment in Transcription.of(entries).place.open.values()]


def shifted(event, by: int):
    def later(words: tuple[Word, ...]) -> tuple[Word, ...]:
        return tuple(word.at(word.start + by, word.end + by) for word in words)

    if isinstance(event, WordsCommitted):
        return replace(event, words=later(event.words))
    return replace(event, segment=replace(event.segment, words=later(event.segment.words)))


def test_the_last_two_words_are_recognised_again_whole_unless_they_are_long_ago_or_hidden():
    """A model takes the rest of a word for the word that comes after a pause, which would then be lost."""
    fellow, americans = (
        Word("fellow", position(1.4), position(1.8), 0.9),
        Word("Americans.", position(1.8), 35_000, 0.9),
    )

    def resumed(settled: int, *words: Word) -> int:
        return resume_position(ChannelState(settled, [*words]))

    def windows(at: int) -> int:
        return -(-at // WINDOW) * WINDOW

    assert resumed(35_000, fellow, americans) == windows(position(1.3))
    assert resumed(35_000, replace(fellow, redacted=True), americans) == windows(position(1.8))
    assert resumed(35_000, fellow, replace(americans, redacted=True)) == windows(35_000 - LEAD), "LEAD alone"
    assert resumed(position(9), fellow, americans) == windows(position(9) - LEAD), "after long silence"
    assert resumed(0) == 0


def test_a_word_that_was_written_otherwise_may_be_heard_again_as_it_was_said():
    word = Word("Kubernetes", 0, position(0.8), 0.9, heard="cooper netties")
    start = starts(after(word), order())[None]
    assert [one.text for one in start.said][-1:] == ["netties"]
    assert (start.settled, start.written) == (position(0.8), (word,))
