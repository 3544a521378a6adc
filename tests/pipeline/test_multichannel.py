"""Tests of MultichannelStream in virtual time: each channel is heard as if it were alone, and all are one stream."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.audio import RATE, WINDOW, position
from pipeline.events import Finalized, Partial, TimedEvent
from pipeline.live_stream import LiveStream, MultichannelStream
from pipeline.recognition.stream_options import StreamStart
from pipeline.words import Word
from tests.pipeline.live_streams import (
    LENGTH,
    SPOKEN,
    ScriptedRecogniser,
    at_once,
    committed_words,
    run_stream,
    run_whole,
    stream_of,
)
from tests.pipeline.scripted_streams import talk

pytestmark = pytest.mark.virtual_time

OTHER = talk(9, start=1.3, each=0.3)


def one_channel(words: tuple[Word, ...], takes_s: float = 0.08, *, at: int = 0) -> LiveStream:
    return stream_of(ScriptedRecogniser(words, takes=[takes_s]), words, StreamStart(at=at))


def frames(length: int, channels: int = 2) -> np.ndarray[Any, Any]:
    return np.zeros((length, channels), np.float32)


async def whole(session: MultichannelStream) -> None:
    for begin in range(0, LENGTH, RATE):
        await session.feed(frames(min(RATE, LENGTH - begin)))


def of_channel(happened: Sequence[TimedEvent], channel: int) -> list[object]:
    """Return the events of a channel without partials, whose number depends on the speed of everything else."""
    return [one.event for one in happened if one.channel == channel and not isinstance(one.event, Partial)]


async def test_each_channel_is_heard_as_if_it_were_alone():
    session = MultichannelStream([one_channel(SPOKEN), one_channel(OTHER)])
    happened = await run_whole(session, whole)
    for channel, words in enumerate((SPOKEN, OTHER)):
        _, alone = await run_stream(at_once(), ScriptedRecogniser(words), words=words)
        expected = [one.event for one in alone if not isinstance(one.event, Partial)]
        assert of_channel(happened, channel) == expected
    statistics = session.statistics()
    assert (statistics.retractions, statistics.counts.words) == (0, len(SPOKEN) + len(OTHER))
    assert {one.channel for one in happened if isinstance(one.event, Partial)} == {0, 1}


async def test_nobody_waits_for_words_because_the_model_is_slow_on_another_channel():
    async def live(session: MultichannelStream) -> None:
        for begin in range(0, LENGTH, RATE // 10):
            await asyncio.sleep(0.1)
            await session.feed(frames(min(RATE // 10, LENGTH - begin)))

    session = MultichannelStream([one_channel(SPOKEN), one_channel(OTHER, takes_s=3.0)])
    happened = await run_whole(session, live)
    lags_s = [lag_s for one in happened if one.channel == 0 for lag_s in one.lags_s]
    assert max(lags_s) < 2
    assert len(lags_s) == len(SPOKEN)


async def test_one_event_tells_that_every_channel_is_decided():
    places: list[int] = []

    async def feed(session: MultichannelStream) -> None:
        await session.feed(frames(position(2)))
        places.append(session.finalize())
        places.append(session.finalize())
        await session.feed(frames(position(6)))
        places.append(session.finalize())

    session = MultichannelStream([one_channel(SPOKEN), one_channel(OTHER, takes_s=1.0)])
    happened = await run_whole(session, feed)
    told = [(n, one.event.at) for n, one in enumerate(happened) if isinstance(one.event, Finalized)]
    assert [at for _, at in told] == [places[0], places[2]]
    for number, at in told:
        later = [word for word in committed_words(happened[number:]) if word.end <= at]
        assert not later, "words before the place came after the event"
        assert happened[number].channel is None


async def test_channels_that_go_on_at_places_of_their_own_say_where_in_the_recording_each_word_was_said():
    first, second = 40 * WINDOW, 200 * WINDOW
    spoken = [tuple(word for word in words if word.start >= at) for words, at in ((OTHER, first), (SPOKEN, second))]

    async def feed(session: MultichannelStream) -> None:
        await session.feed(frames(second // 2 - first))
        assert session.finalize() == second // 2
        await session.feed(frames(LENGTH - second // 2))

    session = MultichannelStream([one_channel(OTHER, at=first), one_channel(SPOKEN, at=second)])
    happened = await run_whole(session, feed)
    for channel, words in enumerate(spoken):
        heard = committed_words([one for one in happened if one.channel == channel])
        assert [word.text for word in heard] == [word.text for word in words]
        apart = [one.start - word.start for one, word in zip(heard, words, strict=True)]
        assert max(map(abs, apart)) <= position(0.1), apart
    assert [(one.channel, one.event.at) for one in happened if isinstance(one.event, Finalized)] == [
        (None, second // 2)
    ]
    assert session.statistics().received == LENGTH


async def test_what_is_decided_counts_silence_and_not_what_is_still_open():
    session = MultichannelStream([one_channel(SPOKEN), one_channel(())])
    seen: list[tuple[int, dict[int | None, int]]] = []

    async def feed(_: MultichannelStream) -> None:
        for _ in range(30):
            await session.feed(frames(RATE // 10))
            await asyncio.sleep(0.1)
        seen.append((session.statistics().counts.words, dict(session.decided_positions())))

    words = committed_words(await run_whole(session, feed))
    [(count, decided)] = seen
    assert position(1.4) < decided[1] < position(3)
    assert 0 < count < len(words)
    assert decided[0] == words[count - 1].end
