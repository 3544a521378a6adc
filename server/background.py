"""Long computations in Python that do not hold up the event loop: transcripts and documents of hours of speech.

Only one thread of a process runs Python at a time. A thread that computes gives way to the event loop when its switch
interval is over, so with n of them the loop waits up to n intervals, each time that it has waited for something. And a
full collection of garbage lets nobody else run. With the objects of 36,000 words in memory it takes 0.1 to 0.2 s.

So what is long runs on one thread of its own, where the automatic collection of garbage is off. An account has one such
computation at a time; those of several accounts run in the order in which they came.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

LONG_BYTES = 64 * 1024
"""Of stored chunks or JSON: 1,600 words. What has more is long."""

SWITCH_S = 0.001
"""After which a thread that computes gives way to another. Python's own interval is five times as long."""

P = ParamSpec("P")
T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="background")
_turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()  # by event loop and account


def share_interpreter() -> None:
    """Make threads give way after SWITCH_S, in the whole process."""
    sys.setswitchinterval(SWITCH_S)


def total_bytes(parts: Iterable[bytes]) -> int:
    """The size of all *parts* together."""
    return sum(map(len, parts))


async def compute(account: str, size: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *work* on a thread and return its result. *size* is that of what it reads, in bytes.

    If it is long, other long work of the *account* and of accounts that came before is done first.
    """
    if size <= LONG_BYTES:
        return await asyncio.to_thread(work, *given, **named)
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault((id(loop), account), asyncio.Lock())
    async with turn:
        return await loop.run_in_executor(_thread, partial(_run_without_collector, work, *given, **named))


def _run_without_collector(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *work* while nothing collects garbage. Reference counts still free what is no longer used."""
    gc.disable()
    try:
        return work(*given, **named)
    finally:
        gc.enable()
