"""Tests of latency.py: what a session gives up to have its words sooner, and how long it waits to have them right."""

import pytest

from pipeline.audio import position
from pipeline.recognition.latency import ACCURATE, BALANCED, LATENCIES, LOW, with_latency
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.session import Session
from tests.pipeline.listening import talk
from tests.pipeline.sessions import ScriptedRecogniser, Voice, committed, heard, in_real_time, virtually

CALL_S = 0.1
WORDS = talk(45)  # 18 s without a pause


def lags_of(latency: str) -> list[float]:
    """Return after how many seconds each word was final."""
    lags: list[float] = []

    async def main() -> None:
        core = StreamCore(with_latency(StreamOptions(), latency))
        session = Session(core, vad=Voice(WORDS), recogniser=ScriptedRecogniser(WORDS, takes=(CALL_S,)), tenant="acct")
        happened = await heard(session, in_real_time(WORDS[-1].end + position(2)))
        assert [word.text for word in committed(happened)] == [word.text for word in WORDS]
        lags.extend(lag for one in happened for lag in one.lags_s)

    virtually(main())
    return lags


def test_balanced_is_what_a_session_is_that_asks_for_nothing():
    assert with_latency(StreamOptions(), BALANCED) == StreamOptions()


def test_words_are_sooner_with_low_and_wait_with_accurate_but_no_longer_than_four_seconds():
    low, balanced, accurate = (sorted(lags_of(latency)) for latency in (LOW, BALANCED, ACCURATE))
    middle = len(WORDS) // 2
    assert low[middle] < balanced[middle] < 1.2
    assert accurate[middle] > 2
    assert accurate[-1] <= 4 + 2 * CALL_S


@pytest.mark.parametrize("latency", LATENCIES)
def test_the_end_of_a_turn_makes_all_its_words_final(latency):
    assert lags_of(latency)[-1] < 1
