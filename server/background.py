"""Work in the background: faults are contained, and long computations do not hold up the event loop.

A fault is logged with its trace, counted, and ends only the work in which it occurred. Cancellation, SystemExit and
KeyboardInterrupt are not contained.

Only one thread of a process runs Python at a time. A computing thread gives way to the event loop only when its switch
interval is over, so with n such threads the loop waits up to n intervals whenever it has something to do. A full
garbage collection stops all threads; with the objects of 36,000 words in memory it takes 0.1 to 0.2 s.

So long computations run on a single thread, with automatic garbage collection switched off. An account has one such
computation at a time; those of several accounts run in the order in which they came.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from server.keyed_limits import KeyedTurns
from server.logs import log
from server.metrics import Metrics
from server.waiting import set_within

SHORT_BYTES = 8 * 1024
"""The size of stored chunks or JSON, 200 words, up to which a computation is over in less time than a thread takes."""

LONG_BYTES = 64 * 1024
"""The size of stored chunks or JSON, 1,600 words, above which a computation is long."""

SWITCH_S = 0.001
"""The switch interval of threads, in seconds. Python's default is five times as long."""

AGAIN_S = 2.0  # before keep_running() restarts work that a fault has ended
P = ParamSpec("P")
T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="background")
_turns = KeyedTurns()  # by event loop and account


def share_interpreter() -> None:
    """Set the switch interval of the whole process to SWITCH_S."""
    sys.setswitchinterval(SWITCH_S)


def total_bytes(parts: Iterable[bytes]) -> int:
    """The size of all *parts* together."""
    return sum(map(len, parts))


async def compute(account: str, size: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *work* on a thread and return its result. *size* is the size of its input in bytes.

    Short work is done on the event loop. Long work waits for earlier long work of the same *account*, and for that of
    other accounts that came before.
    """
    if size <= SHORT_BYTES:
        return work(*given, **named)
    if size <= LONG_BYTES:
        return await asyncio.to_thread(work, *given, **named)
    loop = asyncio.get_running_loop()
    async with _turns.turn((id(loop), account)):
        return await loop.run_in_executor(_thread, partial(_run_without_collector, work, *given, **named))


def _run_without_collector(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *work* with garbage collection switched off. Reference counts still free most objects."""
    gc.disable()
    try:
        return work(*given, **named)
    finally:
        gc.enable()


@contextmanager
def contain(what: str, metrics: Metrics, **about: object) -> Iterator[None]:
    """Run the block. A fault in it is logged and counted, and the caller continues after the block.

    *what* names the work in the log and labels the metric, so there should be few names. *about* are further fields of
    the log line.
    """
    try:
        yield
    except Exception:  # noqa: BLE001  no error may reach the work of others
        metrics.faults.labels(what).inc()
        log.exception("%s failed", what, extra=about)


async def keep_running(
    what: str, work: Callable[[], Awaitable[None]], *, metrics: Metrics, stopping: asyncio.Event
) -> None:
    """Run *work*. If a fault ends it, restart it after AGAIN_S, until it returns or *stopping* is set.

    A cancellation that is not meant for this task is a fault too: a task group would take it for the end of *work*.
    """
    task = asyncio.current_task()
    assert task is not None
    while True:
        with contain(what, metrics):
            try:
                await work()
            except asyncio.CancelledError as stray:
                if task.cancelling():
                    raise
                raise RuntimeError("what this waited for was cancelled") from stray
            return
        if await set_within(stopping, AGAIN_S):
            return
