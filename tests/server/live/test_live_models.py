"""Tests of live/models.py: a session that goes on after a restart repeats nothing."""

import asyncio
from collections.abc import Hashable, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio import LONGEST_JOB, position
from pipeline.events import WordsCommitted
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.model_set import ModelSet
from pipeline.words import Word
from server.live.models import LiveModels
from server.live.reporting import resumes_at, starts
from server.model.orders import LiveOptions, Order
from tests.pipeline.scripted_streams import perfect, talk
from tests.server.session_registries import after


class HearsAll:
    """An engine that hears every word of the audio."""

    name = model = "all"
    languages = frozenset({"en"})
    translates = False
    max_batch = replicas = file_replicas_during_speech = 1
    longest_job = LONGEST_JOB

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = tuple(words)

    def bucket(self, request: DecodeRequest) -> Hashable:
        return len(request.samples)

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        return [perfect(self._words)(request) for request in requests]

    def close(self) -> None:
        pass


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

    async def final_words(models: ModelSet) -> list[Word]:
        live = LiveModels(engine="e", models=models, vad=None)
        session = live.stream(ordered, tenant="t", starts=starts(place, ordered))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            for at in range(0, len(rest), position(1)):
                await session.feed(rest[at : at + position(1)])
            session.finish()
            events = [one.event async for one in session.events()]
        return [word for event in events if isinstance(event, WordsCommitted) for word in event.words]

    with closing(ModelSet.of(HearsAll(words))) as models:
        assert [word.text for word in (*said, *asyncio.run(final_words(models)))] == [word.text for word in words]
