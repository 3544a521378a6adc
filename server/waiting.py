"""Waits for an event with a time limit and for the first of several tasks."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


async def set_within(event: asyncio.Event, limit_s: float | None) -> bool:
    """Wait for *event*. Returns True as soon as it is set, False after *limit_s* seconds (None: no limit).

    Python 3.11's asyncio.wait_for() is not used: it loses a cancellation that arrives together with the result, and
    then the task that cancelled waits for ever (github.com/python/cpython/issues/81839).
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def racing(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[list["asyncio.Task[Any]"]]:
    """Run *works* at the same time. The block begins when the first has ended; at its end the others are cancelled.

    The block gets a task for each work, in order. After the block all tasks have ended.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def until_first(*works: Coroutine[Any, Any, Any]) -> None:
    """Run *works* at the same time until the first has ended, cancel the others, and raise its error, if any.

    If several end at the same moment, the error of the first one in order is raised.
    """
    async with racing(*works) as tasks:
        ended = [task for task in tasks if task.done()]
    for task in ended:
        task.result()


MIN_BYTES_S = 10_000  # from a slower peer nothing more is read


async def in_pace(pieces: AsyncIterator[bytes], *, window_s: float) -> AsyncIterator[bytes]:
    """Yield *pieces* as they come. Raises TimeoutError if they come too slowly.

    Too slowly: *window_s* seconds of waiting bring less than MIN_BYTES_S a second. The caller's own time between two
    pieces does not count.
    """
    loop = asyncio.get_running_loop()
    left_s, missing = window_s, MIN_BYTES_S * window_s
    while True:
        began = loop.time()
        async with asyncio.timeout(left_s):
            piece = await anext(pieces, None)
        if piece is None:
            return
        left_s -= loop.time() - began
        missing -= len(piece)
        if missing <= 0:
            left_s, missing = window_s, MIN_BYTES_S * window_s
        yield piece
