"""Tests of live/speakers.py: a voice that is labelled after the last samples is known after a restart too."""

import asyncio
from types import SimpleNamespace
from typing import Any

from pipeline.audio import RATE
from pipeline.speakers.excerpts import Excerpts, RedactedSpans
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import SpeakerOptions
from pipeline.words import Word
from server.live.speakers import SpeakerListener
from server.metrics import Metrics
from server.model.orders import Order
from tests.pipeline.conversations import conversation, models
from tests.server.storing import in_a_loop


async def ignore_revisions(_: object) -> None:
    """Labels that change need not be told here."""


@in_a_loop
async def test_excerpts_of_a_voice_are_kept_even_if_its_words_come_after_the_last_audio() -> None:
    talk = conversation("flite/rms_0.flac", "flite/slt_1.flac")[0]
    speakers = LiveSpeakers(models(), SpeakerOptions(), {None: 0})
    kept: asyncio.Queue[Excerpts] = asyncio.Queue()
    job: Any = SimpleNamespace(id="job_1", order=Order())
    hidden = RedactedSpans([], 99 * RATE)
    listener = SpeakerListener(
        speakers, job, revise=ignore_revisions, keep=kept.put, hidden=lambda: hidden, metrics=Metrics()
    )
    async with asyncio.timeout(30):
        running = asyncio.create_task(listener.run())
        for start in range(0, len(talk), RATE):
            await listener.feed(talk[start : start + RATE])
        for at, labels in ((1, {"S1"}), (9, {"S1", "S2"})):
            while speakers.label(Word("w", at * RATE, (at + 1) * RATE, 1.0), None) not in labels:  # noqa: ASYNC110  speakers tell nobody
                await asyncio.sleep(0.05)
            listener.note_new_words()
            newest = await kept.get()
            assert newest[None].keys() == labels
        listener.end()
        await running
