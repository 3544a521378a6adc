"""An event loop whose clock jumps instead of waiting: hours of streaming in minutes, whatever else the machine does.

    asyncio.Runner(loop_factory=VirtualTimeLoop).run(main())

Work for a thread is done at once, and finishes on this clock after the time that it took. Nothing outside can wake this
loop, so it cannot have sockets.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """A selector that moves the clock forward instead of waiting."""

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
    """An event loop whose time() starts at 0 and moves only while everything waits. *cpu_s* is the work done so far."""

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._jump = _Jump()
        self._cpu_s = cpu_s
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s

    def run_in_executor(  # type: ignore[override]  # typeshed's is overloaded for the same
        self, _executor: Executor | None, work: Callable[..., T], *arguments: Any
    ) -> "asyncio.Future[T]":
        """Do *work* now; its future has the result when the time of the work has passed on this clock."""
        future: asyncio.Future[T] = self.create_future()
        began_s = self._cpu_s()
        try:
            settle, outcome = future.set_result, work(*arguments)
        except Exception as error:  # noqa: BLE001  whatever it was, it belongs to the one who waits
            self.call_soon(_settle, future, future.set_exception, error)
            return future
        self.call_later(self._cpu_s() - began_s, _settle, future, settle, outcome)
        return future


def _settle(future: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)
