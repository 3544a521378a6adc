"""The engines of this process, loaded once: production's by configuration, the sandbox's always scripted."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pipeline.batch import Batch
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.scheduler import Scheduler
from server.app import Bench
from server.capacity import sessions_of
from server.config import Config
from server.live.hearing import Hearing
from server.routes.accepting import Offer


@contextmanager
def open_benches(config: Config, threads: Executor) -> Iterator[tuple[Mapping[str, Bench], Isolation]]:
    """Every environment's engine, and the decoder that they share. Raises ModelUnavailable."""
    with ExitStack() as stack:
        isolation = stack.enter_context(closing(Isolation()))
        isolation.start()
        engine = stack.enter_context(closing(load(settings(config))))
        voice = VoiceDetector() if engine.name != "scripted" else None
        production = _bench(stack, engine, voice, isolation, threads, data_dir=config.data_dir)
        sandbox = _bench(stack, ScriptedEngine(), None, isolation, threads, data_dir=config.data_dir)
        yield {"production": production, "sandbox": sandbox}, isolation


def settings(config: Config) -> EngineSettings:
    return EngineSettings(
        engine=config.engine,
        model=config.whisper_model,
        device=config.device,
        compute_type=config.compute_type,
        threads=config.model_threads,
        download_wait_s=config.model_download_s,
    )


def _bench(
    stack: ExitStack,
    engine: Engine,
    voice: VoiceDetector | None,
    isolation: Isolation,
    threads: Executor,
    *,
    data_dir: Path,
) -> Bench:
    scheduler = stack.enter_context(closing(Scheduler(engine)))
    batch = Batch(engine=engine, recognition=scheduler, voice=voice, isolation=isolation, threads=threads)
    hearing = Hearing(
        engine=engine.name,
        model=engine.model,
        listener=scheduler,
        admission=scheduler,
        voice=voice,
        most=sessions_of(engine, data_dir),
    )
    return Bench(
        batch=batch,
        hearing=hearing,
        offer=Offer(languages=engine.languages, models={engine.model}),
        statistics=scheduler.statistics,
    )
