"""Runs the whole app in this process: real storage and uvicorn on loopback, with a scripted recogniser.

Tests talk to it over HTTP from their own thread, and may look into its storage.
"""

import asyncio
import atexit
import functools
import io
import resource
import ssl
import threading
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import httpx
import numpy as np
import uvloop
from numpy.typing import NDArray

from estimator import Estimator
from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.recognition.engines.scripted import SCRIPT, ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import SchedulerStatistics
from pipeline.words import Chunk, Segment, Word
from server.accounts.keys import open_account
from server.accounts.limits import Limits, read_limits
from server.app import LIVE_RULES, Service, build
from server.clock import now_ms
from server.config import PREFIX, Config
from server.dialects.dialect import Dialect
from server.dialects.registered import DIALECTS
from server.engines import ServedModels
from server.live.models import LiveModels
from server.live.parts import LiveRules
from server.model.offers import Offer
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import open_storage
from server.translation.remote import make_translator
from server.translation.translations import Translators
from server.transport.connections import Connections, connection_limits
from server.transport.http_server import HttpServer, listen
from tests.server.conforming import Description
from tests.waiting import eventually

T = TypeVar("T")

Script: TypeAlias = Callable[[Path, BatchOptions, Sequence[Chunk]], AsyncGenerator[Chunk]]
"""What a recogniser does with a file: (path, options, chunks that are already safe) -> the chunks behind them."""

LIMITS = read_limits(Config.from_env({}))
TLS = ssl.create_default_context()  # never used on loopback, but otherwise every client would make its own


@functools.cache
def isolation() -> Isolation:
    """Return the one decoder of this process, because starting it takes a second."""
    decoder = Isolation()
    atexit.register(decoder.close)
    return decoder


def wav(duration_s: float = 1.0) -> bytes:
    """Return a small valid recording of silence."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * round(8000 * duration_s)))
    return out.getvalue()


def chunk(index: int, *texts: str) -> Chunk:
    """Return chunk *index* of a file whose chunks are a second long. Its *texts* are one segment."""
    start = index * RATE
    step = RATE // max(1, len(texts))
    words = tuple(Word(text, start + place * step, start + (place + 1) * step, 0.9) for place, text in enumerate(texts))
    return Chunk(
        index=index,
        jobs_done=index + 1,
        start=start,
        end=start + RATE,
        segments=(Segment(words, -0.1, 0.0),) if words else (),
        language="en",
        language_probability=0.98,
    )


class ScriptedBatch:
    """Replaces pipeline.batch.Batch. The `prompt` of a job picks one of *scripts*; without one it says HEARD."""

    HEARD = ("so", "my", "fellow")
    engine_name = "scripted"

    def model_of(self, _language: str | None) -> str:
        return "test"

    known: ClassVar[Mapping[str, Script]] = {}  # for a server that has jobs waiting when it starts

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = dict(self.known)
        self.options: list[BatchOptions] = []

    async def learn_voices(self, recordings: Mapping[str, bytes]) -> Mapping[str, NDArray[np.float32]]:
        return {name: np.zeros(256, np.float32) for name in recordings}

    async def transcribe(
        self, path: Path, options: BatchOptions, *, done: Sequence[Chunk] = ()
    ) -> AsyncGenerator[Chunk]:
        self.options.append(options)
        if script := self.scripts.get(options.hints.prompt):
            async for made in script(path, options, done):
                yield made
        elif not done:
            yield chunk(0, *self.HEARD)


def config(**variables: str) -> Config:
    """Return settings as the environment gives them. Names have no prefix."""
    return Config.from_env({PREFIX + name: value for name, value in variables.items()})


@dataclass
class AppServer:
    """A server that runs in a thread of this process."""

    base: str
    storage: Storage
    service: Service
    batch: ScriptedBatch
    answering: HttpServer = field(repr=False)
    loop: asyncio.AbstractEventLoop = field(repr=False)

    def wait(self, work: Coroutine[Any, Any, T], *, max_s: float = 20) -> T:
        """Run *work* in the server's event loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(max_s)

    def call(self, act: Callable[[], T]) -> T:
        async def run_act() -> T:
            return act()

        return self.wait(run_act())

    def key(self, plan: str = "pro", environment: str = "production", **limits: object) -> str:
        """Make a new account and return its key."""
        _, issued = self.wait(
            open_account(self.storage.accounts, plan=plan, environment=environment, name=None, limits=limits)
        )
        return issued.secret

    @functools.cached_property
    def description(self) -> Description:
        return Description(httpx.get(f"{self.base}/openapi.json").json(), base_url=self.base)

    def client(self, key: str | None = None, *, sandbox: bool = False) -> httpx.Client:
        """Return a client that raises an error if an answer is not as the server describes it."""
        return httpx.Client(
            base_url=self.base + ("/sandbox" if sandbox else ""),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=20,
            verify=TLS,
            event_hooks={"response": [self.description.check]},
        )

    def new_client(self, plan: str = "pro", *, sandbox: bool = False, **limits: object) -> httpx.Client:
        """Return a client of a new account."""
        return self.client(self.key(plan, "sandbox" if sandbox else "production", **limits), sandbox=sandbox)


@contextmanager
def serve(
    folder: Path,
    *,
    limits: Limits = LIMITS,
    live: LiveRules = LIVE_RULES,
    storage: Callable[[], Storage] | None = None,  # None: opens the data folder
    script: Sequence[str] = SCRIPT,  # what the engine says
    dialects: Sequence[Dialect] = DIALECTS,
    **variables: str,
) -> Iterator[AppServer]:
    """Run a server with its storage in *folder*; *variables* are as in config()."""
    started = threading.Event()
    out: list[AppServer] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    async def main() -> None:
        async with _serve(
            folder, limits, live, storage=storage, script=script, dialects=dialects, variables=variables
        ) as server:
            out.append(server)
            started.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            uvloop.run(main())
        except BaseException as error:  # noqa: BLE001  raised again in the test's thread
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    started.wait(30)
    try:
        if not out:
            raise failed[0] if failed else AssertionError("the server did not get ready")
        yield out[0]
    finally:
        stop.set()
        thread.join(30)
    if failed:
        raise failed[0]


@asynccontextmanager
async def _serve(
    folder: Path,
    limits: Limits,
    live: LiveRules,
    *,
    storage: Callable[[], Storage] | None,
    script: Sequence[str],
    dialects: Sequence[Dialect],
    variables: Mapping[str, str],
) -> AsyncIterator[AppServer]:
    usual = {
        "PORT": "0",
        "EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
        "ALLOW_HTTP_SOURCES": "1",
        "WORKERS": "2",
        "DISK_RESERVE_MIB": "0",  # tests run on small disks too
    }
    settings = config(**{**usual, **variables})
    batch, engine = ScriptedBatch(), ScriptedEngine(script)
    reserve_bytes = settings.disk_reserve_bytes
    stores = storage() if storage else open_storage(folder / "data", clock=now_ms, reserve_bytes=reserve_bytes)
    with listen(settings) as listening, ThreadPoolExecutor(4) as threads, closing(ModelSet.of(engine)) as models:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        service = build(
            settings,
            limits=limits,
            storage=stores,
            engines=_engines(batch, engine, models, threads, settings=settings),
            isolation=isolation(),
            estimator=Estimator(),
            public_base_url=settings.public_base_url or base,
            live_rules=live,
            dialects=dialects,
        )
        answering = HttpServer(service.app, listening, _connections(settings, service))
        try:
            async with service.running():
                serving = asyncio.create_task(answering.serve())
                await eventually(lambda: answering.started)
                yield AppServer(base, stores, service, batch, answering, asyncio.get_running_loop())
                service.begin_stop()
                answering.should_exit = True
                await serving
        finally:
            await stores.close()


def _engines(
    batch: ScriptedBatch, engine: ScriptedEngine, models: ModelSet, threads: ThreadPoolExecutor, *, settings: Config
) -> dict[str, ServedModels]:
    rehearsal = Batch(engine=engine, models=models, vad=None, isolation=isolation(), threads=threads)
    live = LiveModels(engine=engine.name, models=models, vad=None)
    offer = Offer(engine="scripted", model="test", languages=frozenset({"en", "de"}), translates=True, speakers=True)
    sandbox = Offer(engine="scripted", model=engine.model, languages=engine.languages, speakers=True)
    timeout_s, wait_s = settings.translation_timeout_s, settings.translation_wait_s
    translation = Translators(models=models, remote=make_translator(settings), timeout_s=timeout_s, wait_s=wait_s)

    def statistics() -> dict[str, SchedulerStatistics]:
        return {"test": models.schedulers()[engine.model].statistics()}

    return {
        "production": ServedModels(
            batch=batch,
            live=live,
            offer=replace(offer, translates_to=translation.translates_to),
            translation=translation,
            statistics=statistics,
        ),
        "sandbox": ServedModels(
            batch=rehearsal,
            live=live,
            offer=sandbox,
            translation=Translators(models=models),
            statistics=statistics,
        ),
    }


def _connections(settings: Config, service: Service) -> Connections:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    rules, proxies = connection_limits(settings, descriptors), settings.trusted_proxies
    return Connections(rules, trusted_proxies=proxies, metrics=service.parts.metrics)
