"""Connections, keys and estimates: nobody takes the room, the rights or the log of somebody else."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.abuse.arena import Arena, arena

FORGED = "12:00:00.000 info forged"
LARGE = " ".join(map(str, range(280_000)))  # nearly as much as an estimate takes


@contextmanager
def run_meanwhile(act: Callable[[], object], times: int) -> Iterator[list[object]]:
    """Do *act* so many times side by side while the block runs. The list has the results after the block."""
    results: list[object] = []
    with ThreadPoolExecutor(times) as threads:
        working = [threads.submit(act) for _ in range(times)]
        yield results
        results += [one.result() for one in working]


def test_a_sandbox_key_has_no_power_over_production(ring):
    stranger = ring.stranger()
    production = stranger.client(stranger.key())
    rehearsing = production.post("/v1/keys", json={"environment": "sandbox"}).json()["key"]
    sandbox = stranger.client(rehearsing, sandbox=True)
    [own] = [key["key_id"] for key in production.get("/v1/keys").json()["data"] if key["environment"] == "production"]
    assert sandbox.post("/v1/keys", json={"environment": "production"}).status_code == 403
    assert own not in {key["key_id"] for key in sandbox.get("/v1/keys").json()["data"]}
    assert sandbox.post(f"/v1/keys/{own}/rotate", json={}).status_code in (403, 404)
    assert sandbox.delete(f"/v1/keys/{own}").status_code in (403, 404)
    before = production.get("/v1/webhook-secret").json()
    assert sandbox.post("/v1/webhook-secret/rotate").status_code == 201  # its own
    assert production.get("/v1/webhook-secret").json() == before
    assert production.get("/v1/usage").status_code == 200


def test_more_keys_give_no_more_requests(ring):
    stranger = ring.stranger()
    first = stranger.client(stranger.key())
    made = [first.post("/v1/keys", json={}) for _ in range(29)]
    keys = [answer.json()["key"] for answer in made if answer.status_code == 201]
    assert len(keys) < 20
    both = (first, stranger.client(keys[0]))
    assert sum(client.get("/v1/usage").is_success for client in both * 20) <= 30


def test_wrong_keys_are_not_looked_up_for_ever(ring):
    wrong = ring.stranger().client(ring.innocent.key[:-8] + "deadbeef")
    assert {wrong.get("/v1/usage").status_code for _ in range(100)} == {401, 429}
    ring.innocent.is_unharmed()


@pytest.mark.parametrize("sandbox", [True, False])
def test_large_estimates_hold_up_nobody_else(ring, *, sandbox):
    client = ring.stranger().new_client(sandbox=sandbox)
    with run_meanwhile(lambda: client.post("/v1/estimate", json={"prompt": LARGE}).status_code, 28) as statuses:
        ring.innocent.is_unharmed()
    assert set(statuses) <= {200, 413, 429, 503}


def test_a_path_cannot_write_a_line_into_the_log(ring):
    for path in (f"/x%0a{FORGED.replace(' ', '%20')}", "/x%1b[2Jy", "/x%0d%0ay"):
        ring.stranger().client().get(path)
    assert not [line for line in ring.server.log if line.startswith(FORGED) or "\x1b" in line or "\r" in line]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A server that may open 512 files."""
    with arena(tmp_path_factory.mktemp("narrow"), before=("prlimit", "--nofile=512")) as started:
        yield started


@pytest.mark.parametrize("said", ["", "GET /healthz HTTP/1.1\r\nHost: scribewire\r\nX-Slow: "])
def test_connections_that_ask_for_nothing_close_the_door_for_nobody(narrow, said):
    with ExitStack() as stack:
        for _ in range(3):
            address = narrow.stranger().address
            for _ in range(200):
                connection = stack.enter_context(socket.create_connection(narrow.address, 5, (address, 0)))
                with suppress(ConnectionError):  # the server may have had enough
                    connection.sendall(said.encode())
        narrow.innocent.is_unharmed()
    assert not [line for line in narrow.server.log if "Too many open files" in line]
