"""Tests of session.py in virtual time, with a recogniser of known speed and a detector that knows the speech."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.virtual_time import VirtualTimeLoop
from pipeline import live_stream as session_module
from pipeline.audio import RATE, WINDOW, Windows, position
from pipeline.errors import TooFast
from pipeline.events import MAX_UNREAD, Event, EventClock, Finalized, Partial, SegmentClosed, Warned, WordsCommitted
from pipeline.live_stream import ENOUGH_BUFFERED, WINDOWS, LiveStream
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.words import join_words
from tests.pipeline.live_streams import (
    LENGTH,
    SPOKEN,
    ScriptedRecogniser,
    Voice,
    at_once,
    committed_words,
    in_real_time,
    run_stream,
    run_whole,
    stream_of,
)
from tests.pipeline.scripted_streams import speeches, talk

pytestmark = pytest.mark.virtual_time


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3 * RATE), max_size=30))
async def test_any_chunking_of_the_same_audio_gives_the_same_words(sizes):
    session, happened = await run_stream(at_once(*sizes), ScriptedRecogniser(SPOKEN))
    assert join_words(committed_words(happened)) == join_words(SPOKEN)
    assert session.statistics().received == LENGTH


@pytest.mark.parametrize("piece", [WINDOW, 160, 4000, RATE])
async def test_a_stream_in_real_time_and_one_at_full_speed_ask_and_commit_the_same(piece):
    slow, fast = ScriptedRecogniser(SPOKEN), ScriptedRecogniser(SPOKEN)
    _, live = await run_stream(in_real_time(piece=piece), slow)
    _, upload = await run_stream(at_once(), fast)
    assert committed_words(live) == committed_words(upload)
    assert [r.start + len(r.samples) for r in slow.requests] == [r.start + len(r.samples) for r in fast.requests]


async def test_words_come_while_the_speaker_speaks_and_each_knows_its_lag():
    _, happened = await run_stream(in_real_time(), ScriptedRecogniser(SPOKEN))
    lags = [lag for one in happened for lag in one.lags_s]
    assert len(lags) == len(SPOKEN)
    assert min(lags) >= StreamOptions().pause / RATE
    assert max(lags) <= 1.5
    first = next(one.at_s for one in happened if isinstance(one.event, Partial))
    started = first - happened[0].at_s
    assert started <= 0.7, "a first partial comes soon after speech began"


async def test_the_last_words_come_out_however_the_stream_ends():
    for length in range(SPOKEN[-1].end, SPOKEN[-1].end + position(0.7), 1111):
        session, happened = await run_stream(in_real_time(length), ScriptedRecogniser(SPOKEN))
        assert join_words(committed_words(happened)) == join_words(SPOKEN)
        assert session.statistics().received == length
        assert committed_words(happened)[-1].end <= length, "padding is not audio"


async def test_a_session_lives_on_without_a_writer_and_the_next_one_continues():
    async def feed(session: LiveStream) -> None:
        await in_real_time(position(3))(session)
        await asyncio.sleep(25)
        assert session.statistics().received == position(3)
        assert session.statistics().counts.words >= 3
        await in_real_time(LENGTH - position(3))(session)

    session, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN))
    assert join_words(committed_words(happened)) == join_words(SPOKEN)
    assert session.statistics().received == LENGTH
    assert max(lag for one in happened for lag in one.lags_s) <= 25 + 1.5


@settings(max_examples=40, deadline=None)
@given(
    words=speeches(),
    takes=st.lists(st.sampled_from((0.0503, 0.3007, 0.9001)), min_size=1, max_size=4),  # never as long as some windows
    queue_s=st.sampled_from((0.0, 0.2505, 1.0009)),
    fails=st.sampled_from(((False,), (False, False, True))),
    piece=st.sampled_from((WINDOW, 700, 1600, RATE, 3 * RATE)),
)
def test_windows_that_are_processed_together_change_nothing_but_the_work(words, takes, queue_s, fails, piece):
    async def run_with(together: int) -> None:
        recogniser = ScriptedRecogniser(words, takes=takes, fails=fails, queue_s=queue_s)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_module, "TOGETHER", together)
            session, happened = await run_stream(
                in_real_time(words[-1].end + RATE, piece=piece), recogniser, words=words
            )
        events = [(one.event, round(one.at_s - session._clock.epoch_s, 6), one.lags_s) for one in happened]
        asked = [(request.start, len(request.samples), request.final) for request in recogniser.requests]
        runs.append((events, asked))

    runs: list[tuple[list[tuple[Event, float, tuple[float, ...]]], list[tuple[int, int, bool]]]] = []
    for together in (WINDOW, session_module.TOGETHER):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:  # each from 0 s on: sums of floats are compared
            runner.run(run_with(together))
    alone, together = runs
    assert together == alone


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.sampled_from((WINDOW, 1600, 4000, RATE, 3 * RATE)), min_size=1, max_size=5),
    takes=st.lists(st.sampled_from((0.0, 0.032, 0.25, 1.0)), min_size=1, max_size=4),
    queue_s=st.sampled_from((0.0, 0.032, 1.0)),
    pause_s=st.sampled_from((0.0, 0.032, 0.25, 1.0)),
)
async def test_no_audio_is_left_behind_where_answers_and_audio_come_at_the_same_instant(
    pieces, takes, queue_s, pause_s
):
    async def feed(session: LiveStream) -> None:
        left = LENGTH
        for size in cycle(pieces):
            await asyncio.sleep(pause_s)
            await session.feed(np.zeros(min(size, left), np.float32))
            left -= min(size, left)
            if not left:
                return

    session, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN, takes=takes, queue_s=queue_s))
    assert join_words(committed_words(happened)) == join_words(SPOKEN)
    assert session.statistics().received == LENGTH


async def test_while_nothing_can_change_windows_are_processed_together():
    calls: list[int] = []
    voice = Voice(SPOKEN)

    def count_windows(windows: Windows) -> list[float]:
        calls.append(len(windows))
        return voice(windows)

    session = LiveStream(
        StreamCore(StreamOptions()), vad=count_windows, recogniser=ScriptedRecogniser(SPOKEN), tenant="acct"
    )
    await run_whole(session, in_real_time())
    assert sum(calls) == -(-LENGTH // WINDOW)
    assert len(calls) < 0.6 * sum(calls)


async def test_finalize_takes_effect_where_it_stands_among_the_audio():
    async def feed(session: LiveStream) -> None:
        split = SPOKEN[3].end // WINDOW * WINDOW + WINDOW
        await session.feed(np.zeros(split, np.float32))
        session.finalize()
        await session.feed(np.zeros(LENGTH - split, np.float32))

    _, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN))
    closed = [one.event for one in happened if isinstance(one.event, SegmentClosed)]
    assert len(closed[0].segment.words) == 4
    assert join_words(committed_words(happened)) == join_words(SPOKEN)


async def test_a_flood_of_finalize_is_one_finalize():
    session = LiveStream(StreamCore(StreamOptions()), vad=Voice(SPOKEN), recogniser=ScriptedRecogniser(SPOKEN))
    for _ in range(3):
        await session.feed(np.zeros(WINDOW, np.float32))
        for _ in range(10_000):
            session.finalize()
    assert len(session._backlog) == 6


async def test_finalized_comes_after_the_words_before_it_and_names_the_place_that_finalize_returned():
    places: list[int] = []

    async def feed(session: LiveStream) -> None:
        places.append(session.finalize())
        split = SPOKEN[3].end // WINDOW * WINDOW + WINDOW
        await session.feed(np.zeros(split + WINDOW // 2, np.float32))
        places.extend(session.finalize() for _ in range(3))
        await session.feed(np.zeros(LENGTH - split - WINDOW // 2, np.float32))

    _, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN))
    events = [one.event for one in happened]
    [at] = [number for number, event in enumerate(events) if isinstance(event, Finalized)]
    assert join_words(committed_words(happened[:at])) == join_words(SPOKEN[:4])
    assert places == [0, events[at].at, events[at].at, events[at].at]
    assert places[-1] == SPOKEN[3].end // WINDOW * WINDOW + WINDOW


async def test_a_slow_listener_is_asked_less_often_and_loses_nothing():
    quick, slow = ScriptedRecogniser(SPOKEN), ScriptedRecogniser(SPOKEN, takes=[2.5])
    await run_stream(in_real_time(), quick)
    session, happened = await run_stream(in_real_time(), slow)
    assert len(slow.requests) <= 6 < len(quick.requests)
    assert join_words(committed_words(happened)) == join_words(SPOKEN)
    assert 1.0 <= session.statistics().round_s <= 2.5


async def test_a_window_that_waited_for_its_turn_is_heard_with_the_audio_that_came_meanwhile():
    async def mean_lag(recogniser: ScriptedRecogniser) -> float:
        session, happened = await run_stream(in_real_time(), recogniser)
        assert join_words(committed_words(happened)) == join_words(SPOKEN)
        counts = session.statistics().counts
        assert counts.partials + counts.finals == len(recogniser.requests), "what was taken back does not count"
        lags = [lag for one in happened for lag in one.lags_s]
        return sum(lags) / len(lags)

    stale = await mean_lag(ScriptedRecogniser(SPOKEN, takes=[1.28]))
    fresh = await mean_lag(ScriptedRecogniser(SPOKEN, queue_s=1.2))
    assert fresh <= stale - 0.6


async def test_a_window_may_be_asked_for_anew_just_when_its_session_may_go_on():
    class Punctual(ScriptedRecogniser):
        async def recognise(
            self, request: DecodeRequest, *, tenant: str, newer: Callable[[], DecodeRequest | None] | None = None
        ) -> RecognitionResult:
            loop = asyncio.get_running_loop()
            for _ in range(10):  # until the session waits
                await asyncio.sleep(0)
            if newer is not None and session._ahead_s > 0:
                asked = loop.create_future()
                loop.call_at(loop.time() + session._ahead_s, lambda: asked.set_result(newer() or request))
                request = await asked
            return await super().recognise(request, tenant=tenant, newer=newer)

    session = stream_of(Punctual(SPOKEN))
    happened = await run_whole(session, at_once())
    assert join_words(committed_words(happened)) == join_words(SPOKEN)


async def test_a_sender_faster_than_the_listener_is_made_to_wait():
    async def feed(session: LiveStream) -> None:
        for _ in range(40):
            await session.feed(np.zeros(RATE, np.float32))
            assert session.statistics().waiting <= ENOUGH_BUFFERED

    words = talk(90)
    session, happened = await run_stream(feed, ScriptedRecogniser(words, takes=[1.0]), words=words)
    assert join_words(committed_words(happened)) == join_words(words)
    assert session.statistics().waiting == 0


async def test_audio_that_waits_in_small_pieces_leaves_others_their_turn():
    async def feed(session: LiveStream) -> None:
        for _ in range(ENOUGH_BUFFERED // WINDOW):
            await session.feed(np.zeros(WINDOW, np.float32))  # returns at once: nothing of it is processed yet
        steps = [session.statistics().waiting]
        while steps[-1]:
            await asyncio.sleep(0)
            steps.append(session.statistics().waiting)
        assert max(before - after for before, after in pairwise(steps)) <= WINDOWS * WINDOW

    await run_stream(feed, ScriptedRecogniser(()), words=())


async def test_a_piece_beyond_thirty_seconds_of_backlog_is_refused_and_the_session_goes_on():
    async def feed(session: LiveStream) -> None:
        with pytest.raises(TooFast):
            await session.feed(np.zeros(31 * RATE, np.float32))
        assert session.statistics().received == 0
        await at_once()(session)

    _, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN))
    assert join_words(committed_words(happened)) == join_words(SPOKEN)


async def test_a_reader_that_stops_reading_stops_the_intake_not_the_memory():
    session = LiveStream(StreamCore(StreamOptions()), vad=Flicker(), recogniser=ScriptedRecogniser(()), tenant="acct")
    running = asyncio.create_task(session.run())
    with suppress(TimeoutError):
        async with asyncio.timeout(3600):
            while True:
                await session.feed(np.zeros(RATE, np.float32))
    unread = session.statistics().unread
    assert MAX_UNREAD <= unread <= MAX_UNREAD + 5
    reader = session.events()
    for _ in range(unread):
        await anext(reader)
    await asyncio.sleep(1)
    assert session.statistics().unread > 0, "and it goes on when the reader does"
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


class Flicker:
    """Detects a short word every two seconds."""

    def __init__(self) -> None:
        self._pattern = cycle([0.9] * 4 + [0.0] * 58)

    def __call__(self, windows: Windows) -> list[float]:
        return [next(self._pattern) for _ in windows]


async def test_a_failing_engine_is_asked_again_and_nothing_is_lost():
    recogniser = ScriptedRecogniser(SPOKEN, fails=[True, False, False, True, False])
    session, happened = await run_stream(in_real_time(), recogniser)
    assert join_words(committed_words(happened)) == join_words(SPOKEN)
    assert session.statistics().counts.failures >= 3
    assert not [one for one in happened if isinstance(one.event, Warned)]


async def test_an_engine_that_stays_away_ends_no_session():
    session, happened = await run_stream(in_real_time(), ScriptedRecogniser(SPOKEN, fails=[True]))
    assert committed_words(happened) == ()
    assert {one.event.code for one in happened if isinstance(one.event, Warned)} == {"engine_failed"}
    assert isinstance(happened[-1].event, Finalized)
    assert session.statistics().received == LENGTH


async def test_an_error_nobody_expected_ends_run_events_and_feed():
    class BrokenRecogniser(ScriptedRecogniser):
        async def recognise(
            self, request: DecodeRequest, *, tenant: str, newer: Callable[[], DecodeRequest | None] | None = None
        ) -> RecognitionResult:
            raise ZeroDivisionError(request.start, tenant, newer)

    session = stream_of(BrokenRecogniser(SPOKEN))
    running = asyncio.create_task(session.run())
    await session.feed(np.zeros(20 * RATE, np.float32))
    with pytest.raises(ValueError, match="after the end"):
        await session.feed(np.zeros(1, np.float32))
    with pytest.raises(ExceptionGroup) as caught:
        await running
    assert caught.group_contains(ZeroDivisionError)
    assert len([one async for one in session.events()]) == 1, "what happened before the error is still there"


async def test_audio_after_the_end_is_refused_and_ending_twice_is_ending():
    async def feed(session: LiveStream) -> None:
        await at_once()(session)
        session.finish()
        session.finish()
        with pytest.raises(ValueError, match="after the end"):
            await session.feed(np.zeros(1, np.float32))

    _, happened = await run_stream(feed, ScriptedRecogniser(SPOKEN))
    assert join_words(committed_words(happened)) == join_words(SPOKEN)


async def test_a_session_without_audio_or_speech_ends_without_events():
    async def feed_nothing(session: LiveStream) -> None:
        assert session.statistics().received == 0

    async def silence(session: LiveStream) -> None:
        for _ in range(600):
            await session.feed(np.zeros(RATE, np.float32))

    for feed in (feed_nothing, silence):
        recogniser = ScriptedRecogniser(())
        _, happened = await run_stream(feed, recogniser, words=())
        assert happened == []
        assert recogniser.requests == []


def test_a_broken_promise_would_be_counted():
    clock = EventClock(0.0)
    clock.note_arrival(position(2), 2.0)
    first, second = talk(2)
    clock.stamp(WordsCommitted((first,), 0, 0), 2.5)
    clock.stamp(WordsCommitted((second,), 1, 0), 2.5)
    assert clock.retractions == 0
    clock.stamp(WordsCommitted((second,), 1, 0), 2.5)
    assert clock.retractions == 1
    clock.stamp(WordsCommitted((first,), 2, 0), 2.5)
    assert clock.retractions == 2
