"""What is done with models while they have nothing to do: unload them, and measure which windows suit them."""

import asyncio
import logging
from collections.abc import Collection

from pipeline.errors import EngineFailed, PipelineError
from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.engines.whisper.loading import WindowMeasurement, Work
from pipeline.recognition.model_set import ModelSet
from server.waiting import set_within

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""The seconds between two looks at the models."""

QUIET_S = 20.0
"""Windows are measured when no model has had anything to do for this long."""

TENANT = "windows"
"""The measurement's name in the order of calls, which is fair among tenants."""


class IdleModels:
    """Looks after the models of one environment."""

    def __init__(self, models: ModelSet, *, unload_s: float, unmeasured: Collection[str] = ()) -> None:
        """Look after *models*.

        *unload_s*: a model that nobody used for this long is unloaded; 0: never.
        *unmeasured*: the names of models whose windows are not known yet.
        """
        self.unmeasured = set(unmeasured)
        """The names of models that use full windows until they are measured."""
        self._models = models
        self._unload_s = unload_s
        self._measurements: dict[str, WindowMeasurement] = {}

    def note(self, name: str, measurement: WindowMeasurement | None) -> None:
        """Note that a model was loaded, and the measurement that it needs."""
        if measurement is None:
            self._measurements.pop(name, None)
            self.unmeasured.discard(name)
        else:
            self._measurements[name] = measurement
            self.unmeasured.add(name)

    async def run(self, closing: asyncio.Event) -> None:
        """Look after the models until *closing* is set."""
        while not await set_within(closing, LOOK_S):
            for name in self._models.unload_idle(self._unload_s) if self._unload_s else ():
                log.info("unloaded a model that nobody uses", extra={"model": name})
            if self._measurements and self._models.idle_s >= QUIET_S:
                await self._measure(next(iter(self._measurements)), closing)

    async def _measure(self, name: str, closing: asyncio.Event) -> None:
        """Measure the windows of a model, in calls that give way to everything else. It may take minutes."""
        scheduler = self._models.schedulers().get(name)
        if scheduler is None:  # it was unloaded, and is measured when it is loaded again
            return
        loop = asyncio.get_running_loop()

        def call(work: Work) -> RecognitionResult:
            if closing.is_set():
                raise EngineFailed("the server is stopping")
            return asyncio.run_coroutine_threadsafe(scheduler.run(work, tenant=TENANT), loop).result()

        log.info("measuring which windows suit a model", extra={"model": name})
        try:
            sizes = await asyncio.to_thread(self._measurements[name].run, call)
        except PipelineError as error:
            log.warning("windows could not be measured: %s", error, extra={"model": name})
            del self._measurements[name]
            return
        self.note(name, None)
        log.info("measured", extra={"model": name, "live_s": sizes.final_s, "files_s": sizes.job_s})
