"""Tests of reporting.py: what a session decides becomes entries of its timeline, and the newest partials are shown."""

from dataclasses import replace

import orjson

from pipeline.audio import RATE, position
from pipeline.events import (
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    TimedEvent,
    Warned,
    WordsCommitted,
)
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import SpeakerOptions
from pipeline.timeline import (
    DecidedUpTo,
    FinalizedUpTo,
    LanguageFound,
    Notice,
    SegmentEnd,
    SpeechEnd,
    SpeechStart,
    StoredWord,
    Words,
)
from pipeline.transcription import Transcription
from pipeline.words import Segment, Word
from tests.pipeline.conversations import conversation, models
from tests.server.session_registries import committed, order, report

AT_S = 1_795_176_000.25
WORDS = (Word("Guten", 1600, 8000, 0.9), Word("日", 8000, 16_000, 0.51239, spaced=False))
CLOSED = SegmentClosed(0, Segment(WORDS, -0.1, 0.0))


def timed(event, *lags_s: float, channel: int | None = None) -> TimedEvent:
    return TimedEvent(event, AT_S, lags_s, channel)


async def test_words_and_segments_are_numbered_from_where_the_session_before_stopped():
    past = Transcription.of([committed(6, 2, Word("so", 0, 800, 0.9))])
    past.add(past.place.open[2].end())
    entries, reporter, _ = await report([[timed(WordsCommitted(WORDS, 0, 0), 0.5, 0.4321), timed(CLOSED)]], past)
    words, end = entries
    said = tuple(StoredWord.of(word, lag_ms=lag) for word, lag in zip(WORDS, (500, 432), strict=True))
    assert words == Words(7, 3, said, emitted_at=1_795_176_000_250)
    assert (end.segment, end.text, end.forced) == (3, "Guten日", False)
    assert reporter.reached == 16_000


async def test_words_that_end_after_the_audio_settle_no_more_than_the_audio():
    (words,), reporter, _ = await report([[timed(WordsCommitted(WORDS, 0, 0), 0.1, 0.1)]], received=15_000)
    assert (words.audio_end, reporter.reached) == (15_000, 15_000)


async def test_all_else_that_happens_is_an_entry_too():
    happened = [
        timed(SpeechStarted(800)),
        timed(LanguageDetected("de", 0.98765)),
        timed(Warned("late", "the model is slow")),
        timed(SpeechEnded(16_000)),
        timed(Finalized(16_384)),
    ]
    entries, reporter, _ = await report([happened])
    assert entries == [
        SpeechStart(800),
        LanguageFound("de", 0.98765),
        Notice("late", "the model is slow"),
        SpeechEnd(16_000),
        FinalizedUpTo(16_384),
    ]
    assert (await reporter.has_finalized(1.024), [*reporter.warnings]) == (True, ["late"])


async def test_readers_are_warned_once_when_more_than_three_seconds_may_be_in_another_language():
    words = [Word("bueno", position(at), position(at + 2), 0.9, language="es") for at in (0, 5, 10, 15)]
    closed = [
        timed(SegmentClosed(number, Segment((word,), -0.1, 0.0, language_probability=probability)))
        for number, (word, probability) in enumerate(zip(words, (0.9, 0.3, 0.01, 0.01), strict=True))
    ]
    entries, reporter, _ = await report([closed])
    assert [type(entry) for entry in entries] == [SegmentEnd, SegmentEnd, SegmentEnd, Notice, SegmentEnd]
    assert entries[3].code == "language_doubtful"
    assert reporter.warnings == {}, "the record says at the end how much is in doubt"


async def test_only_the_newest_partial_that_no_word_has_overtaken_is_shown():
    first, second = timed(Partial(WORDS[:1], 0)), timed(Partial(WORDS, 0))
    words = timed(WordsCommitted(WORDS, 0, 0), 0.1, 0.1)

    async def shown(*happened: TimedEvent) -> list[object]:
        _, _, partials = await report([happened])
        return [orjson.loads(partial.body) for partial in partials.newest("job")]

    assert await shown(first, second) == [{"segment": 0, "text": "Guten日", "start": 0.1, "end": 1.0}]
    assert await shown(first, words) == []
    assert len(await shown(words, first)) == 1
    assert await shown(timed(Partial((), 3))) == [{"segment": 0, "text": "", "start": None, "end": None}]


async def test_a_silence_is_stored_with_a_segment_or_when_it_is_long_but_not_while_words_are_open():
    _, reporter, _ = await report([[timed(WordsCommitted(WORDS, 0, 0), 0.1, 0.1)]])
    stored = reporter._held.entries
    await reporter.store_long_silence(lambda: {None: position(90)}, received=position(90))
    assert len(stored) == 1, "its segment has not ended"
    await reporter.write([timed(CLOSED)], received=position(20), decided={None: position(5)})
    assert len(stored) == 2, "four seconds are too short"
    await reporter.store_long_silence(lambda: {None: position(30)}, received=position(90))
    assert len(stored) == 2
    await reporter.store_long_silence(lambda: {None: position(31)}, received=position(90))
    assert stored[2:] == [DecidedUpTo(position(31))]
    assert reporter.reached == position(31)


async def test_a_segment_has_the_speaker_to_whom_its_words_were_corrected():
    talk, (_, (_, start, end)) = conversation("flite/rms_0.flac", "flite/slt_1.flac")
    speakers = LiveSpeakers(models(), SpeakerOptions(), {None: 0})
    begin, stop = round(start * RATE), round(end * RATE)
    said = [Word("w", at, at + RATE // 2, 1.0) for at in range(begin, stop - RATE // 2, RATE // 2)]
    entries, reporter, _ = await report([], speakers=speakers, wanted=replace(order(), diarize=True))
    heard = 0
    for number, word in enumerate(said):
        speakers.listen({None: talk[heard : word.end]})
        heard = word.end
        await reporter.write([TimedEvent(WordsCommitted((word,), number, 0), 0.0, (0.0,))], received=heard)
    first = [words.words[0].speaker for words in entries]
    speakers.listen({None: talk[heard:]})
    assert first.count("S1") > len(first) / 2, "the second voice was not known yet"
    await reporter.write([TimedEvent(SegmentClosed(0, Segment(tuple(said), -0.1, 0.1)), 0.0)], received=heard)
    assert entries[-1].speaker == "S2"
