"""Tests of fair_queue.py: how the turns of the event loop are shared."""

import asyncio
import time
from collections.abc import Callable

import pytest

from server.transport import fair_queue
from server.transport.fair_queue import LEAST, LONG_TURN_S, MOST, SHARED_TURN_S, TURN_S, WORKS, FairQueue
from tests.server.storing import in_a_loop


class Party:
    """An address that keeps *connections* busy: each has a piece of work again as soon as the last one is done."""

    def __init__(self, queue: FairQueue, name: str, done: list[str], cost_s: float = 0.0) -> None:
        self.queue, self.name, self.done, self.cost_s = queue, name, done, cost_s

    def ask(self) -> None:
        """Do a piece of work, at once if that is allowed."""
        if self.queue.take(self.name):
            self.work()
        else:
            self.queue.join(self.name, self.work)

    def work(self) -> None:
        until = time.thread_time() + self.cost_s
        while time.thread_time() < until:
            pass
        self.done.append(self.name)

    def keep_busy(self, connections: int) -> None:
        def work_again() -> None:
            self.work()
            self.queue.join(self.name, work_again)

        for _ in range(connections):
            self.queue.join(self.name, work_again)


@pytest.fixture
def endless_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that end by the number of pieces alone, however busy the machine is."""
    monkeypatch.setattr(fair_queue, "TURN_S", 60.0)
    monkeypatch.setattr(fair_queue, "LONG_TURN_S", 60.0)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_a_turn_has_a_bounded_number_of_pieces_of_an_address():
    queue, done = FairQueue(), list[str]()
    Party(queue, "flood", done).keep_busy(1000)
    for turn in range(1, 10):
        await turns(1)
        assert len(done) == turn * WORKS


@in_a_loop
async def test_a_turn_ends_when_its_time_is_over():
    queue, done = FairQueue(), list[str]()
    Party(queue, "flood", done, cost_s=TURN_S).keep_busy(1000)
    await turns(3)
    assert len(done) <= 3


@in_a_loop
async def test_long_turns_have_room_for_fewer_pieces_and_short_ones_for_more_again(monkeypatch):
    monkeypatch.setattr(fair_queue, "TURN_S", 60.0)
    queue, done = FairQueue(), list[str]()
    party = Party(queue, "flood", done)
    party.keep_busy(1000)

    async def pieces_of_a_turn(*, requests_s: float) -> int:
        before = len(done)
        asyncio.get_running_loop().call_soon(Party(queue, "", [], requests_s).work)
        await turns(1)
        return len(done) - before

    assert sum([await pieces_of_a_turn(requests_s=2 * LONG_TURN_S) for _ in range(20)][-4:]) == 4 * LEAST
    monkeypatch.setattr(fair_queue, "LONG_TURN_S", 60.0)
    assert [await pieces_of_a_turn(requests_s=0) for _ in range(2 * WORKS)][-1] == WORKS


@in_a_loop
async def test_turns_are_short_while_another_address_asks_and_long_again_when_one_asks_alone(monkeypatch):
    monkeypatch.setattr(fair_queue, "TURN_S", 60.0)
    monkeypatch.setattr(fair_queue, "LONG_TURN_S", 60.0)
    monkeypatch.setattr(fair_queue, "SHARED_S", 0.5)
    queue, done = FairQueue(), list[str]()
    Party(queue, "flood", done).keep_busy(1000)

    async def pieces_of_4_turns(*, after_turns: int) -> int:
        """The pieces of the last four turns, each with requests that take longer than a turn that is shared."""
        for turn in range(after_turns + 4):
            if turn == after_turns:
                before = len(done)
            asyncio.get_running_loop().call_soon(Party(queue, "", [], 2 * SHARED_TURN_S).work)
            await turns(1)
        return len(done) - before

    assert await pieces_of_4_turns(after_turns=20) == 4 * WORKS
    assert queue.take("bystander")
    assert await pieces_of_4_turns(after_turns=20) == 4 * LEAST
    await asyncio.sleep(0.6)
    assert await pieces_of_4_turns(after_turns=2 * WORKS) == 4 * WORKS


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_who_asks_seldom_does_not_wait_for_who_asks_much():
    queue, done = FairQueue(), list[str]()
    Party(queue, "flood", done).keep_busy(1000)
    await turns(3)
    before = len(done)
    Party(queue, "bystander", done).ask()
    assert done[before:] == ["bystander"]


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_a_crowd_of_addresses_is_served_in_bounded_turns_each_in_its_order():
    queue, done = FairQueue(), list[str]()
    names = [f"address {number}" for number in range(1000)]
    for name in names:
        Party(queue, name, done).ask()
    assert len(done) == MOST
    await turns(100)
    assert done == names


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_one_that_asks_at_once_all_the_time_has_its_share_and_no_more():
    queue, done = FairQueue(), list[str]()
    party = Party(queue, "flood", done)
    for turn in range(1, 6):
        for _ in range(3 * WORKS):  # what connections deliver while the loop reads
            party.ask()
        assert len(done) == turn * WORKS
        await turns(1)


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_addresses_that_wait_are_served_in_rotation_whatever_their_number_of_connections():
    queue, done = FairQueue(), list[str]()
    for name, connections in (("a", 500), ("b", 20), ("c", 1)):
        Party(queue, name, done).keep_busy(connections)
    await turns(6)
    counts = [done.count(name) for name in "abc"]
    assert max(counts) - min(counts) <= 1
    assert done[:6] == [*"abcabc"]


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_work_of_an_address_keeps_its_order_and_none_is_lost():
    queue, done = FairQueue(), list[int]()

    def note(number: int) -> Callable[[], None]:
        return lambda: done.append(number)

    for number in range(5 * WORKS):
        queue.join("a", note(number))
        queue.join("b", note(-number))
    await turns(20)
    assert [number for number in done if number > 0] == [*range(1, 5 * WORKS)]
    assert len(done) == 10 * WORKS


@in_a_loop
@pytest.mark.usefixtures("endless_turns")
async def test_work_that_fails_holds_up_nobody():
    queue, done, faults = FairQueue(), list[str](), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(str(context["exception"])))

    def fail() -> None:
        raise OSError("broken")

    queue.join("a", fail)
    Party(queue, "b", done).keep_busy(3)
    await turns(3)
    assert faults == ["broken"]
    assert len(done) > WORKS


@in_a_loop
async def test_a_queue_at_rest_wakes_nobody(monkeypatch):
    woken = list[FairQueue]()
    serve = FairQueue._serve
    monkeypatch.setattr(FairQueue, "_serve", lambda queue: (woken.append(queue), serve(queue)))
    queue = FairQueue()
    assert queue.take("a")
    queue.join("a", lambda: None)
    await turns(10)
    assert len(woken) <= 3
