"""A registry of live sessions on real storage, and sessions as a dead server leaves them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from pipeline.events import TimedEvent
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.speakers.live import LiveSpeakers
from pipeline.timeline import DecidedUpTo, Entry, LanguageFound, StoredWord, Words, end_of
from pipeline.transcription import Continuation, Transcription
from pipeline.words import Segment, Word
from server.accounts.limits import Plans
from server.jobs.housekeeping import Chore, Housekeeping
from server.live.models import LiveModels
from server.live.parts import LiveRules, SessionParts
from server.live.reporting import Reporter
from server.live.session import LiveSession
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.model.jobs import Lease, State
from server.model.orders import LiveOptions, Order
from server.storage.sql.storage import Storage
from server.streams.feed import Partials
from server.translation.translations import Translators
from tests.server.serving import LIMITS, isolation
from tests.server.storing import LEASE_S, submit

RULES = LiveRules(look_s=0.02, stale_s=0.02)


@asynccontextmanager
async def session_registry(
    storage: Storage, *, models: ModelSet | None = None, engine: str = "scripted", **more: Any
) -> AsyncIterator[SessionRegistry]:
    """Run a registry until the block is left, whose engine has this name and *more* members."""
    closing, models = asyncio.Event(), models or ModelSet.of(ScriptedEngine())
    hearing = LiveModels(engine=engine, models=models, vad=None, **more)
    made = SessionRegistry(
        SessionParts(
            worker="w",
            storage=storage,
            partials=Partials(),
            engines={"production": hearing},
            translations={"production": Translators(models=models)},
            isolation=isolation(),
            plans=Plans(storage.accounts, LIMITS),
            metrics=Metrics(),
            closing=closing,
            rules=RULES,
        )
    )
    finishing = Chore("finishing", RULES.stale_s, made.finish_stale)
    stopping = Chore("stopping", RULES.look_s, made.stop_canceled)
    housekeeping = Housekeeping([finishing, stopping], Metrics(), closing)
    running = asyncio.gather(made.run(), housekeeping.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        closing.set()
        await asyncio.wait_for(running, 20)
        models.close()


def order(*, separate: bool = False, **live: object) -> Order:
    return Order(separate=separate, live=LiveOptions(**live))  # type: ignore[arg-type]  # values of several types


async def open_new(registry: SessionRegistry, storage: Storage, wanted: Order) -> LiveSession:
    """Order a session, and open it at the registry."""
    return await registry.open(await storage.jobs.get(await submit(storage, order=wanted)))


async def begin_session(storage: Storage, job_id: str) -> Lease:
    """Make a session as a dead server leaves it: one segment closed, two words of the next committed."""
    lease = await storage.jobs.claim_live(job_id, "dead", lease_s=LEASE_S)
    said = [Word(text, n * 8000, n * 8000 + 8000, 0.9) for n, text in enumerate(["so", "my", "fellow", "Americans"])]
    entries = [LanguageFound("en", 0.9), committed(0, 0, *said[:2]), ended(0, *said[:2]), committed(2, 1, *said[2:])]
    assert await storage.jobs.append(lease, entries) is not None
    return lease


def committed(first: int, segment: int, *words: Word, channel: int | None = None, speaker: str | None = None) -> Words:
    """The entry for words that a session committed."""
    return Words(first, segment, tuple(StoredWord.of(word, lag_ms=500, speaker=speaker) for word in words), channel)


def ended(segment: int, *words: Word, channel: int | None = None) -> Entry:
    return end_of(segment, Segment(words, -0.1, 0.0, channel), forced=False)


def after(*words: Word, silent_until: int = 0) -> Continuation:
    """Where a session goes on that committed these words in one segment, and then heard nothing."""
    entries: list[Entry] = [committed(0, 0, *words), ended(0, *words)] if words else []
    return Transcription.of([*entries, DecidedUpTo(silent_until)] if silent_until else entries).place


class Kept:
    """A HeldLease that keeps what is appended, for an order."""

    def __init__(self, order: Order) -> None:
        self.job = SimpleNamespace(id="job", order=order)
        self.last_seq = 0
        self.entries: list[Entry] = []

    async def append(self, entries: Sequence[Entry]) -> None:
        self.entries += entries
        self.last_seq += len(entries)


async def report(
    batches: Iterable[Sequence[TimedEvent]],
    past: Transcription | None = None,
    *,
    speakers: LiveSpeakers | None = None,
    received: int = 2**40,
    wanted: Order | None = None,
) -> tuple[list[Entry], Reporter, Partials]:
    """Report what happened, batch by batch, after *past*. Return the entries that were stored."""
    held, partials = Kept(wanted or order()), Partials()
    parts = SimpleNamespace(partials=partials, metrics=Metrics())
    reporter = Reporter(held, past or Transcription(), parts, speakers)  # type: ignore[arg-type]
    for batch in batches:
        await reporter.write(batch, received=received)
    return held.entries, reporter, partials


async def is_over(storage: Storage, job_id: str) -> State:
    async with asyncio.timeout(20):
        while True:
            job = await storage.jobs.get(job_id)
            if job.terminal:
                return job.state
            await storage.jobs.wait_for_change(job, timeout_s=1)
