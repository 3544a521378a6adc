"""Tests of latency: what a session gives up to have its words sooner, and how long it waits to have them right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import WINDOW, position
from pipeline.events import Finalized, Partial, SegmentClosed, WordsCommitted
from pipeline.live_stream import LiveStream
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import ACCURATE, BALANCED, LATENCIES, LOW, StreamOptions, with_latency
from pipeline.words import join_words
from tests.pipeline.live_streams import ScriptedRecogniser, Voice, committed_words, in_real_time, run_whole
from tests.pipeline.scripted_streams import assert_well_formed, perfect, stream, talk, voice

pytestmark = pytest.mark.virtual_time

CALL_S = 0.1
WORDS = talk(45)  # 18 s without a pause


async def lags_of(latency: str) -> list[float]:
    """Return after how many seconds each word was final."""
    core = StreamCore(with_latency(StreamOptions(), latency))
    session = LiveStream(core, vad=Voice(WORDS), recogniser=ScriptedRecogniser(WORDS, takes=(CALL_S,)), tenant="acct")
    happened = await run_whole(session, in_real_time(WORDS[-1].end + position(2)))
    assert [word.text for word in committed_words(happened)] == [word.text for word in WORDS]
    return [lag for one in happened for lag in one.lags_s]


@pytest.mark.parametrize("patient", [False, True])
def test_balanced_is_what_a_session_is_that_asks_for_nothing(patient):
    assert with_latency(StreamOptions(), BALANCED, patient=patient) == StreamOptions()


async def test_words_are_sooner_with_low_and_wait_with_accurate_but_no_longer_than_four_seconds():
    low, balanced, accurate = [sorted(await lags_of(latency)) for latency in (LOW, BALANCED, ACCURATE)]
    middle = len(WORDS) // 2
    assert low[middle] < balanced[middle] < 1.2
    assert accurate[middle] > 2
    assert accurate[-1] <= 4 + 2 * CALL_S


@pytest.mark.parametrize("latency", LATENCIES)
async def test_the_end_of_a_turn_makes_all_its_words_final(latency):
    assert (await lags_of(latency))[-1] < 1


PATIENT = with_latency(StreamOptions(), ACCURATE, patient=True)


def test_a_short_pause_ends_no_turn_with_accurate_and_a_long_one_does():
    first, rest = talk(4), talk(10, start=3.1)  # 1.6 s of speech and a pause of 1 s
    words = (*first, *rest, *talk(4, start=rest[-1].end / 16_000 + 1.7))
    run = stream(voice(words, position(12)), perfect(words), options=PATIENT)
    assert [len(event.segment.words) for event in run.only(SegmentClosed)] == [14, 4]
    assert run.text == join_words(words)


def test_waiting_words_are_final_at_once_where_the_client_says_so():
    words, said_at = talk(2), 50  # 1.6 s
    run = stream(voice(words, position(4)), perfect(words), options=PATIENT, finalize_at=frozenset({said_at}))
    kinds = [type(event) for event in run.events if isinstance(event, WordsCommitted | SegmentClosed | Finalized)]
    assert kinds == [WordsCommitted, SegmentClosed, Finalized]
    assert run.only(Finalized) == [Finalized((said_at + 1) * WINDOW)]


@given(st.lists(st.integers(1, 20), min_size=1), st.sets(st.integers(0, 300), max_size=3))
def test_a_perfect_listener_loses_and_repeats_nothing_with_accurate(delays, finalize_at):
    words = (*talk(3), *talk(5, start=2.6), *talk(6, start=6.0))
    run = stream(
        voice(words, position(10)), perfect(words), options=PATIENT, delays=delays, finalize_at=frozenset(finalize_at)
    )
    assert_well_formed(run)
    if not finalize_at:
        assert run.text == join_words(words)


def test_accurate_recognises_every_window_with_care_and_shows_what_was_heard_three_times():
    words = talk(10)
    run = stream(voice(words, position(7)), perfect(words), options=with_latency(StreamOptions(), ACCURATE), delays=[1])
    assert all(request.final for request in run.requests)
    assert_well_formed(run)
    assert run.text == join_words(words)
    shown = [event.text for event in run.only(Partial)]
    assert len(shown) < len(run.requests)
    assert all(text in join_words(words) for text in shown), "a half of a word at the end is in no later hypothesis"
