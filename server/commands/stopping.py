"""Handles the signals that stop a process, even while its event loop is busy."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* in the running event loop at each SIGTERM and SIGINT while the block lasts. Main thread only.

    loop.add_signal_handler() is not used: it gets signals through the pipe that also wakes the loop for other threads.
    While the loop is busy, such wake-ups can fill the pipe, and then a signal is lost.
    """
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
