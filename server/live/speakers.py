"""Labels the voices of a live session on a thread, while the recogniser works, and reports revised labels."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ParamSpec, TypeVar

import numpy as np

from pipeline.attribution import SpeakerRun
from pipeline.audio import RATE, Samples
from pipeline.events import Changes
from pipeline.speakers.live import LiveSpeakers, SpeakerState, read_state
from pipeline.words import SpeakerTurn
from server.background import contain
from server.jobs.leases import HeldLease
from server.jobs.probing import voices_key
from server.logs import log
from server.metrics import Metrics
from server.model.errors import BlobsAway, DiskFull
from server.model.jobs import Job, LeaseLost
from server.storage.ports import BlobStore

REFRESHED = 10 * RATE
"""The audio after which voices are stored again. A new label is stored at once."""


class SpeakerStore:
    """The stored voices of one session, which only the holder of its lease writes."""

    def __init__(self, held: HeldLease, blobs: BlobStore) -> None:
        self._held = held
        self._blobs = blobs
        self._prefix = f"{voices_key(held.job.id)}/labels-"
        named = held.job.blob or ""
        self._newest = named if named.startswith(self._prefix) else None
        self._written = 0
        self._labels: set[str] = set()  # that are stored
        self._position = 0  # of the last attempt to store
        self._failing = False

    async def read(self) -> SpeakerState:
        """Return what was stored last, nothing if nothing was. Raises BlobsAway."""
        if self._newest is None:
            return SpeakerState()
        state = read_state(b"".join([piece async for piece in self._blobs.read(self._newest)]))
        self._labels = state.labels()
        return state

    async def write(self, state: SpeakerState, position: int) -> None:
        """Store the newest state if it has a new label, or if *position* is REFRESHED after the last one.

        Raises LeaseLost. No error of the storage may end the session, whose words do not need it: the next call tries
        again.
        """
        labels = state.labels()
        if labels <= self._labels and (not labels or position < self._position + REFRESHED):
            return
        try:
            await self._write(state)
        except (BlobsAway, DiskFull, OSError) as error:
            if not self._failing:
                log.warning("speakers cannot be stored now: %s", error, extra={"job": self._held.job.id})
            self._failing = True
        else:
            self._failing = False
            self._labels, self._position = labels, position

    async def _write(self, state: SpeakerState) -> None:
        before = self._newest
        self._written += 1
        key = f"{self._prefix}{self._held.lease.epoch}-{self._written}"
        async with self._blobs.create(key, leave_reserve=True) as sink:
            await sink.write(state.to_bytes())
        try:
            await self._held.note(blob=key)
        except LeaseLost:
            await self._blobs.delete(key)
            raise
        self._newest = key
        if before is not None:
            await self._blobs.delete(before)  # if this fails, it is deleted with the others when the job has ended


P = ParamSpec("P")
T = TypeVar("T")

MOST_WAITING = 60 * RATE
"""If more samples wait to be labelled, the writer waits, as it does for the recogniser."""


@dataclass(slots=True, eq=False)
class SpeakerListener:
    """Passes the audio of a session to its LiveSpeakers, on a thread. run() is a task of the session."""

    speakers: LiveSpeakers
    job: Job
    _: KW_ONLY
    revise: Callable[[Sequence[SpeakerRun]], Awaitable[None]]
    store: SpeakerStore | None  # None: labels do not depend on voices
    metrics: Metrics
    _heard: int = field(init=False, default=0)  # samples
    _waiting: list[Samples] = field(init=False, default_factory=list)
    _changes: Changes = field(init=False, default_factory=Changes)
    _ended: bool = field(init=False, default=False)

    def add(self, samples: Samples) -> None:
        """Add samples, of shape (n, channels) if channels are separate."""
        if not self._ended:
            self._waiting.append(samples)
            self._changes.notify()

    async def wait_until_caught_up(self) -> None:
        """Wait while more than MOST_WAITING samples are unprocessed."""
        await self._changes.until(lambda: self._ended or self._length <= MOST_WAITING)

    def end_audio(self) -> None:
        """Add no more samples. run() ends after the last one."""
        self._ended = True
        self._changes.notify()

    async def run(self) -> None:
        """Listen to a second or more at a time until the end, and store what a restart needs."""
        try:
            while not self._ended or self._waiting:
                await self._changes.until(lambda: self._ended or self._length >= RATE)
                samples, self._waiting = self._waiting, []
                runs = await self._listen(np.concatenate(samples)) if samples else []
                if self.store is not None:
                    await self.store.write(self.speakers.state(), self._heard)
                if runs:
                    self.metrics.speaker_revisions.inc()
                    await self.revise(runs)
                self._changes.notify()
        finally:
            self.end_audio()  # nobody waits for what failed

    async def _listen(self, whole: Samples) -> list[SpeakerRun]:
        self._heard += len(whole)
        each = [whole] if whole.ndim == 1 else list(whole.T)
        by_channel = dict(zip(self.job.order.live_channels, each, strict=True))
        with contain("speakers", self.metrics, job=self.job.id):  # words are reported all the same
            return await asyncio.to_thread(self._time, self.speakers.listen, by_channel)
        return []

    async def finish(self) -> tuple[SpeakerTurn, ...]:
        """The turns of all speakers. Call it after run(). After a fault there are none."""
        with contain("speakers", self.metrics, job=self.job.id):
            return await asyncio.to_thread(self._time, self.speakers.finish)
        return ()

    def _time(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        began = time.thread_time()
        try:
            return work(*args, **kwargs)
        finally:
            self.metrics.speakers_cpu.inc(time.thread_time() - began)

    @property
    def _length(self) -> int:
        return sum(map(len, self._waiting))
