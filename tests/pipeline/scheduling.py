"""A scheduler over a model whose calls wait until a test releases them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from pipeline.audio import RATE, Samples
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.scheduler import Scheduler, Urgency
from tests.waiting import eventually


@dataclass
class Model:
    """An engine whose calls wait until they are released. It records the requests of each call."""

    max_batch: int = 4
    name: str = "script"
    model: str = "script"
    languages: frozenset[str] = frozenset({"en"})
    translates: bool = False
    longest_job: int = RATE
    replicas: int = 1
    file_replicas_during_speech: int = 1
    fail: Callable[[], Exception | None] = lambda: None
    calls: list[list[int]] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def bucket(self, request: DecodeRequest) -> Hashable:
        return len(request.samples)

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        self.calls.append([request.start for request in requests])
        self.gate.acquire()
        if (error := self.fail()) is not None:
            raise error
        return [RecognitionResult((), "en", 1.0, float(-request.start), 0.0) for request in requests]

    def detect_language(self, samples: Samples) -> Mapping[str, float]:
        return {"en": len(samples) / 10}

    def close(self) -> None:
        pass


def window(start: int, length: int = 100, *, final: bool = True) -> DecodeRequest:
    return DecodeRequest(samples=np.zeros(length, np.float32), start=start, final=final)


async def request_windows(
    scheduler: Scheduler, *orders: tuple[int, str, Urgency], length: int = 100
) -> list["asyncio.Task[RecognitionResult]"]:
    """Ask for the recognition of windows by (start, tenant, urgency), in this order. Returns the tasks that wait."""
    tasks = []
    for start, tenant, urgency in orders:
        tasks.append(asyncio.create_task(scheduler.recognise(window(start, length), tenant=tenant, urgency=urgency)))
        await asyncio.sleep(0)
    return tasks


@asynccontextmanager
async def scheduling(**settings: object) -> AsyncIterator[tuple[Model, Scheduler]]:
    """Yield a Model with these *settings*, and its scheduler."""
    model = Model(**settings)  # type: ignore[arg-type]  # settings of several types
    scheduler = Scheduler(model)
    try:
        yield model, scheduler
    finally:
        model.gate.release(100)
        scheduler.close()


async def wait_for_calls(model: Model, calls: int) -> None:
    """Wait until so many calls have begun."""
    await eventually(lambda: len(model.calls) >= calls)
