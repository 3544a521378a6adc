"""Waiting for an event, but not for ever."""

import asyncio


async def set_within(event: asyncio.Event, most_s: float | None) -> bool:
    """Whether *event* is set, as soon as it is; False after *most_s*, where that is not None.

    Not by asyncio.wait_for(): in Python 3.11 it loses a cancel that comes together with what is waited for, and then
    who canceled waits in vain (github.com/python/cpython/issues/81839).
    """
    try:
        async with asyncio.timeout(most_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
