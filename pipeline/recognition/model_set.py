"""The models of a process: what is known of each, which one is for which language, and which of them are in memory.

A model is loaded when it is first wanted. If the memory for models is used up, the model that was idle for longest is
unloaded; a model that stays idle is unloaded too. All models share one order of calls.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.audio import LONGEST_JOB
from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.languages import ENGLISH
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.whisper.windows import WindowSizes
from pipeline.recognition.scheduler import CallOrder, Scheduler

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which recogniser is used, and how it uses the machine. "auto" and 0 leave the choice to the engine."""

    engine: str = AUTO  # one of ENGINES of load.py; auto: its first
    model: str = AUTO  # names or folders of Whisper models, see models.read_choice(); auto: see models.automatic()
    device: str = AUTO  # cpu or cuda
    compute_type: str = AUTO  # CTranslate2's; auto: int8 on a CPU, float16 on CUDA
    threads: int = 0  # of one call of the model
    gpu_batch: int = 0  # the most windows in one call on a GPU
    windows: Literal["auto", "full"] | WindowSizes = "auto"  # auto: what is known to suit the model, or full ones
    download_wait_s: float = 900.0
    cache_dir: Path | None = None  # for downloads and measurements; None: Hugging Face's own folder


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be loaded."""

    name: str  # as users see it
    languages: frozenset[str]
    size: int = 0  # about the memory that it takes, in bytes
    longest_job: int = LONGEST_JOB  # the most samples of a file in one request
    translates: bool = False  # into English


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel(KnownModel):
    """A model on this machine."""

    load: Callable[[], Engine]  # raises ModelUnavailable
    device: str = "cpu"
    bundled: bool = False  # it came with the installation
    sizes: WindowSizes | None = None  # the windows that suit it, if they are known
    measure: Callable[[], WindowSizes] | None = None
    """Finds out in minutes which windows suit it, for the next time that it is loaded. None: they are known."""


@dataclass(frozen=True, slots=True)
class FoundModels:
    """The models that the settings choose."""

    models: tuple[FoundModel, ...]  # the default first; at least one
    routes: Mapping[str, str]  # the names of the models of single languages

    def without(self, name: str) -> "FoundModels":
        """Return all but the model called *name*."""
        models = tuple(model for model in self.models if model.name != name)
        return FoundModels(models, {code: model for code, model in self.routes.items() if model != name})


@dataclass(slots=True)
class _Place:
    """Where a model is, or will be."""

    model: KnownModel
    engine: Engine | None = None
    scheduler: Scheduler | None = None
    stays: bool = False  # when it is idle
    used_at: float = 0.0
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)


class ModelSet:
    """The models of one environment. It belongs to one event loop."""

    def __init__(
        self,
        models: Sequence[KnownModel],
        make_engine: Callable[[str], Engine],
        *,
        routes: Mapping[str, str] | None = None,
        memory: int | None = None,
    ) -> None:
        """Load none of the *models* yet; the first one is the default.

        *make_engine* makes the engine of a name, on a thread; it raises ModelUnavailable.
        *routes* names the model of a language; for every other language it is the default, or the next that knows it.
        *memory* is the most bytes of loaded models; the one that is wanted is loaded even if it alone takes more.
        """
        self.order = CallOrder()
        self._make_engine = make_engine
        self._memory = memory
        self._places = {model.name: _Place(model) for model in models}
        self._routes = dict(routes or {})
        for model in models:
            for language in model.languages:
                self._routes.setdefault(language, model.name)

    @classmethod
    def of(cls, engine: Engine) -> "ModelSet":
        """Return a set of one engine, which is loaded already."""
        known = KnownModel(
            engine.model,
            frozenset(engine.languages),
            longest_job=engine.longest_job,
            translates=engine.translates,
        )
        models = cls([known], lambda _: engine)
        models.pin(engine.model)
        return models

    def pin(self, name: str) -> None:
        """Load the model called *name* now, on this thread, and keep it loaded when it is idle.

        Raises ModelUnavailable.
        """
        place = self._places[name]
        place.engine = self._make_engine(name)
        place.scheduler, place.stays = Scheduler(place.engine, self.order), True

    def only(self, name: str) -> "OneModel":
        """Return the model called *name* alone, for those that want no other."""
        return OneModel(self, self._places[name].model)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, the default first."""
        return tuple(self._places)

    @property
    def languages(self) -> frozenset[str]:
        """All languages that one of the models knows."""
        return frozenset(self._routes)

    @property
    def first(self) -> str | None:
        """The language that is assumed before anything was heard: English if its model knows no other language."""
        return ENGLISH if ENGLISH in self._routes and self.shows_itself(ENGLISH) else None

    def name_for(self, language: str | None) -> str:
        """Return the name of the model for *language*; None: the default."""
        return self._routes.get(language or "", next(iter(self._places)))

    def translating(self, language: str | None) -> str | None:
        """Return the name of a model that translates *language*, best the one for it; None if there is none."""
        able = [
            name
            for name, place in self._places.items()
            if place.model.translates and language in (None, *place.model.languages)
        ]
        first = self.name_for(language)
        return first if first in able else next(iter(able), None)

    def longest_job(self, name: str) -> int:
        """Return the most samples of a file that the model called *name* is asked for at once, loaded or not."""
        return self._places[name].model.longest_job

    def admit(self, growth: float = 1.0) -> None:
        """Raise Overloaded unless the loaded models could take *growth* times the live windows of the last seconds."""
        for scheduler in self.schedulers().values():
            scheduler.admit(growth)

    def shows_itself(self, language: str) -> bool:
        """Whether the model of *language* knows no other one, so that its answers show whether that one is spoken."""
        return len(self._places[self.name_for(language)].model.languages) == 1

    async def model_for(self, language: str) -> Scheduler:
        """Return the model of a language. Raises EngineFailed if there is none, or it cannot be loaded."""
        if language not in self._routes:
            raise EngineFailed(f"No model here knows {language}.")
        return await self.load(self._routes[language])

    async def detector(self) -> Scheduler | None:
        """Return the model that detects languages: the one of the most languages; None if all know one language."""
        widest = max(self._places.values(), key=lambda place: len(place.model.languages))
        return await self.load(widest.model.name) if len(widest.model.languages) > 1 else None

    async def load(self, name: str) -> Scheduler:
        """Return the model called *name*, after loading it if need be. Raises EngineFailed if that is impossible."""
        place = self._places[name]
        place.used_at = time.monotonic()
        if place.scheduler is None:
            async with place.loading:
                if place.scheduler is None:
                    self._make_room(place)
                    try:
                        place.engine = await asyncio.to_thread(self._make_engine, name)
                    except ModelUnavailable as error:
                        raise EngineFailed(f"the model {name} cannot be loaded: {error}") from error
                    place.scheduler = Scheduler(place.engine, self.order)
        return place.scheduler

    def engine(self, name: str) -> Engine | None:
        """Return the engine of a model; None while it is not loaded."""
        return self._places[name].engine

    def schedulers(self) -> Mapping[str, Scheduler]:
        """Return the schedulers of the models that are loaded, by name."""
        return {name: place.scheduler for name, place in self._places.items() if place.scheduler is not None}

    def unload_idle(self, idle_s: float) -> list[str]:
        """Unload the models that nobody has wanted for *idle_s* seconds, and return their names.

        Those that were loaded with pin() stay.
        """
        since = time.monotonic() - idle_s
        idle = [place for place in self._idle if place.used_at < since and not place.stays]
        for place in idle:
            _unload(place)
        return [place.model.name for place in idle]

    def close(self) -> None:
        """Unload all models. What waits for them fails with EngineFailed."""
        for place in self._places.values():
            _unload(place)

    @property
    def _idle(self) -> list[_Place]:
        """The loaded models that have nothing to do, the longest idle first."""
        places = (place for place in self._places.values() if place.scheduler is not None and place.scheduler.idle)
        return sorted(places, key=lambda place: place.used_at)

    def _make_room(self, wanted: _Place) -> None:
        """Unload idle models until *wanted* fits into the memory, or none is left."""
        for place in self._idle:
            used = sum(other.model.size for other in self._places.values() if other.scheduler is not None)
            if self._memory is None or used + wanted.model.size <= self._memory:
                return
            _unload(place)


@dataclass(frozen=True, slots=True)
class OneModel:
    """One model of a set, for every language that it knows. It has what LanguageRouter needs of a ModelSet."""

    models: ModelSet
    model: KnownModel

    @property
    def languages(self) -> frozenset[str]:
        return self.model.languages

    @property
    def first(self) -> str | None:
        return ENGLISH if self.languages == {ENGLISH} else None

    def shows_itself(self, language: str) -> bool:  # noqa: ARG002  as that of a ModelSet
        return len(self.languages) == 1

    async def model_for(self, language: str) -> Scheduler:
        if language not in self.languages:
            raise EngineFailed(f"The model {self.model.name} does not know {language}.")
        return await self.models.load(self.model.name)

    async def detector(self) -> Scheduler | None:
        return await self.models.load(self.model.name) if len(self.languages) > 1 else None


def _unload(place: _Place) -> None:
    if place.scheduler is not None:
        place.scheduler.close()
    if place.engine is not None:
        place.engine.close()
    place.scheduler = place.engine = None
