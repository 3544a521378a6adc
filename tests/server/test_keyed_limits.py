"""Tests of keyed_limits.py: sliding minutes, tallies, turns and allowances by key."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.keyed_limits import MINUTE_MS, KeyedTurns, NoTurn, RateTable, SlidingWindow, Tally, TokenBucket

# The sliding window


REQUESTS = st.lists(st.integers(0, 20_000), max_size=60).map(
    lambda gaps: [sum(gaps[: i + 1]) for i in range(len(gaps))]
)


@given(REQUESTS, st.integers(1, 8))
def test_no_60_seconds_ever_hold_more_than_the_limit(instants, limit):
    window = SlidingWindow()
    passed = [now for now in instants if window.hit(now, limit).allowed]
    assert all(sum(start <= now < start + MINUTE_MS for now in passed) <= limit for start in passed)


@given(REQUESTS, st.integers(1, 8))
def test_a_request_is_refused_only_when_the_minute_before_it_is_full(instants, limit):
    window, passed = SlidingWindow(), []
    for now in instants:
        full = sum(now - MINUTE_MS < earlier <= now for earlier in passed) >= limit
        assert window.look(now, limit).allowed is not full
        standing = window.hit(now, limit)
        assert standing.allowed is not full
        if standing.allowed:
            passed.append(now)
        assert standing.used <= limit


@given(REQUESTS, st.integers(1, 8), st.integers(1, 8))
def test_what_was_refused_fits_when_it_was_told_to_come_back_and_not_before(instants, limit, lowered):
    window = SlidingWindow()
    now = 0
    for now in instants:
        window.hit(now, limit)
    standing = window.look(now, lowered)
    if standing.allowed:
        return
    assert not window.look(standing.resets_at - 1, lowered).allowed
    assert window.look(standing.resets_at, lowered).allowed


def test_a_clock_that_goes_back_for_less_than_a_minute_frees_nothing():
    window = SlidingWindow()
    assert window.hit(1_000_000, 2).allowed
    assert window.hit(1_000_000 - MINUTE_MS, 2).allowed
    assert not window.hit(1_000_000 - MINUTE_MS, 2).allowed
    assert window.hit(1_000_000 + MINUTE_MS, 2).allowed


def test_a_clock_that_is_set_back_by_an_hour_locks_nobody_out():
    window = SlidingWindow()
    assert window.hit(60 * MINUTE_MS, 1).allowed
    assert window.hit(0, 1).allowed
    assert not window.hit(0, 1).allowed
    assert window.hit(MINUTE_MS, 1).allowed


# The table of all windows


def test_the_table_forgets_who_has_not_asked_for_a_minute():
    now = iter(range(0, 10**9, 1000))
    table = RateTable(lambda: next(now))
    for number in range(20 * RateTable.SMALLEST):
        table.hit(f"address {number}", limit=30)
    assert len(table) <= RateTable.SMALLEST


def test_the_table_never_forgets_who_asked_within_the_minute():
    now = iter(range(10**9))
    table = RateTable(lambda: next(now))
    for number in range(3 * RateTable.SMALLEST):
        assert table.hit(f"address {number}", limit=1).allowed
    for number in range(3 * RateTable.SMALLEST):
        assert not table.hit(f"address {number}", limit=1).allowed


# Tallies, turns and allowances


def test_a_tally_keeps_no_key_that_nobody_holds():
    tally = Tally[str]()
    assert [tally.join("a", most=2) for _ in range(3)] == [True, True, False]
    with tally.adding("a", "b"):
        assert dict(tally) == {"a": 3, "b": 1}
    tally.leave("a")
    tally.leave("a")
    assert dict(tally) == {}


async def test_turns_of_a_key_come_in_order_and_those_of_other_keys_at_once():
    turns, order, go_on = KeyedTurns(), list[str](), asyncio.Event()

    async def work(key: str, name: str) -> None:
        async with turns.turn(key):
            order.append(name)
            await go_on.wait()

    async with asyncio.TaskGroup() as tasks:
        for key, name in (("a", "first"), ("a", "second"), ("b", "other"), ("a", "third")):
            tasks.create_task(work(key, name))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["first", "other"]
        go_on.set()
    assert order == ["first", "other", "second", "third"]


async def test_who_waits_too_long_for_a_turn_gets_none():
    turns = KeyedTurns()
    async with turns.turn("a", most=2), turns.turn("a", most=2):
        with pytest.raises(NoTurn):
            async with turns.turn("a", most=2, wait_s=0.01):
                raise AssertionError("there are two already")
    async with turns.turn("a", wait_s=0.01):
        pass


def test_an_allowance_refills_up_to_its_most_and_can_be_overdrawn(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    bucket = TokenBucket(most=10, per_s=2)
    assert bucket.afford(10)
    assert not bucket.afford(1)
    assert bucket.spend(4) == 2.0
    now[0] = 2.5
    assert bucket.owed_s() == 0
    assert bucket.afford(1)
    now[0] = 1000.0
    assert not bucket.afford(11)
    assert bucket.afford(10)
