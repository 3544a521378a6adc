"""A desk of live sessions on real storage, and sessions as a dead server leaves them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from pipeline.audio import RATE
from pipeline.documents.stored import pack_chunk as stored_chunk
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.words import Chunk, Segment, Word
from server.accounts.plans import Plans
from server.jobs.housekeeping import Chore, Housekeeping
from server.live.models import LiveModels
from server.live.parts import SessionParts
from server.live.rules import LiveRules
from server.live.session import LiveSession
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.model.events import NewEvent
from server.model.jobs import State
from server.model.leases import Lease
from server.model.orders import LiveOptions, Order
from server.storage.sql.storage import Storage
from server.streams.partials import Partials
from tests.server.serving import LIMITS, isolation
from tests.server.storing import LEASE_S, submit

RULES = LiveRules(look_s=0.02, stale_s=0.02)


@asynccontextmanager
async def session_registry(
    storage: Storage, *, models: ModelSet | None = None, engine: str = "scripted", **more: Any
) -> AsyncIterator[SessionRegistry]:
    """Run a desk until the block is left, whose engine has this name and *more* members."""
    closing, models = asyncio.Event(), models or ModelSet.of(ScriptedEngine())
    hearing = LiveModels(engine=engine, models=models, vad=None, **more)
    made = SessionRegistry(
        SessionParts(
            worker="w",
            storage=storage,
            partials=Partials(),
            engines={"production": hearing},
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
    """Order a session, and open it at the desk."""
    return await registry.open(await storage.jobs.get(await submit(storage, order=wanted)))


async def begin_session(storage: Storage, job_id: str) -> Lease:
    """Make a session as a dead server leaves it: one segment closed, two words of the next committed."""
    lease = await storage.jobs.claim_live(job_id, "dead", lease_s=LEASE_S)
    segment = Segment((Word("so", 0, 8000, 0.9), Word("my", 8000, 16_000, 0.9)), -0.1, 0.0)
    words = [{"index": n, "segment": 0, "word": text, "start": n / 2, "end": n / 2 + 0.5, "probability": 0.9}
             for n, text in enumerate(["so", "my", "fellow", "Americans"])]  # fmt: skip
    events = [NewEvent("word", orjson.dumps(word)) for word in words]
    chunk = Chunk(0, 0, 0, RATE, (segment,), "en", 0.9)
    assert await storage.jobs.checkpoint(
        lease, index=0, body=stored_chunk(chunk), events=events[:2], progress=0.0, lease_s=LEASE_S
    )
    assert await storage.jobs.log(lease, events[2:]) is not None
    return lease


async def is_over(storage: Storage, job_id: str) -> State:
    async with asyncio.timeout(20):
        while True:
            job = await storage.jobs.get(job_id)
            if job.terminal:
                return job.state
            await storage.jobs.wait_for_change(job, timeout_s=1)
