"""A queue of connections that bring more small things at once than may be parsed without a pause."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

TURN_S = 0.002
"""Of one turn of the event loop, for the connections that have more to be parsed than their share of it."""


class ParseQueue:
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
