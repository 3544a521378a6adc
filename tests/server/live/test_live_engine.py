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
from pipeline.words import Word
from server.live.engine import LiveEngine
from server.live.resuming import resumes_at, starts
from server.model.orders import LiveOptions, Order
from tests.pipeline.scripted_streams import perfect, talk
from tests.server.session_registries import after


class HearsAll:
    """Hears every word of the audio, and has room for every session."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = tuple(words)

    async def recognise(self, request: DecodeRequest, **_: object) -> RecognitionResult:
        return perfect(self._words)(request)

    def admit(self, growth: float) -> None:
        assert growth >= 0


@settings(max_examples=40)
@given(count=st.integers(1, 30), gap=st.floats(0, 1.2))
@example(count=1, gap=0)  # one word, which is final
def test_what_is_said_over_a_restart_is_told_once(count, gap):
    words = (
        *talk(count),
        *(replace(word, text=f"v{n}") for n, word in enumerate(talk(9, start=count * 0.4 + 0.6 + gap))),
    )
    said = words[:count]
    place, ordered = after(*said), Order(live=LiveOptions())
    rest = np.zeros(words[-1].end + position(1) - resumes_at(place, ordered), np.float32)
    recogniser = HearsAll(words)

    async def final_words() -> list[Word]:
        live = LiveEngine(engine="e", model="m", recogniser=recogniser, headroom=recogniser, voice=None)
        session = live.session(ordered, tenant="t", starts=starts(place, ordered))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            for at in range(0, len(rest), position(1)):
                await session.feed(rest[at : at + position(1)])
            session.finish()
            events = [one.event async for one in session.events()]
        return [word for event in events if isinstance(event, WordsCommitted) for word in event.words]

    assert [word.text for word in (*said, *asyncio.run(final_words()))] == [word.text for word in words]
