"""The models of this process: production's by the settings, the sandbox's engine, which is always scripted.

They are unloaded while nobody uses them. In a cluster, nodes with a model publish what it offers, and nodes without one
read it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pipeline.batch import Batch
from pipeline.errors import ModelUnavailable
from pipeline.ingest import seccomp
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.memory import usable_bytes
from pipeline.ingest.vad import LiveVad, Vad
from pipeline.recognition.engine import SCRIPTED, Engine
from pipeline.recognition.engines.load import find_models
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import AUTO, EngineSettings, FoundModels, ModelSet
from pipeline.recognition.scheduler import SchedulerStatistics
from pipeline.recognition.turns import TurnEndDetector
from pipeline.speakers.windows import SpeakerModels
from pipeline.text.options import TextSettings
from pipeline.translation.translator import TranslatorUnavailable
from pipeline.weights import SEGMENTATION, TURN_ENDS, PackagedFile
from server.capacity import Capacity, capacities_of
from server.config import Config, ConfigError
from server.live.models import LiveModels
from server.logs import log
from server.model.errors import StorageError
from server.model.offers import ENGLISH, OPENAI_MODELS, Offer, OfferedModel
from server.model.orders import SEMANTIC, SILENCE
from server.storage.ports import Offers
from server.storage.sql.storage import Storage
from server.storage.waiting import patiently
from server.translation.remote import ChatTranslator, LibreTranslator, make_translator
from server.translation.translations import Translators
from server.waiting import set_within


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """One environment's models for files and for live sessions, and what clients may ask of them."""

    batch: Batch
    live: LiveModels
    offer: Offer
    translation: Translators
    statistics: Callable[[], Mapping[str, SchedulerStatistics]]  # by the names of the models that are loaded


T = TypeVar("T")

LOOK_S = 5.0  # between two looks for models that nobody uses
FIRST_S = 0.5  # between two reads while no offer is published
AGAIN_S = 30.0  # between two reads later, because a node may start with another model
MAX_SANDBOX_SESSIONS = 50  # live sessions of all accounts: one with a container takes a process and three threads
SANDBOX = {SCRIPTED: Capacity(SCRIPTED, SCRIPTED, MAX_SANDBOX_SESSIONS, 0.0, 0.0)}


@contextmanager
def open_decoder() -> Iterator[tuple[Mapping[str, ServedModels], Isolation]]:
    """Start the decoder and load no engine, for a node that accepts audio and leaves recognition to others."""
    with closing(Isolation()) as isolation:
        isolation.start()
        if (lack := seccomp.missing_support()) is not None:
            log.warning("decoders run without a filter of system calls: %s", lack)
        yield {}, isolation


@contextmanager
def open_engines(
    config: Config,
    threads: Executor,
    *,
    voices: bool = True,
    live: bool = True,
    at_start: Sequence[str | None] | None = None,
) -> Iterator[tuple[Mapping[str, ServedModels], Isolation]]:
    """Load every environment's models, and the decoder that they share. Raises ModelUnavailable.

    *voices*: False leaves out the models that label speakers, and *live* the one for the ends of turns: 0.1 s each.
    *at_start*: the languages whose models are loaded now; None is the default. Left out: the default, and the one that
    hears first. All others are loaded when they are wanted.
    """
    with ExitStack() as stack:
        _, isolation = stack.enter_context(open_decoder())
        chosen = _open_models(config, at_start)
        stack.callback(chosen.models.close)
        vad = Vad() if chosen.engine.name != SCRIPTED else None
        speakers = load_speaker_models() if voices and vad is not None else None
        turn_ends = load_turn_ends() if live and vad is not None else None
        if turn_ends is not None:
            stack.enter_context(closing(turn_ends))
        text = TextSettings(swearing=read_swear_words(config.profanity_file), phone_region=config.phone_region)
        live_vad = LiveVad(vad) if live and vad is not None else None
        if live_vad is not None:
            stack.enter_context(closing(live_vad))
        recognisers = Recognisers(vad, live_vad, speakers, turn_ends)
        measured = capacities_of(chosen.engine.name, chosen.models.names, config.data_dir)
        production = _serve(
            chosen,
            recognisers,
            isolation,
            threads,
            capacities=measured,
            text=text,
            limit=config.max_live_sessions or None,
            config=config,
        )
        scripted = _script_models()
        stack.callback(scripted.models.close)
        sandbox = _serve(scripted, Recognisers(), isolation, threads, capacities=SANDBOX, text=text)
        served = {"production": production, "sandbox": sandbox}
        named = {name: replace(engine, offer=with_aliases(engine.offer, config)) for name, engine in served.items()}
        yield named, isolation


@dataclass(frozen=True, slots=True)
class Recognisers:
    """The models beside those of Whisper; None: not installed, or a scripted engine, which needs none."""

    vad: Vad | None = None
    live_vad: LiveVad | None = None
    speakers: SpeakerModels | None = None
    turn_ends: TurnEndDetector | None = None


@dataclass(frozen=True, slots=True)
class _Models:
    """The models of an environment, one of them loaded, and what was found about them before."""

    engine: Engine
    models: ModelSet
    offered: Sequence[OfferedModel]
    bundled: bool = False  # all of them came with the installation
    unmeasured: frozenset[str] = frozenset()  # the names of models that use full windows until they are measured


def _script_models() -> _Models:
    engine = ScriptedEngine()
    models = ModelSet.of(engine)
    offered = OfferedModel(name=engine.model, languages=engine.languages, hears=engine.languages)
    return _Models(engine, models, [offered])


def _open_models(config: Config, at_start: Sequence[str | None] | None) -> _Models:
    """Find the models that the settings choose, and load those that are used first. Raises ModelUnavailable.

    Where the settings name none, a model that cannot be loaded is left out, with a warning in the log.
    """
    chosen = settings(config)
    found = find_models(chosen)
    while True:
        models = _model_set(config, found)
        languages = (None, models.first) if at_start is None else at_start
        names = dict.fromkeys(models.name_for(language) for language in languages)
        try:
            for name in names:
                models.pin(name)
        except ModelUnavailable as unavailable:
            models.close()
            if chosen.model != AUTO or len(found.models) == 1:
                raise
            log.warning("a model cannot be used, others take its place: %s", unavailable)
            found = found.without(name)
            continue
        engine = models.engine(name)
        assert engine is not None
        offered = [
            OfferedModel(
                name=model.name,
                languages=model.languages,
                hears=frozenset(code for code in model.languages if models.name_for(code) == model.name),
                translates=model.translates,
            )
            for model in found.models
        ]
        unmeasured = frozenset(model.name for model in found.models if model.measure is not None)
        bundled = all(model.bundled for model in found.models)
        return _Models(engine, models, offered, bundled=bundled, unmeasured=unmeasured)


def _model_set(config: Config, found: FoundModels) -> ModelSet:
    """Make the set of the models that were found. None is loaded."""
    load = {model.name: model.load for model in found.models}
    memory = config.model_memory_mib << 20 or (usable_bytes() // 2 if found.models[0].device == "cpu" else None)
    return ModelSet(found.models, lambda name: load[name](), routes=found.routes, memory=memory)


def with_aliases(offer: Offer, config: Config) -> Offer:
    """The offer with the additional names of the model from this node's settings."""
    return replace(offer, aliases=(*OPENAI_MODELS, *config.model_aliases))


def sandbox_offer() -> Offer:
    """The offer of the sandbox, which is the same on every node."""
    return _offer(_script_models(), None, None)


def settings(config: Config) -> EngineSettings:
    return EngineSettings(
        engine=config.engine,
        model=config.whisper_model,
        device=config.device,
        compute_type=config.compute_type,
        threads=config.model_threads,
        gpu_batch=config.gpu_batch,
        download_wait_s=config.model_download_s,
    )


def _serve(
    opened: _Models,
    recognisers: Recognisers,
    isolation: Isolation,
    threads: Executor,
    *,
    capacities: Mapping[str, Capacity],
    text: TextSettings,
    limit: int | None = None,
    config: Config | None = None,
) -> ServedModels:
    models = opened.models
    speakers, turn_ends = recognisers.speakers, recognisers.turn_ends
    batch = Batch(
        engine=opened.engine,
        models=models,
        vad=recognisers.vad,
        isolation=isolation,
        threads=threads,
        voices=speakers,
        text=text,
    )
    live = LiveModels(
        engine=opened.engine.name,
        models=models,
        unmeasured=opened.unmeasured,
        vad=recognisers.live_vad,
        speakers=speakers,
        capacities=capacities,
        limit=limit,
        text=text,
        turn_ends=turn_ends,
    )

    def statistics() -> Mapping[str, SchedulerStatistics]:
        return {name: scheduler.statistics() for name, scheduler in models.schedulers().items()}

    translation = Translators(models=models, text=text)
    if config is not None:
        timeout_s, wait_s = config.translation_timeout_s, config.translation_wait_s
        translation = replace(translation, remote=make_translator(config), timeout_s=timeout_s, wait_s=wait_s)
    offer = replace(_offer(opened, speakers, turn_ends), translates_to=translation.translates_to)
    return ServedModels(batch=batch, live=live, offer=offer, translation=translation, statistics=statistics)


def read_swear_words(path: Path | None) -> frozenset[str] | None:
    """Read the operator's swear words, in lower case; None if *path* is None. Raises ConfigError."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"PROFANITY_FILE must be a text file in UTF-8, got {str(path)!r}: {error}") from None
    return frozenset(word.casefold() for line in lines for word in line.partition("#")[0].split())


def load_speaker_models() -> SpeakerModels | None:
    """Load the models that label speakers, or return None if they are not installed."""
    return _load_if_installed(SEGMENTATION, SpeakerModels, "speakers cannot be told apart")


def load_turn_ends() -> TurnEndDetector | None:
    """Load the model for the ends of turns, or return None if it is not installed."""
    return _load_if_installed(TURN_ENDS, TurnEndDetector, "turns end by silence alone")


def _load_if_installed(weights: PackagedFile, load: Callable[[], T], otherwise: str) -> T | None:
    try:
        return load() if weights.installed else None
    except ModelUnavailable as unavailable:
        log.warning("%s: %s", otherwise, unavailable)
        return None


def _offer(opened: _Models, speakers: SpeakerModels | None, turn_ends: TurnEndDetector | None) -> Offer:
    """What clients may ask of the models."""
    engine, offered = opened.engine.name, opened.offered
    used = [model for model in offered if model.hears]
    several = [model.translates for model in used if model.languages != ENGLISH]
    return Offer(
        engine=engine,
        model=opened.models.names[0],
        languages=opened.models.languages,
        translates=bool(several) and all(several),
        speakers=speakers is not None or engine == SCRIPTED,
        endpointing=(SILENCE,) if turn_ends is None else (SILENCE, SEMANTIC),
        bundled=opened.bundled,
        models=tuple(offered),
    )


async def unload_idle(models: ModelSet, idle_s: float, closing: asyncio.Event) -> None:
    """Unload each model that nobody used for *idle_s* seconds, until *closing* is set; with 0 none."""
    while not await set_within(closing, LOOK_S):
        for name in models.unload_idle(idle_s) if idle_s else ():
            log.info("unloaded a model that nobody uses", extra={"model": name})


async def publish_offer(engines: Mapping[str, ServedModels], storage: Storage) -> None:
    """Publish this node's offer for nodes without a model. Does nothing if there are no other nodes."""
    if storage.offers is not None:
        await storage.offers.publish(engines["production"].offer)


async def learn_targets(
    translator: ChatTranslator | LibreTranslator, offers: MutableMapping[str, Offer], closing: asyncio.Event
) -> None:
    """Ask the operator's translator for its languages until it says them. Until then any may be ordered."""
    while True:
        try:
            targets = tuple(await translator.targets())
        except TranslatorUnavailable as unavailable:
            log.warning("the translator cannot be asked for its languages: %s", unavailable)
            if await set_within(closing, AGAIN_S):
                return
        else:
            offers["production"] = replace(offers["production"], translates_to=targets)
            await closing.wait()
            return


class OfferWatch:
    """The offers of each environment on a node without a model. run() keeps them up to date."""

    def __init__(self, offers: Offers, config: Config) -> None:
        self._published = offers
        self._config = config
        self.offers: dict[str, Offer] = {"sandbox": with_aliases(sandbox_offer(), config)}

    async def wait(self) -> None:
        """Wait until a node with a model has published its offer."""
        if not await patiently(self._read):
            log.warning("waiting for a node with a model: one with the role live or worker")
            while not await patiently(self._read):  # noqa: ASYNC110  another process sets it
                await asyncio.sleep(FIRST_S)

    async def run(self, closing: asyncio.Event) -> None:
        """Read the published offer every AGAIN_S seconds, until *closing* is set."""
        while not await set_within(closing, AGAIN_S):
            try:
                await self._read()
            except StorageError as error:  # the next read may succeed, and the offer hardly ever changes
                log.warning("what the model offers could not be looked up: %s", error)

    async def _read(self) -> bool:
        """Read the published offer. Returns whether there is one."""
        offer = await self._published.last()
        if offer is not None:
            self.offers["production"] = with_aliases(offer, self._config)
        return offer is not None
