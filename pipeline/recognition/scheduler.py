"""Shares one loaded model among all sessions and files: gives their windows to its engine, in calls on threads.

All models of a machine share one CallOrder (call_order.py), which says what is called next. Both belong to one event
loop.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.call_order import CALL_SMOOTHING, CallOrder, Urgency, Work, fail, urgency_of
from pipeline.recognition.engine import DecodeRequest, Engine, RecognitionResult

MAX_WAITING = 4096
"""The most windows that may wait. Each holds up to 30 s of audio, 2 MB."""

LONGEST_CALL_S = 300.0
"""A call that takes longer counts as hanging. Eight windows of 30 s on a large model and a slow machine take less."""

LATE_S = 1.0
"""No session is admitted while live windows wait longer than this, as a moving average of the longest wait.

An average of all waits hides load, because finals go first. The model's utilisation rises too late: with a limit of
0.85 so many sessions were admitted that words were final after 38 s.
"""

MEMORY_S = 10.0
"""After this time the weight of work in the average utilisation has fallen to a third."""


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


@dataclass(slots=True)
class _Call:
    """One call of the engine."""

    group: Sequence[Work]
    ended: Callable[[], None]
    began: float
    late: asyncio.TimerHandle | None = None  # calls _note_hanging()
    hangs: bool = False


class Scheduler:
    """Gives the windows of all tenants to one engine, in calls that run on threads."""

    def __init__(self, engine: Engine, order: CallOrder | None = None) -> None:
        """*order* is that of the other models on this machine. None: there is no other model."""
        self._engine = engine
        self._order = order or CallOrder()
        self._longest_call_s = LONGEST_CALL_S
        self._threads = ThreadPoolExecutor(engine.replicas, f"model {engine.model}")
        self._hanging = 0  # how many calls have taken too long
        self._numbers = SchedulerStatistics()
        self._weighed_at = time.monotonic()
        self._closed = False
        self.file_window_s = 0.0

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
            urgency = urgency_of(request)
        audio_s = len(request.samples) / RATE
        bucket, now = self.bucket(request), time.monotonic()
        work = Work(self, self._engine.recognise, request, bucket, urgency, tenant, audio_s, now, newer)
        result: RecognitionResult = await self._submit(work)
        return result

    async def detect_language(self, samples: Samples, *, tenant: str, urgency: Urgency) -> Mapping[str, float]:
        """Return the probability of each language in *samples*. Raises EngineFailed, EngineTimeout."""
        work = Work(self, self._detect, samples, object(), urgency, tenant, len(samples) / RATE, time.monotonic())
        found: Mapping[str, float] = await self._submit(work)
        return found

    async def run(self, work: Callable[[], RecognitionResult], *, tenant: str) -> RecognitionResult:
        """Call *work*, which uses the engine, in a call of its own when no window that is more urgent waits."""
        alone = Work(self, lambda _: [work()], None, object(), Urgency.BATCH, tenant, 0.0, time.monotonic())
        result: RecognitionResult = await self._submit(alone)
        return result

    def admit(self, growth: float = 1.0) -> None:
        """Raise Overloaded unless the model could take *growth* times as many live windows as in the last seconds."""
        if self._hanging or self._order.behind_s * growth > LATE_S:
            raise Overloaded("the recogniser is busy with the sessions it has")

    def statistics(self) -> SchedulerStatistics:
        waiting = sum(work.model is self for work in self._order.waiting)
        behind_s, utilisation = self._order.behind_s, self._utilisation
        return replace(self._numbers, waiting=waiting, behind_s=behind_s, utilisation=utilisation)

    def close(self) -> None:
        """Refuse more work, and fail what waits with EngineFailed. Waits for the calls that run, unless one hangs."""
        self._closed = True
        self._fail_waiting(EngineFailed("the recogniser was closed"))
        self._threads.shutdown(wait=not self._hanging, cancel_futures=True)

    @property
    def share(self) -> float:
        return 1 / self._engine.replicas

    @property
    def file_share(self) -> float:
        return self._engine.file_replicas_amid_speech * self.share

    @property
    def max_batch(self) -> int:
        return self._engine.max_batch

    @property
    def answers(self) -> bool:
        """Whether the model can be called: it is not closed, and no call of it hangs."""
        return not self._closed and not self._hanging

    @property
    def idle(self) -> bool:
        """Whether no work of this model waits and no call runs."""
        return not self._order.count_running(self) and all(work.model is not self for work in self._order.waiting)

    def bucket(self, request: DecodeRequest) -> Hashable:
        return self._engine.bucket(request)

    async def _submit(self, work: Work) -> Any:
        if self._closed:
            raise EngineFailed("the recogniser was closed")
        if self._hanging:
            raise EngineTimeout("the recogniser does not answer")
        if len(self._order.waiting) >= MAX_WAITING:
            raise Overloaded("too many windows wait for the recogniser")
        self._order.add(work)
        try:
            return await work.done
        finally:
            if work in self._order.waiting:
                self._order.waiting.remove(work)

    def call(self, group: Sequence[Work], ended: Callable[[], None]) -> None:
        """Begin to call the engine with the items of *group*; *ended* is called at the end. The order calls this."""
        loop, call = asyncio.get_running_loop(), _Call(group, ended, time.monotonic())
        call.late = loop.call_later(self._longest_call_s, self._note_hanging, call)
        answering = loop.run_in_executor(self._threads, group[0].run, [work.item for work in group])
        answering.add_done_callback(partial(self._end_call, call))

    def _note_hanging(self, call: "_Call") -> None:
        """Fail all that waits for this model: until the call comes back, if ever, nothing else can be asked."""
        call.hangs = True
        self._hanging += 1
        late = EngineTimeout(f"the recogniser gave no answer in {self._longest_call_s:g} s")
        for work in call.group:
            fail(work, late)
        self._fail_waiting(late)
        self._order.call_next()  # other models can be called

    def _end_call(self, call: "_Call", answering: "asyncio.Future[Sequence[Any]]") -> None:
        assert call.late is not None
        call.late.cancel()
        self._hanging -= call.hangs
        try:
            self._answer(call.group, answering)
        finally:
            self._count_call(call.group, call.began)
            call.ended()

    def _fail_waiting(self, error: Exception) -> None:
        """Fail all work that waits for this model."""
        for work in self._order.waiting:
            if work.model is self:
                fail(work, error)
        self._order.waiting = [work for work in self._order.waiting if work.model is not self]

    def _answer(self, group: Sequence[Work], answering: "asyncio.Future[Sequence[Any]]") -> None:
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
            fail(work, error)

    @property
    def _utilisation(self) -> float:
        busy = self._order.count_running(self) * self.share
        weight = 1 - math.exp(-(time.monotonic() - self._weighed_at) / MEMORY_S)
        return self._numbers.utilisation + weight * (busy - self._numbers.utilisation)

    def _count_call(self, group: Sequence[Work], began: float) -> None:
        self.weigh()
        now = time.monotonic()
        self._numbers.calls += 1
        took_s = now - began
        fairness = self._order.fairness
        for work in group:
            counts = self._numbers.work[work.urgency]
            counts.windows += 1
            counts.audio_s += work.audio_s
            counts.waited_s += began - work.since
            counts.busy_s += took_s / len(group)
            fairness.spend(work.tenant, took_s / len(group))
        if group[0].urgency is Urgency.BATCH:
            fairness.last_batch = now
            weight = CALL_SMOOTHING if self.file_window_s else 1.0
            self.file_window_s += weight * (took_s / len(group) - self.file_window_s)

    def weigh(self) -> None:
        """Count the time since the last call of this method in the utilisation, before calls begin or end."""
        self._numbers.utilisation = self._utilisation
        self._weighed_at = time.monotonic()

    def _detect(self, items: Sequence[Samples]) -> Sequence[Mapping[str, float]]:
        return [self._engine.detect_language(samples) for samples in items]
