"""One loaded model, shared by everyone: whose window is heard next, and with whom it shares a call.

The model takes as many calls at a time as its engine has replicas, each on a thread of its own. While people speak it
takes fewer, so that a processor core is left to everything else; live windows then do not wait until the calls of files
that are under way have ended. Whenever there is room, the most urgent window waiting is chosen: live before files,
finals before partials, the longest waiting first; among files, whoever has had the least of the model. Windows of the
same bucket fill the call up to what the engine takes, those of files only as long as it stays short. Nobody waits for a
batch to fill: batches form by themselves when there is more to do than the model can.

For one event loop at a time.
"""

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TypeVar

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.engine import DecodeRequest, Engine, Heard

T = TypeVar("T")

MAX_WAITING = 4096
"""Windows that may wait; each holds up to 30 s of audio, 2 MB. More are refused."""

LONGEST_CALL_S = 300.0
"""A call that takes longer is taken to hang; eight windows of 30 s on a large model and a slow machine stay below."""

STARVING_S = 3.0
"""A file that has waited for so long goes before live windows, once: they slow down, but no file stands still."""

LATE_S = 1.0
"""One more session would be too many while the live window that waits longest has waited for longer than this."""

FILES_S = 2.0
"""A call takes as many windows of files as are heard in this time, at least one where it is their turn: who begins to
speak has to wait for its end."""

FILES_AMID_SPEECH_S = 0.5
"""The same while people speak ..."""

PAUSE_S = 30.0
"""... and they speak until no live window came for so long."""

CALL_SMOOTHING = 0.2
"""Weight of the newest call in averages."""

FORGETTING = 0.05
"""The same, where falling behind is made up for: one good moment is not yet room for more."""

LANGUAGE_WINDOWS = 8
"""Windows of a file whose language is asked: those of 30 s of speech."""

MEMORY_S = 10.0
"""Work that is so long ago weighs a third in the utilisation."""

NICE = 10
"""Priority of the model's thread, below that of the event loop."""


class Urgency(IntEnum):
    FINAL = 0  # a speaker paused and waits for his last words
    PARTIAL = 1  # he goes on speaking
    BATCH = 2  # a file


class Overloaded(EngineFailed):
    """The model has more to do than it can. Come back when sessions have ended."""


@dataclass(slots=True)
class WorkCounts:
    """What the model has done for work of one urgency."""

    windows: int = 0
    audio_s: float = 0.0
    waited_s: float = 0.0  # from each request to its call
    busy_s: float = 0.0  # of the model; a shared call is shared out evenly


@dataclass(slots=True)
class SchedulerStatistics:
    """What the model has done so far, for the metrics page."""

    work: dict[Urgency, WorkCounts] = field(default_factory=lambda: {urgency: WorkCounts() for urgency in Urgency})
    waiting: int = 0
    calls: int = 0
    failures: int = 0
    behind_s: float = 0.0  # how long the live window that waits longest has waited, on average of the last calls
    utilisation: float = 0.0  # average share of the calls that may be under way at the same time, 0..1


@dataclass(slots=True, eq=False)
class _Work:
    """Something the model is to do, and who waits for it."""

    run: Callable[[Sequence[Any]], Sequence[Any]]  # takes the items of all work that shares the call
    item: Any
    bucket: Hashable
    urgency: Urgency
    tenant: str
    audio_s: float
    since: float
    newer: Callable[[], DecodeRequest | None] | None = None
    done: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Scheduler:
    def __init__(self, engine: Engine, *, longest_call_s: float = LONGEST_CALL_S) -> None:
        self._engine = engine
        self._longest_call_s = longest_call_s
        self._threads = ThreadPoolExecutor(engine.replicas, f"model {engine.model}", initializer=_yield_to_others)
        self._waiting: list[_Work] = []
        self._calling: dict[asyncio.Task[None], Urgency] = {}  # the calls under way
        self._hanging = 0  # of them
        self._fairness = _Fairness()
        self._numbers = SchedulerStatistics()
        self._weighed_at = time.monotonic()
        self._spoken_at = -math.inf  # when the last live window came
        self._file_window_s = 0.0  # average time of the model for a window of a file
        self._closed = False

    async def hear(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> Heard:
        """What the window says. Without *urgency* it is live. Cancelling takes it out of the queue.

        *newer* is asked once the turn has come: a request that it gives is heard instead, because newer audio makes
        an older window of the same stream worthless. Raises EngineFailed, EngineTimeout.
        """
        if urgency is None:
            urgency = _urgency(request)
        audio_s = len(request.samples) / RATE
        bucket = self._engine.bucket(request)
        work = _Work(self._engine.hear, request, bucket, urgency, tenant, audio_s, time.monotonic(), newer)
        heard: Heard = await self._submit(work)
        return heard

    async def detect_language(
        self, windows: Sequence[Samples], *, tenant: str, urgency: Urgency = Urgency.BATCH
    ) -> tuple[str, float]:
        """The language of the first LANGUAGE_WINDOWS of *windows*, and its probability.

        Raises EngineFailed, EngineTimeout.
        """
        windows = windows[:LANGUAGE_WINDOWS]
        audio_s = sum(map(len, windows)) / RATE
        work = _Work(self._detect, windows, object(), urgency, tenant, audio_s, time.monotonic())
        found: tuple[str, float] = await self._submit(work)
        return found

    async def take_turn(self, call: Callable[[], T], *, tenant: str, urgency: Urgency = Urgency.BATCH) -> T:
        """The answer of *call*, which uses the model, once it is its turn. Raises EngineFailed, EngineTimeout."""
        work = _Work(lambda calls: [calls[0]()], call, object(), urgency, tenant, 0.0, time.monotonic())
        answer: T = await self._submit(work)
        return answer

    def admit(self, growth: float = 1.0) -> None:
        """Returns iff there is room for *growth* times the live windows of the last seconds. Raises Overloaded."""
        if self._hanging or self._numbers.behind_s * growth > LATE_S:
            raise Overloaded("the recogniser is busy with the sessions it has")

    @property
    def healthy(self) -> bool:
        return not self._hanging and not self._closed

    def statistics(self) -> SchedulerStatistics:
        return replace(self._numbers, waiting=len(self._waiting), utilisation=self._utilisation)

    def close(self) -> None:
        """Take no more work; whoever waits gets EngineFailed. Waits for the calls under way, unless one hangs."""
        self._closed = True
        for work in self._waiting:
            _fail(work, EngineFailed("the recogniser was closed"))
        self._waiting.clear()
        self._threads.shutdown(wait=not self._hanging, cancel_futures=True)

    async def _submit(self, work: _Work) -> Any:
        if self._closed:
            raise EngineFailed("the recogniser was closed")
        if self._hanging:
            raise EngineTimeout("the recogniser does not answer")
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded("too many windows wait for the recogniser")
        if work.urgency is not Urgency.BATCH:
            self._spoken_at = work.since
        self._fairness.enter(work.tenant)
        self._waiting.append(work)
        self._call_next()
        try:
            return await work.done
        finally:
            if work in self._waiting:
                self._waiting.remove(work)

    def _call_next(self) -> None:
        """Start as many calls as there is room for, if somebody waits."""
        while not self._closed and not self._hanging:
            if self._has_room(Urgency.FINAL):
                self._count_behind()
            if not self._waiting or not any(map(self._has_room, Urgency)):
                return
            group = self._chosen()
            if not self._has_room(group[0].urgency):
                return
            self._waiting = [work for work in self._waiting if work not in group]
            self._weigh()
            calling = asyncio.get_running_loop().create_task(self._call(group), name="model call")
            self._calling[calling] = group[0].urgency

    def _has_room(self, urgency: Urgency) -> bool:
        """Whether one more call of this urgency may be started."""
        files = sum(one is Urgency.BATCH for one in self._calling.values())
        if urgency is Urgency.BATCH:
            return len(self._calling) < self._most_calls
        # Files that are under way are on their way out: the core that was to be left free is so once they have ended.
        return (
            len(self._calling) - files < self._engine.replicas_amid_speech
            and len(self._calling) < self._engine.replicas
        )

    @property
    def _most_calls(self) -> int:
        """How many may be under way at the same time."""
        spoken = time.monotonic() - self._spoken_at < PAUSE_S
        return self._engine.replicas_amid_speech if spoken else self._engine.replicas

    def _chosen(self) -> list[_Work]:
        """The most urgent work, and what may share its call, most urgent first."""
        now = time.monotonic()
        order = sorted(self._waiting, key=lambda work: self._rank(work, now))
        first = order[0]
        self._renew(first)
        same = [work for work in order if work.bucket == first.bucket]
        files = [work for work in same if work.urgency is Urgency.BATCH][: self._file_windows(first, now)]
        group = [work for work in same if work.urgency is not Urgency.BATCH or work in files][: self._engine.max_batch]
        for work in group[1:]:
            self._renew(work)
        return [work for work in group if work.bucket == first.bucket]  # what grew out of it comes soon

    def _file_windows(self, first: _Work, now: float) -> int:
        """How many windows of files may be in the call of *first*."""
        spoken = now - self._spoken_at < PAUSE_S
        if not self._file_window_s:  # nothing is known of what they take
            return 1 if spoken else self._engine.max_batch
        soon = int((FILES_AMID_SPEECH_S if spoken else FILES_S) / self._file_window_s)
        return max(soon, first.urgency is Urgency.BATCH)

    def _renew(self, work: _Work) -> None:
        """Take the newest window of the same stream; the place in the queue stays."""
        newest = work.newer() if work.newer is not None else None
        if newest is not None:
            work.item, work.bucket = newest, self._engine.bucket(newest)
            work.urgency, work.audio_s = _urgency(newest), len(newest.samples) / RATE

    def _rank(self, work: _Work, now: float) -> tuple[float, float, float]:
        if work.urgency is not Urgency.BATCH:
            return (work.urgency, 0.0, work.since)
        starving = now - max(work.since, self._fairness.last_batch) > STARVING_S
        starving = starving and Urgency.BATCH not in self._calling.values()
        return (-1.0 if starving else work.urgency, self._fairness.used(work.tenant), work.since)

    async def _call(self, group: Sequence[_Work]) -> None:
        began = time.monotonic()
        items = [work.item for work in group]
        answering = asyncio.get_running_loop().run_in_executor(self._threads, group[0].run, items)
        try:
            await asyncio.wait({answering}, timeout=self._longest_call_s)
            if not answering.done():
                self._hanging += 1
                for work in [*group, *self._waiting]:
                    _fail(work, EngineTimeout(f"the recogniser gave no answer in {self._longest_call_s:g} s"))
                self._waiting.clear()
                await asyncio.wait({answering})  # until it comes back, if ever, nothing else can be asked
                self._hanging -= 1
            self._answer(group, answering)
        finally:
            self._count_call(group, began)
            calling = asyncio.current_task()
            assert calling is not None
            del self._calling[calling]
            self._call_next()

    def _answer(self, group: Sequence[_Work], answering: "asyncio.Future[Sequence[Any]]") -> None:
        error = answering.exception()
        if error is None:
            for work, answer in zip(group, answering.result(), strict=True):
                if not work.done.done():
                    work.done.set_result(answer)
            return
        self._numbers.failures += 1
        if not isinstance(error, EngineFailed | EngineTimeout):
            failure = EngineFailed(f"the recogniser failed: {type(error).__name__}")
            failure.__cause__ = error
            error = failure
        for work in group:
            _fail(work, error)

    @property
    def _utilisation(self) -> float:
        """Up to now."""
        busy = min(1.0, len(self._calling) / self._most_calls)
        weight = 1 - math.exp(-(time.monotonic() - self._weighed_at) / MEMORY_S)
        return self._numbers.utilisation + weight * (busy - self._numbers.utilisation)

    def _count_behind(self) -> None:
        """Finals go first, so who waits longest is heard last: his wait tells of the load, an average one does not."""
        since = [work.since for work in self._waiting if work.urgency is not Urgency.BATCH]
        if not since:
            self._numbers.behind_s = 0.0
            return
        more_s = time.monotonic() - min(since) - self._numbers.behind_s
        self._numbers.behind_s += (CALL_SMOOTHING if more_s > 0 else FORGETTING) * more_s

    def _count_call(self, group: Sequence[_Work], began: float) -> None:
        self._weigh()
        now = time.monotonic()
        self._numbers.calls += 1
        took_s = now - began
        for work in group:
            counts = self._numbers.work[work.urgency]
            counts.windows += 1
            counts.audio_s += work.audio_s
            counts.waited_s += began - work.since
            counts.busy_s += took_s / len(group)
            self._fairness.spend(work.tenant, took_s / len(group))
        if group[0].urgency is Urgency.BATCH:
            self._fairness.last_batch = now
            weight = CALL_SMOOTHING if self._file_window_s else 1.0
            self._file_window_s += weight * (took_s / len(group) - self._file_window_s)

    def _weigh(self) -> None:
        """Let the time since this was called last count in the utilisation: before calls begin and end."""
        self._numbers.utilisation = self._utilisation
        self._weighed_at = time.monotonic()

    def _detect(self, items: Sequence[Sequence[Samples]]) -> Sequence[tuple[str, float]]:
        return [self._engine.detect_language(windows) for windows in items]


class _Fairness:
    """Model time that each tenant has had, as virtual time: who comes anew starts where the others are."""

    def __init__(self) -> None:
        self.last_batch = time.monotonic()
        self._used: dict[str, float] = {}
        self._reached = 0.0  # of the tenant served last

    def enter(self, tenant: str) -> None:
        self._used[tenant] = max(self._used.get(tenant, 0.0), self._reached)

    def used(self, tenant: str) -> float:
        return self._used.get(tenant, 0.0)

    def spend(self, tenant: str, model_s: float) -> None:
        self._reached = max(self._reached, self._used.get(tenant, 0.0))
        self._used[tenant] = self._used.get(tenant, 0.0) + model_s
        if len(self._used) > MAX_WAITING:  # tenants of long ago are like new ones
            self._used = {name: used for name, used in self._used.items() if used > self._reached}


def _urgency(request: DecodeRequest) -> Urgency:
    """Of a live window."""
    return Urgency.FINAL if request.final else Urgency.PARTIAL


def _fail(work: _Work, error: Exception) -> None:
    if not work.done.done():
        work.done.set_exception(error)


def _yield_to_others() -> None:
    """Let the event loop go first when all cores are busy: it has little to do, and everybody waits for it."""
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
