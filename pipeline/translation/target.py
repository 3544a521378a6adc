"""Translates the words of one recording into one language: a call at a time, nothing dropped, caught up after failures.

A translator that fails is asked again with growing pauses, or when it says so. What comes meanwhile is joined to what
failed. An answer that cannot be a translation is asked for again without context; then its unit is given up.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.audio import Samples
from pipeline.events import Changes
from pipeline.translation.translator import (
    TranslationRequest,
    Translator,
    TranslatorUnavailable,
    UnusableAnswer,
    answer_of,
)
from pipeline.translation.units import Backlog, NumberedWord, Unit

CONTEXT_PAIRS = 2
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

FAILURES = 2
"""After this many failures in a row there is an outage, and a unit that fails lets the others go first."""

LATE_S = 10.0
"""A translation that is this late is an outage too, unless its words were late for most of that time."""

CHECK_S = 0.5
"""How often it is looked whether a translation is late."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A unit and its translation. *lag_s*: since the end of its last word was heard; None in files."""

    unit: Unit
    text: str
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A unit that gets no translation."""

    unit: Unit


@dataclass(frozen=True, slots=True)
class Outage:
    """From the position *since* on there are no translations; with *until* they are there again, if late."""

    since: int
    until: int | None = None


Happened: TypeAlias = Translated | GivenUp | Outage

SamplesOf: TypeAlias = Callable[[Unit], Awaitable[Samples | None]]
"""Returns the audio of a unit, for translators that listen; None: it is gone."""


async def no_samples(_unit: Unit) -> Samples | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What is the same for all units of a target."""

    language: str
    terms: tuple[str, ...] = ()
    spoken: str | None = None  # the language of words that do not say theirs
    tenant: str = ""
    timeout_s: float | None = 20.0  # of one call; None: the translator bounds it itself
    wait_s: float = 60.0  # at the end, for the next answer


@dataclass(slots=True)
class Target:
    """The translations of one recording into one language. Words are added while run() translates them."""

    options: TargetOptions
    translator: Translator
    backlog: Backlog
    samples_of: SamplesOf = no_samples
    context: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=CONTEXT_PAIRS))
    _failing: set[int] = field(default_factory=set)  # the first words of units that failed since the last answer
    _failed_alone: set[int] = field(default_factory=set)  # of those that failed before another one was answered
    _asked: Unit | None = None
    _outage: Outage | None = None
    _translated_to: int = 0  # the end of the last translated unit
    _ended: bool = False
    _moved_at: float = 0.0  # when the last answer came, or the words ended
    _changes: Changes = field(default_factory=Changes)

    def add(self, words: Iterable[NumberedWord]) -> None:
        """Add final words."""
        self.backlog.add(words)
        self._changes.notify()

    def reach(self, channel: int | None, decided: int) -> None:
        """Note that no further word of a channel starts before the position *decided*."""
        self.backlog.reach(channel, decided)
        self._changes.notify()

    def close(self, channel: int | None) -> None:
        """End the unit that has begun on a channel: the speaker has finished."""
        self.backlog.close(channel)
        self._changes.notify()

    @property
    def begins(self) -> int | None:
        """The position of the first word that has no translation yet; None: all have one."""
        return min((unit.start for unit in [*self.asked, *self.backlog.waiting()]), default=None)

    @property
    def asked(self) -> list[Unit]:
        """The unit that is being translated, if one is."""
        return [] if self._asked is None else [self._asked]

    def finish(self) -> None:
        """End the words. run() ends when all have a translation, or *wait_s* after the last answer."""
        self.backlog.close_all()
        self._ended = True
        self._moved_at = asyncio.get_running_loop().time()
        self._changes.notify()

    async def run(self, write: Callable[[Happened], Awaitable[None]]) -> None:
        """Translate until finish() was called and nothing waits. *write* gets what happens, one after the other."""
        loop, working = asyncio.get_running_loop(), asyncio.create_task(self._work(write))
        try:
            while not working.done():
                await self._changes.until(lambda: self._asked is not None or self._ended or working.done())
                await asyncio.wait({working}, timeout=CHECK_S)
                if self._ended and loop.time() - self._moved_at > self.options.wait_s:
                    return
                unit = self._asked
                if unit is not None and self._outage is None and _is_late(unit, loop.time()):
                    await self._begin_outage(unit, write)
            await working
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _work(self, write: Callable[[Happened], Awaitable[None]]) -> None:
        failures, pause_s = 0, FIRST_PAUSE_S
        while True:
            await self._changes.until(lambda: self.backlog.ready or self._ended)
            unit = self._asked = self.backlog.take(joined=failures == 0)
            if unit is None:
                break
            self._changes.notify()
            try:
                text = await self._translate(unit)
            except UnusableAnswer:
                failures, pause_s = 0, FIRST_PAUSE_S
                await write(GivenUp(unit))
            except TranslatorUnavailable as unavailable:
                failures += 1
                if failures == FAILURES and self._outage is None:
                    await self._begin_outage(unit, write)
                await asyncio.sleep(max(pause_s, unavailable.retry_after_s))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                may_be_its_fault = failures > FAILURES and not unavailable.retry_after_s
                if may_be_its_fault and unit.first in self._failed_alone:  # it keeps failing while others do not
                    await write(GivenUp(unit))
                else:
                    self.backlog.put_back(last=may_be_its_fault)
                    if may_be_its_fault:
                        self._failing.add(unit.first)
            else:
                failures, pause_s = 0, FIRST_PAUSE_S
                await self._write(unit, text, write)
            self._asked = None
        if self._outage is not None and self._translated_to > self._outage.since:
            await write(Outage(self._outage.since, self._translated_to))  # late to the end, but there
        self._changes.notify()

    async def _translate(self, unit: Unit) -> str:
        """Return the translation of *unit*. Raises TranslatorUnavailable, UnusableAnswer."""
        samples = await self.samples_of(unit) if self.translator.listens else None
        request = TranslationRequest(
            text=unit.text,
            target=self.options.language,
            source=unit.language or self.options.spoken,
            context=tuple(self.context),
            terms=self.options.terms,
            keep=unit.labels,
            samples=samples,
            tenant=self.options.tenant,
        )
        if len(unit.labels) == len(unit.words):
            return unit.text
        try:
            return await self._ask(request)
        except UnusableAnswer:
            return await self._ask(request.without_context())

    async def _ask(self, request: TranslationRequest) -> str:
        try:
            async with asyncio.timeout(self.options.timeout_s):
                answer = await self.translator.translate(request)
        except TimeoutError as late:
            raise TranslatorUnavailable(f"no answer in {self.options.timeout_s} s") from late
        return answer_of(answer, request)

    async def _write(self, unit: Unit, text: str, write: Callable[[Happened], Awaitable[None]]) -> None:
        now = self._moved_at = asyncio.get_running_loop().time()
        self.context.append((unit.text, text))
        self._failed_alone |= self._failing - {unit.first}
        self._failing.clear()
        self.backlog.sort()
        self._translated_to = max(self._translated_to, unit.end)
        lag_s = _lag_s(unit, now)
        await write(Translated(unit, text, lag_s if unit.words[-1].heard_at is not None else None))
        if self._outage is not None and not _is_late(unit, now):
            outage, self._outage = Outage(self._outage.since, unit.end), None
            await write(outage)

    async def _begin_outage(self, unit: Unit, write: Callable[[Happened], Awaitable[None]]) -> None:
        self._outage = Outage(unit.start)
        await write(self._outage)


def _lag_s(unit: Unit, now: float) -> float:
    """Return how long ago the end of *unit* was heard; 0 in files."""
    heard_at = unit.words[-1].heard_at
    return 0.0 if heard_at is None else now - heard_at


def _is_late(unit: Unit, now: float) -> bool:
    """Return whether a translation is late, and not mainly because its words were late."""
    lag_s, final_at = _lag_s(unit, now), unit.words[-1].final_at
    return lag_s > LATE_S and (final_at is None or 2 * (now - final_at) > lag_s)
