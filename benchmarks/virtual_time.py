"""An event loop whose clock jumps instead of waiting: hours of streaming in seconds, the same every time.

    asyncio.Runner(loop_factory=VirtualTimeLoop).run(main())

Nothing outside the loop can wake it: threads, processes and sockets have no place in it.
"""

import asyncio
import selectors
from typing import Any


class _Jump(selectors.DefaultSelector):
    """Instead of waiting, moves the clock on by the time to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, Any]] = super().select(0)
        if events:
            return events
        if timeout is None:
            raise RuntimeError("everything waits and nothing is planned: this would wait for ever")
        self.now_s += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """time() starts at 0 and moves only while everything waits."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s
