"""Small things in great numbers: each kind at each door of the app, while a bystander and a customer go on.

The doors are those of the app, so a new one is among them. benchmarks/flood_items.py has the kinds, and
benchmarks/floods.py measures them one by one and for longer.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
ROUNDS = 5  # at most, where a slow machine does not come to the last doors; each must be calm
STAY_S = 0.15
BYTES_S = 2e6  # of all strangers together
CONNECTIONS = 4  # of each kind
MAX_P95_MS, MAX_WAIT_MS = 250.0, 1500.0  # on an idle machine; without a price it is seconds
MACHINE = 5  # how many times as long as at a server that nobody floods a bystander may wait beyond that


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
    while unmet and len(rounds) < ROUNDS:
        bystanders, sent = [Bystander(base) for base in places], dict[str, Any]()
        for number, flood in enumerate(floods):  # a slow machine does not come to the last doors in one round
            floods[number] = replace(
                flood, doors=tuple(sorted(open_to, key=lambda door: (kinds[number], *door) not in unmet))
            )
        with (
            unflooded_server() as base,
            strangers(ring.server.base, floods, SECONDS, sent),
            ThreadPoolExecutor() as threads,
        ):
            control = Bystander(base)
            list(threads.map(lambda bystander: bystander.wait(SECONDS - 0.5), [control, *bystanders]))
        rounds.append([control.to_json(), *(bystander.to_json() for bystander in bystanders)])
        unmet -= set(map(tuple, sent["doors"]))
    for machine, *waits in rounds:
        assert all(is_short(wait, machine) for wait in waits), rounds
    assert not unmet
    ring.innocent.is_unharmed()


@contextmanager
def unflooded_server() -> Iterator[str]:
    """The address of another server, whose answers show how long this machine lets any process wait."""
    words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--protocol", "HTTP/1.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process.stdout.readline().split("(")[1].split("/)")[0]
        finally:
            process.terminate()


def is_short(waits: Mapping[str, float], machine: Mapping[str, float]) -> bool:
    """Whether a bystander waited briefly, for a *machine* on which the unflooded server took so long."""
    return (
        waits["p95"] <= MAX_P95_MS + MACHINE * machine["p95"]
        and waits["longest"] <= MAX_WAIT_MS + MACHINE * machine["longest"]
    )


def test_the_log_grows_little_by_what_strangers_send(ring, stranger):
    before, sent = len(ring.server.log), dict[str, Any]()
    escapes = Flood(kind="escapes", doors=(("GET", "/"),), connections=5, bytes_s=4e6, address=stranger.address)
    short = Flood(kind="requests", doors=(("GET", "/x"),), connections=5, bytes_s=4e6, address=stranger.address)
    with strangers(ring.server.base, [escapes, short], 2.0, sent):
        pass
    lines = ring.server.log[before:]
    assert 0 < sum(len(line) + 1 for line in lines) <= min(2 * sent["bytes"] + 64_000, 400_000)
    assert max(map(len, lines)) < 400
