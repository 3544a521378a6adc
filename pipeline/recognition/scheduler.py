"""Shares one loaded model among all sessions and files: decides which window is recognised next, and with which others.

Theory. A call cannot be interrupted, so a window waits for the calls that have begun, and everything else is a question
of order:

- As many calls run at the same time as the engine has replicas, each on its own thread. While people speak, files may
  use only some of the replicas and only short calls, so that a live window seldom waits for a file.
- When a call can start, the most urgent window is taken: live windows before files, finals before partials, then the
  one that has waited longest. Among files, the tenant comes first that has used the model least.
- Other windows of the same bucket join the call; windows of files join only as long as the call stays short.
- No window waits for a batch to fill. When more windows come than the model can take one by one, several are waiting at
  the start of the next call, and so they form a batch.

A Scheduler belongs to one event loop.
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
from typing import Any

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.engine import DecodeRequest, Engine, RecognitionResult

MAX_WAITING = 4096
"""The most windows that may wait. Each holds up to 30 s of audio, 2 MB."""

LONGEST_CALL_S = 300.0
"""A call that takes longer counts as hanging. Eight windows of 30 s on a large model and a slow machine take less."""

STARVING_S = 3.0
"""A file that has waited this long goes before live windows, once, so that live sessions never stop all files."""

LATE_S = 1.0
"""No session is admitted while live windows wait longer than this, as a moving average of the longest wait.

An average of all waits hides load, because finals go first. The model's utilisation rises too late: with a limit of
0.85 so many sessions were admitted that words were final after 38 s.
"""

FILES_S = 2.0
"""The longest that one call of files should take, because a person who begins to speak waits for its end.

It has at least one window, however long that takes."""

FILES_AMID_SPEECH_S = 0.5
"""The same while people speak."""

PAUSE_S = 30.0
"""People count as speaking until no live window has come for this long."""

CALL_SMOOTHING = 0.2
"""The weight of the newest call in averages."""

FORGETTING = 0.05
"""The weight of a shorter wait in the average wait: one good moment does not mean that there is room for more."""

LANGUAGE_WINDOWS = 8
"""The most windows of a file in which its language is detected."""

MEMORY_S = 10.0
"""After this time the weight of work in the average utilisation has fallen to a third."""

NICE = 10
"""The nice value of the threads that call the model: lower priority than the event loop."""


class Urgency(IntEnum):
    """How soon a window must be recognised; a lower number is more urgent."""

    FINAL = 0  # a speaker has paused and waits for the last words
    PARTIAL = 1  # the speaker goes on
    BATCH = 2  # a file


class Overloaded(EngineFailed):
    """The model has more work than it can do. Trying again may work when other sessions have ended."""


@dataclass(slots=True)
class WorkCounts:
    """What the model has done at one urgency."""

    windows: int = 0
    audio_s: float = 0.0
    waited_s: float = 0.0  # from each request to the start of its call
    busy_s: float = 0.0  # time of the model; the time of a shared call is divided evenly


@dataclass(slots=True)
class SchedulerStatistics:
    """What the model has done so far, for the metrics page."""

    work: dict[Urgency, WorkCounts] = field(default_factory=lambda: {urgency: WorkCounts() for urgency in Urgency})
    waiting: int = 0
    calls: int = 0
    failures: int = 0
    behind_s: float = 0.0  # the longest wait of a live window, as a moving average over the last calls
    utilisation: float = 0.0  # calls that run, as an average share of the replicas, 0..1


@dataclass(slots=True, eq=False)
class _Work:
    """Work for the model, and the future that its caller waits for."""

    run: Callable[[Sequence[Any]], Sequence[Any]]  # called with the items of all work in one call
    item: Any
    bucket: Hashable
    urgency: Urgency
    tenant: str
    audio_s: float
    since: float
    newer: Callable[[], DecodeRequest | None] | None = None
    done: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Scheduler:
    """Gives the windows of all tenants to one engine, in calls that run on threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._longest_call_s = LONGEST_CALL_S
        self._threads = ThreadPoolExecutor(engine.replicas, f"model {engine.model}", initializer=lower_priority)
        self._waiting: list[_Work] = []
        self._calling: dict[asyncio.Task[None], Urgency] = {}  # the calls that run
        self._hanging = 0  # how many of them have taken too long
        self._fairness = _Fairness()
        self._numbers = SchedulerStatistics()
        self._weighed_at = time.monotonic()
        self._spoken_at = -math.inf  # when the last live window came
        self._file_window_s = 0.0  # the average time of the model for one window of a file; 0: unknown
        self._closed = False

    async def recognise(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> RecognitionResult:
        """Return what is recognised in *request*. May be cancelled. Raises EngineFailed, EngineTimeout.

        *urgency*: left out, that of a live window.
        *newer*: called when the turn of *request* comes; a newer request that it returns is answered instead.
        """
        if urgency is None:
            urgency = _urgency(request)
        audio_s = len(request.samples) / RATE
        bucket = self._engine.bucket(request)
        work = _Work(self._engine.recognise, request, bucket, urgency, tenant, audio_s, time.monotonic(), newer)
        result: RecognitionResult = await self._submit(work)
        return result

    async def detect_language(self, windows: Sequence[Samples], *, tenant: str) -> tuple[str, float]:
        """Return the language of the first LANGUAGE_WINDOWS of the *windows* of a file, and its probability.

        Raises EngineFailed, EngineTimeout.
        """
        windows = windows[:LANGUAGE_WINDOWS]
        audio_s = sum(map(len, windows)) / RATE
        work = _Work(self._detect, windows, object(), Urgency.BATCH, tenant, audio_s, time.monotonic())
        found: tuple[str, float] = await self._submit(work)
        return found

    def admit(self, growth: float = 1.0) -> None:
        """Raise Overloaded unless the model could take *growth* times as many live windows as in the last seconds."""
        if self._hanging or self._numbers.behind_s * growth > LATE_S:
            raise Overloaded("the recogniser is busy with the sessions it has")

    def statistics(self) -> SchedulerStatistics:
        return replace(self._numbers, waiting=len(self._waiting), utilisation=self._utilisation)

    def close(self) -> None:
        """Refuse more work, and fail what waits with EngineFailed. Waits for the calls that run, unless one hangs."""
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
        """Start as many calls as may run, for the work that waits."""
        while not self._closed and not self._hanging:
            if self._has_room(Urgency.FINAL):
                self._count_behind()
            if not self._waiting or not any(map(self._has_room, Urgency)):
                return
            group = self._choose()
            if not self._has_room(group[0].urgency):
                return
            self._waiting = [work for work in self._waiting if work not in group]
            self._weigh()
            calling = asyncio.get_running_loop().create_task(self._call(group), name="model call")
            self._calling[calling] = group[0].urgency

    def _has_room(self, urgency: Urgency) -> bool:
        """Return whether one more call of this urgency may start."""
        return len(self._calling) < (self._most_file_calls if urgency is Urgency.BATCH else self._engine.replicas)

    @property
    def _most_file_calls(self) -> int:
        """A call of files starts only while fewer calls than this run."""
        spoken = time.monotonic() - self._spoken_at < PAUSE_S
        return self._engine.file_replicas_amid_speech if spoken else self._engine.replicas

    def _choose(self) -> list[_Work]:
        """Return the most urgent work and what shares its call, most urgent first."""
        now = time.monotonic()
        order = sorted(self._waiting, key=lambda work: self._rank(work, now))
        first = order[0]
        self._renew(first)
        same = [work for work in order if work.bucket == first.bucket]
        files = [work for work in same if work.urgency is Urgency.BATCH][: self._file_windows(first, now)]
        group = [work for work in same if work.urgency is not Urgency.BATCH or work in files][: self._engine.max_batch]
        for work in group[1:]:
            self._renew(work)
        # A renewed window may be of another bucket. It comes soon.
        return [work for work in group if work.bucket == first.bucket]

    def _file_windows(self, first: _Work, now: float) -> int:
        """Return how many windows of files may be in the call of *first*."""
        spoken = now - self._spoken_at < PAUSE_S
        if not self._file_window_s:  # it is not known how long they take
            return 1 if spoken else self._engine.max_batch
        soon = int((FILES_AMID_SPEECH_S if spoken else FILES_S) / self._file_window_s)
        return max(soon, first.urgency is Urgency.BATCH)

    def _renew(self, work: _Work) -> None:
        """Replace a window by the newest one of the same stream, at the same place in the queue."""
        try:
            newest = work.newer() if work.newer is not None else None
        except Exception as error:  # noqa: BLE001  report it to this stream only: others share the call
            _fail(work, error)
            return
        if newest is not None:
            work.item, work.bucket = newest, self._engine.bucket(newest)
            work.urgency, work.audio_s = _urgency(newest), len(newest.samples) / RATE

    def _rank(self, work: _Work, now: float) -> tuple[float, float, float]:
        """Return the key by which waiting work is sorted, the most urgent first."""
        if work.urgency is not Urgency.BATCH:
            return (work.urgency, 0.0, work.since)
        starving = now - max(work.since, self._fairness.last_batch) > STARVING_S
        starving = starving and Urgency.BATCH not in self._calling.values()
        return (-1.0 if starving else work.urgency, self._fairness.time_used(work.tenant), work.since)

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
        busy = len(self._calling) / self._engine.replicas
        weight = 1 - math.exp(-(time.monotonic() - self._weighed_at) / MEMORY_S)
        return self._numbers.utilisation + weight * (busy - self._numbers.utilisation)

    def _count_behind(self) -> None:
        """Update the moving average of the longest wait: a mean of all would hide load, because finals hardly wait."""
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
        """Count the time since the last call of this method in the utilisation, before calls begin or end."""
        self._numbers.utilisation = self._utilisation
        self._weighed_at = time.monotonic()

    def _detect(self, items: Sequence[Sequence[Samples]]) -> Sequence[tuple[str, float]]:
        return [self._engine.detect_language(windows) for windows in items]


class _Fairness:
    """How much time of the model each tenant has used. A new tenant starts at the level of the tenant served last."""

    def __init__(self) -> None:
        self.last_batch = time.monotonic()
        self._used: dict[str, float] = {}
        self._reached = 0.0  # the level of the tenant served last

    def enter(self, tenant: str) -> None:
        self._used[tenant] = max(self._used.get(tenant, 0.0), self._reached)

    def time_used(self, tenant: str) -> float:
        return self._used.get(tenant, 0.0)

    def spend(self, tenant: str, model_s: float) -> None:
        self._reached = max(self._reached, self._used.get(tenant, 0.0))
        self._used[tenant] = self._used.get(tenant, 0.0) + model_s
        if len(self._used) > MAX_WAITING:  # a tenant below the level would start anew at it, so it can be forgotten
            self._used = {name: used for name, used in self._used.items() if used > self._reached}


def _urgency(request: DecodeRequest) -> Urgency:
    """Return the urgency of a live window."""
    return Urgency.FINAL if request.final else Urgency.PARTIAL


def _fail(work: _Work, error: Exception) -> None:
    if not work.done.done():
        work.done.set_exception(error)


def lower_priority() -> None:
    """Give this thread a lower priority than the event loop, whose steps are short and hold up everything else."""
    if sys.platform == "linux":  # on other systems threads have no priority of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
