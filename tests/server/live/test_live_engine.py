"""Tests of live/engine.py: a session that goes on after a restart repeats nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.events import WordsCommitted
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.words import Chunk, Segment, Word
from server.live.engine import LiveEngine, _OffsetRecogniser
from server.live.resuming import SessionPast
from server.model.orders import LiveOptions, Order
from tests.pipeline.scripted_streams import perfect, talk


class HearsAll:
    """Hears every word of the audio, and has room for every session."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = tuple(words)

    async def recognise(self, request: DecodeRequest, **_: object) -> RecognitionResult:
        return perfect(self._words)(request)

    def admit(self, growth: float) -> None:
        assert growth >= 0


def test_the_rest_of_a_word_that_was_told_is_silent_where_a_later_window_begins_with_it():
    """A model takes it for the beginning of the next word. The first window has the last words whole."""

    class Recogniser:
        async def recognise(self, request: DecodeRequest, **_: object) -> RecognitionResult:
            loud.append(np.flatnonzero(request.samples)[0] + request.start)
            return RecognitionResult((), "en", 1.0, -0.1, 0.0)

    loud: list[int] = []
    recogniser = _OffsetRecogniser(Recogniser(), by=1000, settled=5000, said=())
    for start in (0, 2000, 4000):
        asyncio.run(recogniser.recognise(DecodeRequest(samples=np.ones(6000, np.float32), start=start), tenant="t"))
    assert loud == [1000, 5000, 5000]


def test_the_spans_of_speech_are_where_the_audio_is_and_none_is_in_what_is_silent():
    """The gaps in an answer are looked for in them."""

    class Recogniser:
        async def recognise(self, request: DecodeRequest, **_: object) -> RecognitionResult:
            asked.append(request.voiced)
            return RecognitionResult((), "en", 1.0, -0.1, 0.0)

    asked: list[tuple[tuple[int, int], ...]] = []
    recogniser = _OffsetRecogniser(Recogniser(), by=1000, settled=5000, said=())
    for start in (0, 2000):
        request = DecodeRequest(
            samples=np.ones(6000, np.float32), start=start, voiced=((2500, 3500), (3800, 4500), (5000, 5500))
        )
        asyncio.run(recogniser.recognise(request, tenant="t"))
    assert asked == [((3500, 4500), (4800, 5500), (6000, 6500)), ((5000, 5500), (6000, 6500))]


@settings(max_examples=40)
@given(count=st.integers(1, 30), gap=st.floats(0, 1.2))
@example(count=1, gap=0)  # one word, which is final
def test_what_is_said_over_a_restart_is_told_once(count, gap):
    words = (
        *talk(count),
        *(replace(word, text=f"v{n}") for n, word in enumerate(talk(9, start=count * 0.4 + 0.6 + gap))),
    )
    said = words[:count]
    past = SessionPast(
        (Chunk(0, 0, 0, said[-1].end, (Segment(said, avg_logprob=-0.2, no_speech_prob=0.0),), "en", 0.9),)
    )
    rest = np.zeros(words[-1].end + position(1) - past.offsets.position, np.float32)
    recogniser = HearsAll(words)

    async def final_words() -> list[Word]:
        live = LiveEngine(engine="e", model="m", recogniser=recogniser, headroom=recogniser, voice=None)
        session = live.session(Order(live=LiveOptions()), tenant="t", past=past)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            for at in range(0, len(rest), position(1)):
                await session.feed(rest[at : at + position(1)])
            session.finish()
            events = [one.event async for one in session.events()]
        return [word for event in events if isinstance(event, WordsCommitted) for word in event.words]

    assert [word.text for word in (*said, *asyncio.run(final_words()))] == [word.text for word in words]
