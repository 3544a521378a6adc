"""Finds the models of the engine that the settings name. The server, `scribewire doctor` and benchmarks call it."""

from collections.abc import Callable, Mapping

from pipeline.recognition.engine import SCRIPTED, Engine
from pipeline.recognition.engines import scripted
from pipeline.recognition.engines.whisper import loading
from pipeline.recognition.model_set import AUTO, EngineSettings, FoundModels

ENGINES: Mapping[str, Callable[[EngineSettings], FoundModels]] = {
    "whisper": loading.find_models,
    SCRIPTED: scripted.find_models,
}
"""What finds the models of each kind of engine. The first is used if the settings name none."""


def find_models(settings: EngineSettings) -> FoundModels:
    """Return the models that *settings* choose. One that they name is downloaded if it is not on this machine.

    Raises ModelUnavailable if a named one cannot be had or does not know its language, or there is none at all.
    """
    name = next(iter(ENGINES)) if settings.engine == AUTO else settings.engine
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join((AUTO, *ENGINES))}, not {name!r}")
    return ENGINES[name](settings)


def load(settings: EngineSettings) -> Engine:
    """Load the default model that *settings* choose. Raises ModelUnavailable."""
    return find_models(settings).models[0].load()
