"""Models that nobody uses are unloaded."""

import asyncio

from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import KnownModel, ModelSet
from server import engines
from server.engines import unload_idle
from tests.waiting import eventually


async def test_a_model_that_nobody_uses_is_unloaded_but_not_one_that_was_loaded_at_the_start(monkeypatch):
    monkeypatch.setattr(engines, "LOOK_S", 0.01)
    english, closing = frozenset({"en"}), asyncio.Event()
    models = ModelSet([KnownModel("first", english), KnownModel("second", english)], lambda _: ScriptedEngine())
    models.pin("first")
    await models.load("second")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(unload_idle(models, 0.05, closing))
        await eventually(lambda: [*models.schedulers()] == ["first"])
        closing.set()
    models.close()
