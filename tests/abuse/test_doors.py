"""Connections, keys and estimates: nobody takes the room, the rights or the log of somebody else."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.abuse.arena import Arena, arena

LARGE = " ".join(map(str, range(280_000)))  # nearly as much as an estimate takes


@contextmanager
def run_meanwhile(act: Callable[[], object], times: int) -> Iterator[list[object]]:
    """Do *act* so many times side by side while the block runs. The list has the results after the block."""
    results: list[object] = []
    with ThreadPoolExecutor(times) as threads:
        working = [threads.submit(act) for _ in range(times)]
        yield results
        results += [one.result() for one in working]


@pytest.mark.parametrize("sandbox", [True, False])
def test_large_estimates_hold_up_nobody_else(ring, *, sandbox):
    client = ring.stranger().new_client(sandbox=sandbox)
    with run_meanwhile(lambda: client.post("/v1/estimate", json={"prompt": LARGE}).status_code, 28) as statuses:
        ring.innocent.is_unharmed()
    assert set(statuses) <= {200, 413, 429, 503}


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
