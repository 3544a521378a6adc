"""Long computations take turns on a thread where nothing collects garbage."""

import asyncio
import gc
import sys
import threading

import pytest

from server.background import LONG_BYTES, SWITCH_S, compute, share_interpreter, total_bytes

LONG = LONG_BYTES + 1
OBJECTS = 50_000


def collections() -> int:
    """How often garbage of any age was collected so far."""
    return sum(generation["collections"] for generation in gc.get_stats())


def make_objects() -> int:
    """Make many objects, and return how often garbage was collected meanwhile."""
    before = collections()
    made = [[number] for number in range(OBJECTS)]
    assert len(made) == OBJECTS
    return collections() - before


def test_nothing_collects_garbage_during_long_work() -> None:
    assert make_objects() > 10
    assert asyncio.run(compute("a", LONG, make_objects)) == 0
    assert gc.isenabled()


def test_an_error_is_passed_on_and_the_collector_works_again() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(compute("a", LONG, lambda: 1 // 0))
    assert gc.isenabled()


def test_an_account_has_one_long_work_in_the_queue() -> None:
    done: list[str] = []

    async def all_at_once() -> None:
        many = [compute("many", LONG, done.append, f"many {n}") for n in range(50)]
        await asyncio.gather(*many, compute("one", LONG, done.append, "one"))

    asyncio.run(all_at_once())
    assert len(done) == 51
    assert done.index("one") <= 2


def test_short_work_does_not_wait_for_long_work() -> None:
    over = threading.Event()

    async def both() -> None:
        long = asyncio.create_task(compute("a", LONG, over.wait, 30))
        await asyncio.sleep(0)
        assert await compute("a", LONG_BYTES, lambda: "short") == "short"
        assert not long.done()
        over.set()
        assert await long

    asyncio.run(both())


def test_threads_that_compute_give_way_soon() -> None:
    before = sys.getswitchinterval()
    try:
        share_interpreter()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before)


def test_the_size_of_parts_is_their_sum() -> None:
    assert total_bytes([b"ab", b"", b"c"]) == 3
