"""Names that users give: a silent name server holds up nobody else, and the answers tell nothing about the inside.

The server of these tests has a resolver of its own, which only root can give it.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.abuse.arena import Arena, arena

NAME_SERVER = "127.0.9.9"  # on the port that name servers have
HOSTS = "127.0.0.1 localhost innocent.example\n10.9.9.9 inside.example\n"
WITH_OWN_RESOLVER = 'mount --bind "$0/hosts" /etc/hosts; mount --bind "$0/resolv.conf" /etc/resolv.conf; exec "$@"'

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can give a server a resolver of its own"
)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A server whose only name server takes questions and answers none."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "hosts").write_text(HOSTS)
    (folder / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
    alone = ("unshare", "--mount", "sh", "-euc", WITH_OWN_RESOLVER, str(folder))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((NAME_SERVER, 53))
        with arena(folder / "arena", before=alone, hook_host="innocent.example") as started:
            yield started


def test_names_that_are_never_answered_hold_up_nobody_else(ring):
    client = ring.stranger().new_client(sandbox=True)

    def test(number):
        return client.post("/v1/webhooks/test", json={"url": f"https://n{number}.example/"}).status_code

    with ThreadPoolExecutor(40) as threads:
        asking = [threads.submit(test, number) for number in range(40)]
        ring.innocent.is_unharmed()
    assert {one.result() for one in asking} <= {200, 422, 429}


def test_a_name_inside_looks_like_one_without_an_address(ring):
    client = ring.stranger().new_client()
    told = []
    for host in ("inside.example", "nothing.example"):
        answer = client.post("/v1/webhooks/test", json={"url": f"https://{host}/"})
        said = {name: value for name, value in answer.json().items() if name in ("code", "detail", "error")}
        told.append((answer.status_code, str(said).replace(host, "it")))
    assert told[0] == told[1]
