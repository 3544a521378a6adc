"""Small things in great numbers: each kind at each door of the app, while a bystander and a customer go on.

The doors are those of the app, so a new one is among them. benchmarks/flood_items.py has the kinds, and
benchmarks/floods.py measures them one by one and for longer.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from benchmarks.flood_items import FRAMES, HTTP_KINDS
from benchmarks.floods import Bystander, Flood, strangers
from server.app import EntryPoint
from tests.abuse.arena import Arena, Stranger, arena_of_two_nodes
from tests.server.serving import serve

SECONDS = 4.0
ROUNDS = 5  # at most, where other tests take the processor; what a flood costs without a price shows in each of them
STAY_S = 0.15
BYTES_S = 2e6  # of all strangers together
CONNECTIONS = 4  # of each kind
MAX_P95_MS, MAX_WAIT_MS = 250.0, 1500.0  # without a price it is seconds


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> tuple[EntryPoint, ...]:
    with serve(tmp_path_factory.mktemp("doors")) as server:
        return server.service.entry_points


@pytest.fixture
def stranger(ring: Arena) -> Iterator[Stranger]:
    yield ring.stranger()
    ring.leave()


def fill_path(path: str, job: str) -> str:
    """The path with the job in it, and something unknown for everything else."""
    return "/sandbox" + re.sub(r"\{\w+\}", "unknown", path.replace("{job_id}", job))


linux = pytest.mark.skipif(sys.platform != "linux", reason="calls from another address of this machine")


@linux
@pytest.mark.parametrize("keyed", [False, True], ids=["no key", "a key"])
@pytest.mark.parametrize("sockets", [False, True], ids=["requests", "sockets"])
def test_small_things_at_any_door_hold_up_nobody(ring, stranger, doors, *, keyed, sockets):
    flood_all(ring, stranger, doors, keyed=keyed, sockets=sockets)


@linux
def test_small_things_at_any_door_of_one_node_hold_up_nobody_there_or_at_another(tmp_path, doors):
    with arena_of_two_nodes(tmp_path) as nodes:
        for sockets in (False, True):
            flood_all(nodes, nodes.stranger(), doors, keyed=True, sockets=sockets)


def flood_all(ring: Arena, stranger: Stranger, doors: tuple[EntryPoint, ...], *, keyed: bool, sockets: bool) -> None:
    """Send each kind to each of *doors*, and assert that bystanders are answered soon and the innocent is unharmed."""
    key = stranger.key("sandbox")
    job = stranger.client(key, sandbox=True).post("/v1/live", json={}).json()["job_id"]
    token = "" if keyed or not sockets else "?token=st_bad"
    open_to = tuple((method, fill_path(path, job) + token) for method, path in doors if (method == "WS") is sockets)
    kinds = tuple(FRAMES) if sockets else HTTP_KINDS
    floods = [
        Flood(
            kind=kind,
            doors=open_to,
            connections=CONNECTIONS,
            bytes_s=BYTES_S / len(kinds),
            key=key if keyed else "",
            address=stranger.address,
            stay_s=STAY_S,
        )
        for kind in kinds
    ]
    unmet = {(kind, *door) for kind, door in product(kinds, open_to)}
    places = {ring.server.base, ring.innocent.server.base}
    rounds: list[list[Mapping[str, float]]] = []
    while len(rounds) < ROUNDS and (unmet or not any(all(map(is_short, waits)) for waits in rounds)):
        bystanders, sent = [Bystander(base) for base in places], dict[str, Any]()
        for number, flood in enumerate(floods):  # a slow machine does not come to the last doors in one round
            floods[number] = replace(
                flood, doors=tuple(sorted(open_to, key=lambda door: (kinds[number], *door) not in unmet))
            )
        with strangers(ring.server.base, floods, SECONDS, sent), ThreadPoolExecutor() as threads:
            list(threads.map(lambda bystander: bystander.wait(SECONDS - 0.5), bystanders))
        rounds.append([bystander.to_json() for bystander in bystanders])
        unmet -= set(map(tuple, sent["doors"]))
    assert any(all(map(is_short, waits)) for waits in rounds), rounds
    assert not unmet
    ring.innocent.is_unharmed()


def is_short(waits: Mapping[str, float]) -> bool:
    return waits["p95"] <= MAX_P95_MS and waits["longest"] <= MAX_WAIT_MS


def test_the_log_grows_little_by_what_strangers_send(ring, stranger):
    before, sent = len(ring.server.log), dict[str, Any]()
    escapes = Flood(kind="escapes", doors=(("GET", "/"),), connections=5, bytes_s=4e6, address=stranger.address)
    short = Flood(kind="requests", doors=(("GET", "/x"),), connections=5, bytes_s=4e6, address=stranger.address)
    with strangers(ring.server.base, [escapes, short], 2.0, sent):
        pass
    lines = ring.server.log[before:]
    assert 0 < sum(len(line) + 1 for line in lines) <= min(2 * sent["bytes"] + 64_000, 400_000)
    assert max(map(len, lines)) < 400
