"""Shares one machine among all models, and each model among all streams and files. It belongs to one event loop.

Theory. A call of a model cannot be interrupted, so a window waits for the calls that have begun, and everything else is
a question of order, which CallOrder keeps:

- As many calls of a model run at the same time as its engine has replicas, each on its own thread. A call takes one
  replica's share of the machine, and the shares of all calls are never more than the whole. While people speak, files
  may use only some of the replicas and only short calls, so that a live window seldom waits for a file.
- When a call can start, the most urgent window of all models is taken: live windows before files, finals before
  partials, partials before translations, then the one that has waited longest. Among files, the tenant comes first that
  has used the models least.
- Other windows of the same bucket join the call; windows of files join only as long as the call stays short.
- No window waits for a batch to fill. When more windows come than the model can take one by one, several are waiting at
  the start of the next call, and so they form a batch.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.recognition.engine import DecodeRequest, Engine, RecognitionResult

STARVING_S = 3.0
"""A file that has waited this long goes before live windows, once, so that live sessions never stop all files."""

FILES_S = 2.0
"""The longest that one call of files should take, because a person who begins to speak waits for its end.

It has at least one window, however long that takes."""

FILES_WITHIN_SPEECH_S = 0.5
"""The same while people speak."""

TRANSLATION_WAITS_S = 1.0
"""A translation that has waited this long takes its turn among partials, so that they never stop it."""

PAUSE_S = 30.0
"""People count as speaking until no live window has come for this long."""

CALL_SMOOTHING = 0.2
"""The weight of the newest call in averages."""

FORGETTING = 0.05
"""The weight of a shorter wait in the average wait: one good moment does not mean that there is room for more."""

_ROUNDING = 1e-6
"""Shares of the machine are fractions: three thirds may be a little more than one."""

MAX_TENANTS = 4096
"""The most tenants whose use of the models is remembered."""

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


class Urgency(IntEnum):
    """How soon a window must be recognised; a lower number is more urgent."""

    FINAL = 0  # a speaker has paused and waits for the last words
    PARTIAL = 1  # the speaker goes on
    TRANSLATION = 2  # words that readers have already, once more to be translated
    BATCH = 3  # a file

    @staticmethod
    def of(request: DecodeRequest) -> "Urgency":
        """Return the urgency of a live window."""
        return Urgency.FINAL if request.final else Urgency.PARTIAL


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
    live_wait_s: float = 0.0  # the longest wait of a live window, as a moving average over the last calls
    utilisation: float = 0.0  # calls that run, as an average share of the replicas, 0..1


@dataclass(slots=True, eq=False)
class Work:
    """Work for a model, and the future that its caller waits for."""

    model: "Scheduler"
    run: Callable[[Sequence[Any]], Sequence[Any]]  # called with the items of all work in one call
    item: Any
    bucket: Hashable
    urgency: Urgency
    tenant: str
    audio_s: float
    since: float
    newer: Callable[[], DecodeRequest | None] | None = None
    done: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def shares_call(self, first: "Work") -> bool:
        """Return whether this can be in one call with *first*."""
        return self.model is first.model and self.bucket == first.bucket

    def fail(self, error: Exception) -> None:
        """Give *error* to the caller, unless it has an answer."""
        if not self.done.done():
            self.done.set_exception(error)


class CallOrder:
    """The work of all models of a machine that waits, and the first work of each call that runs."""

    def __init__(self) -> None:
        self.waiting: list[Work] = []
        self.fairness = Fairness()
        self.live_wait_s = 0.0  # the longest wait of a live window, as a moving average over the last calls
        self._calling: set[Work] = set()
        self._spoken_at = -math.inf  # when the last live window came

    def add(self, work: Work) -> None:
        """Let *work* wait."""
        if work.urgency is not Urgency.BATCH:
            self._spoken_at = work.since
        self.fairness.enter(work.tenant)
        self.waiting.append(work)

    def take(self) -> Sequence[Work]:
        """Take the work of the next call, most urgent first; none if no call may begin now. end() ends the call."""
        callable_now = [work for work in self.waiting if work.model.answers]
        if not callable_now:
            self.live_wait_s = 0.0
            return ()
        first = min(callable_now, key=self._rank)
        running = (work.model.share for work in self._calling if work.model.answers)  # one that hangs uses nothing
        used = sum(running) + first.model.share - _ROUNDING
        if used > 1:
            return ()
        self._count_live_wait()
        if first.urgency is Urgency.BATCH and self._people_speak and used > first.model.file_share:
            return ()
        group = self._choose(first)
        self.waiting = [work for work in self.waiting if work not in group]
        self._calling.add(group[0])
        return group

    def end(self, first: Work) -> None:
        """Note that the call of *first* has ended."""
        self._calling.remove(first)

    @property
    def _people_speak(self) -> bool:
        return time.monotonic() - self._spoken_at < PAUSE_S

    def _choose(self, first: Work) -> list[Work]:
        """Return the most urgent work and what shares its call, most urgent first."""
        self._renew(first)
        order = sorted(self.waiting, key=self._rank)
        same = [first, *(work for work in order if work is not first and work.shares_call(first))]
        files = [work for work in same if work.urgency is Urgency.BATCH][: self._file_windows(first)]
        group = [work for work in same if work.urgency is not Urgency.BATCH or work in files]
        group = group[: first.model.engine.max_batch]
        for work in group[1:]:
            self._renew(work)
        # A renewed window may be of another bucket. It comes soon.
        return [work for work in group if work.shares_call(first)]

    def _file_windows(self, first: Work) -> int:
        """Return how many windows of files may be in the call of *first*."""
        window_s = first.model.file_window_s
        if not window_s:  # it is not known how long they take
            return 1 if self._people_speak else first.model.engine.max_batch
        soon = int((FILES_WITHIN_SPEECH_S if self._people_speak else FILES_S) / window_s)
        return max(soon, first.urgency is Urgency.BATCH)

    @staticmethod
    def _renew(work: Work) -> None:
        """Replace a window by the newest one of the same stream, at the same place in the queue."""
        try:
            newest = work.newer() if work.newer is not None else None
        except Exception as error:  # noqa: BLE001  report it to this stream only: others share the call
            work.fail(error)
            return
        if newest is not None:
            newest = replace(newest, language=work.item.language)
            work.item, work.bucket = newest, work.model.engine.bucket(newest)
            work.urgency, work.audio_s = Urgency.of(newest), len(newest.samples) / RATE

    def _rank(self, work: Work) -> tuple[float, float, float]:
        """Return the key by which waiting work is sorted, the most urgent first."""
        if work.urgency is Urgency.TRANSLATION and time.monotonic() - work.since > TRANSLATION_WAITS_S:
            return (Urgency.PARTIAL, 0.0, work.since)
        if work.urgency is not Urgency.BATCH:
            return (work.urgency, 0.0, work.since)
        starving = time.monotonic() - max(work.since, self.fairness.last_batch) > STARVING_S
        starving = starving and not any(call.urgency is Urgency.BATCH for call in self._calling)
        return (-1.0 if starving else work.urgency, self.fairness.time_used(work.tenant), work.since)

    def _count_live_wait(self) -> None:
        """Update the moving average of the longest wait: a mean of all would hide load, because finals hardly wait."""
        since = [work.since for work in self.waiting if work.urgency <= Urgency.PARTIAL]
        if not since:
            self.live_wait_s = 0.0
            return
        more_s = time.monotonic() - min(since) - self.live_wait_s
        self.live_wait_s += (CALL_SMOOTHING if more_s > 0 else FORGETTING) * more_s


class Fairness:
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
        if len(self._used) > MAX_TENANTS:  # a tenant below the level would start anew at it, so it can be forgotten
            self._used = {name: used for name, used in self._used.items() if used > self._reached}


@dataclass(slots=True)
class _Call:
    """One call of the engine."""

    group: Sequence[Work]
    began: float
    late: asyncio.TimerHandle | None = None  # calls _note_hanging()
    hangs: bool = False


class Scheduler:
    """One loaded model: gives windows to its engine, in calls that run on threads."""

    def __init__(self, engine: Engine, order: CallOrder | None = None) -> None:
        """*order* is that of the other models on this machine. None: there is no other model."""
        self.engine = engine
        self._order = order or CallOrder()
        self.longest_call_s = LONGEST_CALL_S  # after which a call counts as hanging
        self._threads = ThreadPoolExecutor(engine.replicas, f"model {engine.model}")
        self._running = 0  # calls
        self._hanging = 0  # of these, those that have taken too long
        self._numbers = SchedulerStatistics()
        self._weighed_at = time.monotonic()
        self._closed = False
        self.file_window_s = 0.0  # the average time of the model for one window of a file; 0: unknown

    async def recognise(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> RecognitionResult:
        """Return the answer of recognise_newest()."""
        _, result = await self.recognise_newest(request, tenant=tenant, urgency=urgency, newer=newer)
        return result

    async def recognise_newest(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> tuple[DecodeRequest, RecognitionResult]:
        """Return the request that was answered, and what was recognised in it. May be cancelled.

        *urgency*: left out, that of a live window.
        *newer*: called when the turn of *request* comes. A newer request that it returns is answered instead, in the
        language of *request*.

        Raises EngineFailed, EngineTimeout.
        """
        audio_s, bucket, now = len(request.samples) / RATE, self.engine.bucket(request), time.monotonic()
        if urgency is None:
            urgency = Urgency.of(request)
        work = Work(self, self.engine.recognise, request, bucket, urgency, tenant, audio_s, now, newer)
        result: RecognitionResult = await self._submit(work)
        return work.item, result

    async def detect_language(self, samples: Samples, *, tenant: str, urgency: Urgency) -> Mapping[str, float]:
        """Return the probability of each language in *samples*. Raises EngineFailed, EngineTimeout."""

        def detect(items: Sequence[Samples]) -> Sequence[Mapping[str, float]]:
            return [self.engine.detect_language(one) for one in items]

        work = Work(self, detect, samples, object(), urgency, tenant, len(samples) / RATE, time.monotonic())
        found: Mapping[str, float] = await self._submit(work)
        return found

    def admit(self, growth: float = 1.0) -> None:
        """Raise Overloaded unless the model could take *growth* times as many live windows as in the last seconds."""
        if self._hanging or self._order.live_wait_s * growth > LATE_S:
            raise Overloaded("the recogniser is busy with the sessions it has")

    def statistics(self) -> SchedulerStatistics:
        waiting = sum(work.model is self for work in self._order.waiting)
        live_wait_s, utilisation = self._order.live_wait_s, self._utilisation
        return replace(self._numbers, waiting=waiting, live_wait_s=live_wait_s, utilisation=utilisation)

    def close(self) -> None:
        """Refuse more work, and fail what waits with EngineFailed. Waits for the calls that run, unless one hangs."""
        self._closed = True
        self._fail_waiting(EngineFailed("the recogniser was closed"))
        self._threads.shutdown(wait=not self._hanging, cancel_futures=True)

    @property
    def share(self) -> float:
        """The part of the machine that one call uses."""
        return 1 / self.engine.replicas

    @property
    def file_share(self) -> float:
        """The part of the machine that must be enough for all calls while people speak, if files are to be called."""
        return self.engine.file_replicas_during_speech * self.share

    @property
    def answers(self) -> bool:
        """Whether the model can be called: it is not closed, and no call of it hangs."""
        return not self._closed and not self._hanging

    @property
    def idle(self) -> bool:
        """Whether no work of this model waits and no call runs."""
        return not self._running and all(work.model is not self for work in self._order.waiting)

    async def _submit(self, work: Work) -> Any:
        if self._closed:
            raise EngineFailed("the recogniser was closed")
        if self._hanging:
            raise EngineTimeout("the recogniser does not answer")
        if len(self._order.waiting) >= MAX_WAITING:
            raise Overloaded("too many windows wait for the recogniser")
        self._order.add(work)
        self._call_next()
        try:
            return await work.done
        finally:
            if work in self._order.waiting:
                self._order.waiting.remove(work)

    def _call_next(self) -> None:
        """Begin as many calls as may run, of all models."""
        while group := self._order.take():
            group[0].model.begin(group)

    def begin(self, group: Sequence[Work]) -> None:
        """Call the engine with the items of *group*, on a thread. Each gets its answer."""
        self._weigh()
        self._running += 1
        loop, call = asyncio.get_running_loop(), _Call(group, time.monotonic())
        call.late = loop.call_later(self.longest_call_s, self._note_hanging, call)
        answering = loop.run_in_executor(self._threads, group[0].run, [work.item for work in group])
        answering.add_done_callback(partial(self._end_call, call))

    def _note_hanging(self, call: _Call) -> None:
        """Fail all that waits for this model: until the call comes back, if ever, nothing else can be asked."""
        call.hangs = True
        self._hanging += 1
        late = EngineTimeout(f"the recogniser gave no answer in {self.longest_call_s:g} s")
        for work in call.group:
            work.fail(late)
        self._fail_waiting(late)
        self._call_next()  # other models can be called

    def _end_call(self, call: _Call, answering: "asyncio.Future[Sequence[Any]]") -> None:
        assert call.late is not None
        call.late.cancel()
        self._hanging -= call.hangs
        try:
            self._answer(call.group, answering)
        finally:
            self._count_call(call.group, call.began)
            self._running -= 1
            self._order.end(call.group[0])
            self._call_next()

    def _fail_waiting(self, error: Exception) -> None:
        """Fail all work that waits for this model."""
        for work in self._order.waiting:
            if work.model is self:
                work.fail(error)
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
            work.fail(error)

    @property
    def _utilisation(self) -> float:
        busy = self._running * self.share
        weight = 1 - math.exp(-(time.monotonic() - self._weighed_at) / MEMORY_S)
        return self._numbers.utilisation + weight * (busy - self._numbers.utilisation)

    def _count_call(self, group: Sequence[Work], began: float) -> None:
        self._weigh()
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

    def _weigh(self) -> None:
        """Count the time since the last call of this method in the utilisation, before calls begin or end."""
        self._numbers.utilisation = self._utilisation
        self._weighed_at = time.monotonic()
