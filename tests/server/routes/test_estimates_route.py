"""Tests of estimates over HTTP: who counts as one client, when a day ends, what is free, and many at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from estimator import Estimator
from server.routes import estimates
from server.routes.estimates import MAX_WAITING
from tests.server.serving import AppServer, serve, wav
from tests.waiting import until

ASK = {"prompt": "Hello, world!", "models": ["gpt-5-mini"]}


@pytest.fixture
def behind_a_proxy(tmp_path: Path) -> Iterator[AppServer]:
    with serve(tmp_path, TRUSTED_PROXIES="127.0.0.0/8") as server:
        yield server


def ask(server: AppServer, address: str | None = None, body: object = None) -> httpx.Response:
    headers = {} if address is None else {"X-Forwarded-For": address}
    return httpx.post(server.base + "/v1/estimate/free", json=body or ASK, headers=headers, timeout=110)


def test_the_day_ends_at_midnight_utc(behind_a_proxy, monkeypatch):
    def at(hour: int, minute: int, day: int = 20) -> int:
        return int(datetime(2026, 11, day, hour, minute, tzinfo=UTC).timestamp() * 1000)

    monkeypatch.setattr(estimates, "now_ms", lambda: at(23, 59))
    answers = [ask(behind_a_proxy, "203.0.113.9") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].json()["usage"] == {"remaining": 2, "resets_at": "2026-11-21T00:00:00.000Z"}
    monkeypatch.setattr(estimates, "now_ms", lambda: at(0, 0, day=21))
    assert ask(behind_a_proxy, "203.0.113.9").json()["usage"]["remaining"] == 2


def test_an_error_costs_nothing(behind_a_proxy):
    for body in ({"prompt": 7}, {"prompt": "x", "models": ["nope"]}, {"prompt": "x", "agent_turns": 0}):
        assert ask(behind_a_proxy, "203.0.113.10", body).status_code == 422
    assert ask(behind_a_proxy, "203.0.113.10").json()["usage"]["remaining"] == 2


def test_a_flood_of_estimates_holds_up_no_transcription(behind_a_proxy, monkeypatch):
    """With forty estimates from as many addresses, one is computed, some wait, and an upload passes all of them."""
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: statuses.append(ask(behind_a_proxy, f"198.51.100.{n}").status_code))
        for n in range(40)
    ]
    with hold_estimates(monkeypatch):
        for thread in threads:
            thread.start()
        until(lambda: len(statuses) == 40 - MAX_WAITING)
        answer = httpx.post(
            behind_a_proxy.base + "/v1/transcribe",
            files={"file": wav()},
            headers={"Authorization": f"Bearer {behind_a_proxy.key()}"},
            timeout=60,
        )
        assert answer.json()["status"] == "completed"
        assert statuses == [503] * (40 - MAX_WAITING)
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * MAX_WAITING + [503] * (40 - MAX_WAITING)


@contextmanager
def hold_estimates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No estimate ends while the block lasts."""
    go = threading.Event()
    estimate = Estimator.estimate

    def slow(*arguments: Any, **members: Any) -> Any:
        go.wait(60)
        return estimate(*arguments, **members)

    monkeypatch.setattr(Estimator, "estimate", slow)
    try:
        yield
    finally:
        go.set()


def test_one_account_and_one_address_cannot_take_every_place(behind_a_proxy, monkeypatch):
    """Five at once of an account and of an address: so many wait that others find a place."""
    statuses: dict[str, list[int]] = {"account": [], "address": [], "others": []}
    key = {"Authorization": f"Bearer {behind_a_proxy.key()}"}

    def ask_with_key() -> None:
        answer = httpx.post(behind_a_proxy.base + "/v1/estimate", json=ASK, headers=key, timeout=110)
        statuses["account"].append(answer.status_code)

    def keyless(name: str, address: str) -> None:
        statuses[name].append(ask(behind_a_proxy, address).status_code)

    threads = [threading.Thread(target=ask_with_key) for _ in range(5)]
    threads += [threading.Thread(target=keyless, args=("address", "198.51.100.1")) for _ in range(5)]
    with hold_estimates(monkeypatch):
        for thread in threads:
            thread.start()
        until(lambda: (len(statuses["account"]), len(statuses["address"])) == (3, 4), max_s=10)
        threads.append(threading.Thread(target=keyless, args=("others", "198.51.100.2")))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert statuses["account"] == [429] * 3 + [200] * 2
    assert statuses["address"] == [429] * 4 + [200]
    assert statuses["others"] == [200]


def test_the_sandbox_has_a_day_of_estimates_of_its_own_and_takes_smaller_ones(tmp_path):
    with serve(tmp_path) as server, server.new_client("free", estimates_per_day=2) as owner:
        key = owner.post("/v1/keys", json={"environment": "sandbox"}).json()["key"]
        with server.client(key, sandbox=True) as tester:
            long = {**ASK, "prompt": "word " * 60_000}
            assert owner.post("/v1/estimate", json=long).status_code == 200
            refused = tester.post("/v1/estimate", json=long)
            assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
            assert [tester.post("/v1/estimate", json=ASK).status_code for _ in range(3)] == [200, 200, 429]
            assert {row["name"]: row["used"] for row in tester.get("/v1/usage").json()["usage"]}["estimates"] == 2
        assert owner.post("/v1/estimate", json=ASK).json()["usage"]["remaining"] == 0
