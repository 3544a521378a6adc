"""Long computations take turns on a thread where nothing collects garbage."""

import asyncio
import gc
import threading

import pytest

from server.background import LONG_BYTES, compute

LONG = LONG_BYTES + 1


def test_an_error_is_passed_on_and_the_collector_works_again():
    with pytest.raises(ZeroDivisionError):
        asyncio.run(compute("a", LONG, lambda: 1 // 0))
    assert gc.isenabled()


async def test_an_account_has_one_long_work_in_the_queue():
    done: list[str] = []
    many = [compute("many", LONG, done.append, f"many {n}") for n in range(50)]
    await asyncio.gather(*many, compute("one", LONG, done.append, "one"))
    assert len(done) == 51
    assert done.index("one") <= 2


async def test_short_work_does_not_wait_for_long_work():
    over = threading.Event()

    long = asyncio.create_task(compute("a", LONG, over.wait, 30))
    await asyncio.sleep(0)
    assert await compute("a", LONG_BYTES, lambda: "short") == "short"
    assert not long.done()
    over.set()
    assert await long
