"""What it costs a peer to make this process work: allowances of small things, and turns for those who bring many.

The shortest frame, chunk or field is the dearest: a byte of it costs as much work as a kilobyte of audio. So they are
counted, and not only their bytes.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

TURN_S = 0.002
"""Of one turn of the event loop, for the connections that have more to be parsed than their share of it."""


class TokenBucket:
    """An allowance of *most* at once, which *per_s* a second fill up again. It can be overdrawn."""

    __slots__ = ("_at", "_left", "_most", "_per_s")

    def __init__(self, *, most: float, per_s: float) -> None:
        self._most = self._left = most
        self._per_s = per_s
        self._at = time.monotonic()

    def take(self, price: float) -> float:
        """Take *price*. Returns the seconds until the allowance is no longer overdrawn; 0 if it is not."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_s) - price
        self._at = now
        return max(0.0, -self._left / self._per_s)

    def give(self, price: float) -> None:
        """Fill up by *price*."""
        self._left = min(self._most, self._left + price)

    def owed_s(self) -> float:
        """The seconds until the allowance is no longer overdrawn; 0 if it is not."""
        return self.take(0)


class Turns:
    """Lets connections that have more to be parsed take turns, so that each turn of the event loop stays short."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def busy(self) -> bool:
        """Whether connections wait. Those that have something new should wait behind them."""
        return bool(self._waiting)

    def join(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* once, in one of the next turns of the event loop. It must not take longer than TURN_S."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        until = time.monotonic() + TURN_S
        for _ in range(len(self._waiting)):
            self._waiting[0]()
            self._waiting.popleft()  # not before, so that join() does not schedule this once more
            if time.monotonic() >= until:
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._serve)
