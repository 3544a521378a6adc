"""An address adds at most 1 MB a minute to the log."""

import asyncio
from typing import Any

import pytest

from server.http.client_addresses import AddressCounters
from tests.waiting import eventually


def scope(peer: str = "203.0.113.9") -> dict[str, Any]:
    return {"client": (peer, 1), "headers": []}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: at[0])
    return at


def count_lines(address_limits: AddressCounters, now: list[float]) -> int:
    """The lines that come into the log within a minute in which somebody sends as fast as it can."""

    async def flood() -> int:
        written = 0
        for _ in range(60_000):
            now[0] += 0.001
            written += address_limits.may_log(scope())
        return written

    return asyncio.run(flood())


def test_an_address_writes_a_bounded_number_of_lines_a_minute(now):
    address_limits = AddressCounters(10, ())
    assert 3_000 < count_lines(address_limits, now) <= 3_500
    assert asyncio.run(others(address_limits))


async def others(address_limits: AddressCounters) -> bool:
    return address_limits.may_log(scope("203.0.113.10"))


def test_what_is_left_out_is_summed_up(caplog, monkeypatch):
    monkeypatch.setattr("server.http.client_addresses.SUMMARY_S", 0.05)

    async def flood() -> int:
        left_out = sum(not address_limits.may_log(scope()) for _ in range(2000))
        await eventually(lambda: caplog.records)
        return left_out

    address_limits = AddressCounters(10, ())
    left_out = asyncio.run(flood())
    assert left_out > 0
    assert [vars(record)["count"] for record in caplog.records] == [left_out]
