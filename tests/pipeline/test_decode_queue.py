"""Tests of DecodeQueue: a short part of a file knows the language of the part before it."""

import asyncio

import numpy as np

from pipeline.audio import position
from pipeline.batch import BatchOptions, DecodeQueue
from pipeline.ingest.speech import DecodeJob
from pipeline.recognition.engine import DecodeRequest, RecognitionResult


class Slow:
    """Answers each request after all that can be asked at once were asked. It hears French."""

    def __init__(self) -> None:
        self.before: dict[int, str | None] = {}

    async def recognise(self, request: DecodeRequest, **_: object) -> RecognitionResult:
        self.before[request.start] = request.before
        await asyncio.sleep(0)
        return RecognitionResult((), "fr")


def job(start_s: float, speech_s: float) -> DecodeJob:
    start, end = position(start_s), position(start_s + speech_s)
    return DecodeJob(start, np.zeros(end - start, np.float32), ((start, end),))


async def hints_of(*jobs: DecodeJob, language: str | None = None, done: tuple[str, ...] = ()) -> list[str | None]:
    """Return which language each job was told to be near."""
    recogniser = Slow()
    queue = DecodeQueue(
        recogniser,  # type: ignore[arg-type]  # has the method
        BatchOptions(tenant="a", language=language),
        before=done,
        max_jobs=4,
    )
    for one in jobs:
        queue.add(one)
    for _ in jobs:
        await queue.first()
    return [recogniser.before[one.start] for one in jobs]


async def test_a_short_job_waits_for_the_language_of_the_one_before_it():
    assert await hints_of(job(0, 9), job(20, 0.5), job(40, 9)) == [None, "fr", None]
    assert await hints_of(job(0, 0.5), job(20, 9)) == [None, None], "nothing was said before"


async def test_a_short_job_knows_what_was_spoken_before_a_restart():
    assert await hints_of(job(20, 0.5), done=("es",)) == ["es"]


async def test_a_short_job_of_a_known_language_waits_for_nothing():
    assert await hints_of(job(0, 9), job(20, 0.5), language="de") == [None, None]
