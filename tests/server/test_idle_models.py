"""Tests of idle_models.py: models that nobody uses are unloaded, and windows are measured when there is time."""

import asyncio
from collections.abc import Callable

import pytest

from pipeline.errors import EngineFailed
from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.engines.whisper.loading import Work
from pipeline.recognition.engines.whisper.windows import WindowSizes
from pipeline.recognition.model_set import KnownModel, ModelSet
from server import idle_models
from server.idle_models import IdleModels
from tests.waiting import eventually

NOTHING = RecognitionResult((), "en", 1.0, 0.0, 0.0)


class Measurement:
    """Measures in two calls, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls = 0
        self._fails = fails

    def run(self, call: Callable[[Work], RecognitionResult]) -> WindowSizes:
        for _ in range(2):
            assert call(lambda: NOTHING) == NOTHING
            self.calls += 1
        if self._fails:
            raise EngineFailed("no")
        return WindowSizes(5, 5, 4)


def model_set() -> ModelSet:
    english = frozenset({"en"})
    return ModelSet([KnownModel("first", english), KnownModel("second", english)], lambda _: ScriptedEngine())


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_models, "LOOK_S", 0.01)
    monkeypatch.setattr(idle_models, "QUIET_S", 0.05)


async def run_until(idle: IdleModels, condition: Callable[[], bool]) -> None:
    closing = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(idle.run(closing))
        await eventually(condition)
        closing.set()


async def test_a_model_that_nobody_uses_is_unloaded_but_not_one_that_was_loaded_at_the_start():
    models = model_set()
    models.pin("first")
    await models.load("second")
    await run_until(IdleModels(models, unload_s=0.05), lambda: [*models.schedulers()] == ["first"])
    models.close()


async def test_windows_are_measured_when_there_is_nothing_to_do_and_no_longer_warned_of():
    models, measurement = model_set(), Measurement()
    models.pin("first")
    idle = IdleModels(models, unload_s=0, unmeasured=["first"])
    idle.note("first", measurement)
    await run_until(idle, lambda: not idle.unmeasured)
    assert measurement.calls == 2
    models.close()


async def test_a_measurement_that_fails_is_not_repeated_before_the_next_load():
    models, measurement = model_set(), Measurement(fails=True)
    models.pin("first")
    idle = IdleModels(models, unload_s=0)
    idle.note("first", measurement)
    await run_until(idle, lambda: not idle._measurements)
    assert idle.unmeasured == {"first"}
    models.close()
