"""Loads the engines of this process: production's by the settings, the sandbox's, which is always scripted."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.batch import Batch
from pipeline.errors import ModelUnavailable
from pipeline.ingest import seccomp
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import SCRIPTED
from pipeline.recognition.engines.load import EngineSettings, Loaded, choose
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.scheduler import Scheduler, SchedulerStatistics
from pipeline.recognition.turn_end import WEIGHTS, TurnEndDetector
from pipeline.speakers.weights import SEGMENTATION
from pipeline.speakers.windows import SpeakerModels
from pipeline.text.options import TextSettings
from server.capacity import Capacity, capacity_of
from server.config import Config, ConfigError
from server.live.engine import LiveEngine
from server.model.offers import OPENAI_MODELS, Offer
from server.model.orders import SEMANTIC, SILENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngine:
    """One environment's engine for files and for live sessions, and what clients may ask of it."""

    batch: Batch
    live: LiveEngine
    offer: Offer
    statistics: Callable[[], SchedulerStatistics]


log = logging.getLogger(__name__)

MAX_SANDBOX_SESSIONS = 50  # live sessions of all accounts: one with a container takes a process and three threads
SANDBOX = Capacity(SCRIPTED, SCRIPTED, MAX_SANDBOX_SESSIONS, 0.0, 0.0)


@contextmanager
def open_decoder() -> Iterator[tuple[Mapping[str, ServedEngine], Isolation]]:
    """Start the decoder and load no engine, for a node that accepts audio and leaves recognition to others."""
    with closing(Isolation()) as isolation:
        isolation.start()
        if (lack := seccomp.missing_support()) is not None:
            log.warning("decoders run without a filter of system calls: %s", lack)
        yield {}, isolation


@contextmanager
def open_engines(
    config: Config, threads: Executor, *, voices: bool = True, live: bool = True
) -> Iterator[tuple[Mapping[str, ServedEngine], Isolation]]:
    """Load every environment's engine, and the decoder that they share. Raises ModelUnavailable.

    Without *voices* the models that label speakers are not loaded, and without *live* the model for the ends of turns.
    Each of them takes 0.1 s.
    """
    with ExitStack() as stack:
        _, isolation = stack.enter_context(open_decoder())
        loaded = choose(settings(config))
        stack.enter_context(closing(loaded.engine))
        voice = VoiceDetector() if loaded.engine.name != SCRIPTED else None
        measured = capacity_of(loaded.engine, config.data_dir)
        speakers = load_speaker_models() if voices and voice is not None else None
        turn_ends = load_turn_ends() if live and voice is not None else None
        if turn_ends is not None:
            stack.enter_context(closing(turn_ends))
        text = TextSettings(swearing=read_swear_words(config.profanity_file), phone_region=config.phone_region)
        models = (voice, speakers, turn_ends)
        production = _serve(stack, loaded, models, isolation, threads, capacity=measured, text=text)
        scripted = Loaded(ScriptedEngine())
        sandbox = _serve(stack, scripted, (None, None, None), isolation, threads, capacity=SANDBOX, text=text)
        served = {"production": production, "sandbox": sandbox}
        named = {name: replace(engine, offer=with_aliases(engine.offer, config)) for name, engine in served.items()}
        yield named, isolation


def with_aliases(offer: Offer, config: Config) -> Offer:
    """The offer with the additional names of the model from this node's settings."""
    return replace(offer, aliases=(*OPENAI_MODELS, *config.model_aliases))


def sandbox_offer() -> Offer:
    """The offer of the sandbox, which is the same on every node."""
    return _offer(Loaded(ScriptedEngine()), None, None)


def settings(config: Config) -> EngineSettings:
    return EngineSettings(
        engine=config.engine,
        model=config.whisper_model,
        device=config.device,
        compute_type=config.compute_type,
        threads=config.model_threads,
        download_wait_s=config.model_download_s,
    )


def _serve(
    stack: ExitStack,
    loaded: Loaded,
    voices: tuple[VoiceDetector | None, SpeakerModels | None, TurnEndDetector | None],
    isolation: Isolation,
    threads: Executor,
    *,
    capacity: Capacity | None,
    text: TextSettings,
) -> ServedEngine:
    engine = loaded.engine
    scheduler = stack.enter_context(closing(Scheduler(engine)))
    voice, speakers, turn_ends = voices
    batch = Batch(
        engine=engine,
        recogniser=scheduler,
        voice=voice,
        isolation=isolation,
        threads=threads,
        voices=speakers,
        text=text,
    )
    live = LiveEngine(
        engine=engine.name,
        model=engine.model,
        recogniser=scheduler,
        headroom=scheduler,
        voice=voice,
        speakers=speakers,
        max_sessions=None if capacity is None else capacity.sessions,
        speakers_load=0.0 if capacity is None else capacity.speakers_load,
        text=text,
        turn_ends=turn_ends,
    )
    offer = _offer(loaded, speakers, turn_ends)
    return ServedEngine(batch=batch, live=live, offer=offer, statistics=scheduler.statistics)


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
    if not SEGMENTATION.installed:
        return None
    try:
        return SpeakerModels()
    except ModelUnavailable as unavailable:
        log.warning("speakers cannot be told apart: %s", unavailable)
        return None


def load_turn_ends() -> TurnEndDetector | None:
    """Load the model for the ends of turns, or return None if it is not installed."""
    if not WEIGHTS.installed:
        return None
    try:
        return TurnEndDetector()
    except ModelUnavailable as unavailable:
        log.warning("turns end by silence alone: %s", unavailable)
        return None


def _offer(loaded: Loaded, speakers: SpeakerModels | None, turn_ends: TurnEndDetector | None) -> Offer:
    """What clients may ask of the engine. If it has another model than the settings name, its jobs get a warning."""
    engine = loaded.engine
    offer = Offer(
        engine=engine.name,
        model=engine.model,
        languages=frozenset(engine.languages),
        translates=engine.translates,
        speakers=speakers is not None or engine.name == SCRIPTED,
        endpointing=(SILENCE,) if turn_ends is None else (SILENCE, SEMANTIC),
        bundled=loaded.bundled,
    )
    if loaded.instead_of is None:
        return offer
    used = f"{offer.model} ({offer.language_summary})"
    message = f"recognised by the model {used}, because {loaded.instead_of} could not be loaded"
    return replace(offer, warnings=({"code": "fallback_model", "message": message},))
