"""Limits by key: what one account, address or job may do within a minute, at the same time, and at once.

A RateTable counts within sliding minutes, a Tally counts those who hold something now, KeyedTurns let the others wait,
and a TokenBucket is an allowance that refills. All count in this process, and forget keys that are not in use.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from server.clock import now_ms
from server.model.accounts import WindowUse

MINUTE_MS = 60_000

K = TypeVar("K", bound=Hashable)


class NoTurn(Exception):
    """Others worked for the key for too long."""


class SlidingWindow:
    """The instants of one client's requests in the last minute: at most *limit* within any 60 s.

    (A bucket that refills at intervals would allow up to twice the limit around a refill.) Refused requests are not
    counted, so a client that keeps trying is admitted as soon as one that waits. Instants are milliseconds since 1970.
    """

    def __init__(self) -> None:
        self._instants: deque[int] = deque()

    def hit(self, now: int, limit: int) -> WindowUse:
        """Count a request at *now* if it fits.

        If the clock has gone back, the last request's time is used. If it has gone back by more than a minute, counting
        begins anew: otherwise nobody could ask for anything before the clock has caught up.
        """
        now = self._forget(now)
        allowed = len(self._instants) < limit
        if allowed:
            self._instants.append(now)
        return self._window_use(now, limit, allowed=allowed)

    def look(self, now: int, limit: int) -> WindowUse:
        """The state of the window, without counting a request."""
        now = self._forget(now)
        return self._window_use(now, limit, allowed=len(self._instants) < limit)

    def idle(self, now: int) -> bool:
        """Whether the window is empty and can be forgotten."""
        self._forget(now)
        return not self._instants

    def _forget(self, now: int) -> int:
        if self._instants and now < self._instants[-1] - MINUTE_MS:
            self._instants.clear()
        if self._instants:
            now = max(now, self._instants[-1])
        while self._instants and self._instants[0] <= now - MINUTE_MS:
            self._instants.popleft()
        return now

    def _window_use(self, now: int, limit: int, *, allowed: bool) -> WindowUse:
        used = len(self._instants)
        # If the limit was lowered meanwhile, more than one request must leave the window before the next fits.
        leaves = self._instants[max(0, used - limit)] if limit > 0 and used else now
        return WindowUse("minute", limit, used, MINUTE_MS // 1000, leaves + MINUTE_MS, allowed)


class RateTable:
    """One SlidingWindow for each key of the last minute. Idle ones are removed whenever the table has doubled.

    So it has at most SMALLEST windows, or twice as many as there are keys in a minute.
    """

    SMALLEST = 1024

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._windows: dict[str, SlidingWindow] = {}
        self._sweep_at = self.SMALLEST

    def hit(self, key: str, *, limit: int) -> WindowUse:
        """Count a request of *key* now if it fits."""
        now = self._clock()
        if len(self._windows) >= self._sweep_at:
            self._windows = {key: window for key, window in self._windows.items() if not window.idle(now)}
            self._sweep_at = max(self.SMALLEST, 2 * len(self._windows))
        return self._windows.setdefault(key, SlidingWindow()).hit(now, limit)

    def look(self, key: str, *, limit: int) -> WindowUse:
        """The state of *key*'s window, without counting a request."""
        return self._windows.get(key, SlidingWindow()).look(self._clock(), limit)

    def __len__(self) -> int:
        return len(self._windows)


class LocalRates:
    """The RateCounter of a storage that one process uses alone (storage/ports.py)."""

    def __init__(self) -> None:
        self._table = RateTable()

    async def hit(self, subject: str, *, limit: int) -> WindowUse:
        return self._table.hit(subject, limit=limit)


class Tally(Counter[K]):
    """Counts those who hold something at present, by key. A key whose count reaches 0 is removed."""

    def join(self, key: K, *, most: int) -> bool:
        """Count one more for *key*. Returns False, and counts nothing, if there are *most* already."""
        if self[key] >= most:
            return False
        self[key] += 1
        return True

    def leave(self, key: K) -> None:
        """Subtract one."""
        left = self.pop(key) - 1
        if left:
            self[key] = left

    @contextmanager
    def adding(self, *keys: K) -> Iterator[None]:
        """Count each of *keys* once more while the block lasts."""
        self.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self.leave(key)


class KeyedTurns:
    """Lets a few work for a key at the same time. The others wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()  # while in use

    @asynccontextmanager
    async def turn(self, key: Hashable, *, most: int = 1, wait_s: float | None = None) -> AsyncIterator[None]:
        """Run the block when fewer than *most* others run for *key*. Raises NoTurn after *wait_s* seconds.

        If *most* changes, the number counts that was given while nobody worked for the key.
        """
        semaphore = self._waiting.setdefault(key, asyncio.Semaphore(most))
        try:
            async with asyncio.timeout(wait_s):
                await semaphore.acquire()
        except TimeoutError:
            raise NoTurn from None
        try:
            yield
        finally:
            semaphore.release()


class TokenBucket:
    """An allowance of *most*, refilled by *per_s* a second. It can be overdrawn."""

    __slots__ = ("_at", "_left", "_most", "_per_s")

    def __init__(self, *, most: float, per_s: float) -> None:
        self._most = self._left = most
        self._per_s = per_s
        self._at = time.monotonic()

    def spend(self, price: float) -> float:
        """Take *price*. Returns the seconds until the allowance is no longer overdrawn; 0 if it is not."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_s) - price
        self._at = now
        return max(0.0, -self._left / self._per_s)

    def afford(self, price: float) -> bool:
        """Take *price* if that does not overdraw the allowance. Returns whether it was taken."""
        self.spend(0)
        if self._left < price:
            return False
        self._left -= price
        return True

    def owed_s(self) -> float:
        """The seconds until the allowance is no longer overdrawn; 0 if it is not."""
        return self.spend(0)
