"""The order in which the windows of all models are recognised on one machine. scheduler.py has the models.

Theory. A call cannot be interrupted, so a window waits for the calls that have begun, and everything else is a question
of order:

- As many calls of a model run at the same time as its engine has replicas, each on its own thread. A call takes one
  replica's share of the machine, and the shares of all calls are never more than the whole. While people speak, files
  may use only some of the replicas and only short calls, so that a live window seldom waits for a file.
- When a call can start, the most urgent window of all models is taken: live windows before files, finals before
  partials, partials before translations, then the one that has waited longest. Among files, the tenant comes first that
  has used the models least.
- Other windows of the same bucket join the call; windows of files join only as long as the call stays short.
- No window waits for a batch to fill. When more windows come than the model can take one by one, several are waiting at
  the start of the next call, and so they form a batch.

An order belongs to one event loop.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Protocol

from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest

STARVING_S = 3.0
"""A file that has waited this long goes before live windows, once, so that live sessions never stop all files."""

FILES_S = 2.0
"""The longest that one call of files should take, because a person who begins to speak waits for its end.

It has at least one window, however long that takes."""

FILES_AMID_SPEECH_S = 0.5
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


class Urgency(IntEnum):
    """How soon a window must be recognised; a lower number is more urgent."""

    FINAL = 0  # a speaker has paused and waits for the last words
    PARTIAL = 1  # the speaker goes on
    TRANSLATION = 2  # words that readers have already, once more to be translated
    BATCH = 3  # a file


class CalledModel(Protocol):
    """What the order asks of a loaded model. The scheduler is one."""

    file_window_s: float  # the average time of the model for one window of a file; 0: unknown

    @property
    def answers(self) -> bool:
        """Whether it can be called."""

    @property
    def share(self) -> float:
        """The part of the machine that one call uses."""

    @property
    def file_share(self) -> float:
        """The part of the machine that must be enough for all calls while people speak, if files are to be called."""

    @property
    def max_batch(self) -> int:
        """The most windows in one call."""

    def bucket(self, request: DecodeRequest) -> Hashable:
        """Return what the windows of one call have in common."""

    def weigh(self) -> None:
        """Take note that calls begin or end now."""

    def call(self, group: "Sequence[Work]", ended: Callable[[], None]) -> None:
        """Begin to call the engine with the items of *group*. Each gets its answer, then *ended* is called."""


@dataclass(slots=True, eq=False)
class Work:
    """Work for a model, and the future that its caller waits for."""

    model: CalledModel
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


class CallOrder:
    """The work of all models that waits, and the calls that run: one order for one machine."""

    def __init__(self) -> None:
        self.waiting: list[Work] = []
        self.fairness = Fairness()
        self.behind_s = 0.0  # the longest wait of a live window, as a moving average over the last calls
        self._calling: set[Work] = set()  # the first work of each call that runs
        self._spoken_at = -math.inf  # when the last live window came

    def add(self, work: Work) -> None:
        """Let *work* wait, and start what can start."""
        if work.urgency is not Urgency.BATCH:
            self._spoken_at = work.since
        self.fairness.enter(work.tenant)
        self.waiting.append(work)
        self.call_next()

    def call_next(self) -> None:
        """Start as many calls as may run, for the work that waits."""
        while True:
            first = min(self._callable, key=self._rank, default=None)
            if first is None:
                self.behind_s = 0.0
                return
            used = self._used + first.model.share - _ROUNDING
            if used > 1:
                return
            self._count_behind()
            if first.urgency is Urgency.BATCH and self._people_speak and used > first.model.file_share:
                return
            group = self._choose(first)
            self.waiting = [work for work in self.waiting if work not in group]
            group[0].model.weigh()
            self._calling.add(group[0])
            group[0].model.call(group, partial(self._end_call, group[0]))

    def count_running(self, model: CalledModel) -> int:
        """Return how many calls of a model run."""
        return sum(work.model is model for work in self._calling)

    @property
    def _callable(self) -> list[Work]:
        """The waiting work of models that can be called: each answers, and has a replica left."""
        return [work for work in self.waiting if work.model.answers]

    @property
    def _used(self) -> float:
        """The part of the machine that calls use. A call that hangs is not counted."""
        return sum(work.model.share for work in self._calling if work.model.answers)

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
        group = group[: first.model.max_batch]
        for work in group[1:]:
            self._renew(work)
        # A renewed window may be of another bucket. It comes soon.
        return [work for work in group if work.shares_call(first)]

    def _file_windows(self, first: Work) -> int:
        """Return how many windows of files may be in the call of *first*."""
        window_s = first.model.file_window_s
        if not window_s:  # it is not known how long they take
            return 1 if self._people_speak else first.model.max_batch
        soon = int((FILES_AMID_SPEECH_S if self._people_speak else FILES_S) / window_s)
        return max(soon, first.urgency is Urgency.BATCH)

    @staticmethod
    def _renew(work: Work) -> None:
        """Replace a window by the newest one of the same stream, at the same place in the queue."""
        try:
            newest = work.newer() if work.newer is not None else None
        except Exception as error:  # noqa: BLE001  report it to this stream only: others share the call
            fail(work, error)
            return
        if newest is not None:
            work.item, work.bucket = newest, work.model.bucket(newest)
            work.urgency, work.audio_s = urgency_of(newest), len(newest.samples) / RATE

    def _rank(self, work: Work) -> tuple[float, float, float]:
        """Return the key by which waiting work is sorted, the most urgent first."""
        if work.urgency is Urgency.TRANSLATION and time.monotonic() - work.since > TRANSLATION_WAITS_S:
            return (Urgency.PARTIAL, 0.0, work.since)
        if work.urgency is not Urgency.BATCH:
            return (work.urgency, 0.0, work.since)
        starving = time.monotonic() - max(work.since, self.fairness.last_batch) > STARVING_S
        starving = starving and not any(call.urgency is Urgency.BATCH for call in self._calling)
        return (-1.0 if starving else work.urgency, self.fairness.time_used(work.tenant), work.since)

    def _end_call(self, first: Work) -> None:
        """Start what can start after a call."""
        self._calling.remove(first)
        self.call_next()

    def _count_behind(self) -> None:
        """Update the moving average of the longest wait: a mean of all would hide load, because finals hardly wait."""
        since = [work.since for work in self.waiting if work.urgency <= Urgency.PARTIAL]
        if not since:
            self.behind_s = 0.0
            return
        more_s = time.monotonic() - min(since) - self.behind_s
        self.behind_s += (CALL_SMOOTHING if more_s > 0 else FORGETTING) * more_s


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


def urgency_of(request: DecodeRequest) -> Urgency:
    """Return the urgency of a live window."""
    return Urgency.FINAL if request.final else Urgency.PARTIAL


def fail(work: Work, error: Exception) -> None:
    if not work.done.done():
        work.done.set_exception(error)
