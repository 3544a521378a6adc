"""Several nodes on one database and one bucket, behind a balancer that picks a node at random for each request."""

import contextlib
import random
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.server.buckets import BucketService
from tests.server.postgres import Cluster as Postgres
from tests.server.postgres import shared_cluster
from tests.server.running import Server

HEAD_END = b"\r\n\r\n"
NOBODY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b'Content-Length: 18\r\nConnection: close\r\n\r\n{"code":"no_node"}'
)
MAX_HEAD = 256 * 1024


class Balancer:
    """Takes connections on *port*. Each has one request, which goes to a node that is chosen anew."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[int] = []  # their ports
        self.served: list[int] = []  # the ports that took a request, in order
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            head = _head(client)
            if not head:
                return
            try:
                node = self._connect()
            except ConnectionRefusedError:
                client.sendall(NOBODY)
                return
            with node:
                node.sendall(_with_close(head))
                back = threading.Thread(target=_pass_on, args=(client, node), daemon=True)
                back.start()
                _pass_on(node, client)
                for one in (client, node):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                back.join()

    def _connect(self) -> socket.socket:
        """Connect to any node that listens, beginning with a random one."""
        for port in self._chance.sample(self.nodes, len(self.nodes)):
            with contextlib.suppress(ConnectionRefusedError):
                node = socket.create_connection(("127.0.0.1", port))
                self.served.append(port)
                return node
        raise ConnectionRefusedError


def _head(client: socket.socket) -> bytes:
    """Return what came up to the end of the request's head, and perhaps more; nothing if none came."""
    data = b""
    while HEAD_END not in data and len(data) < MAX_HEAD:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    return data


def _with_close(data: bytes) -> bytes:
    """Return the request with a header that makes this the connection's only one, unless it becomes a WebSocket."""
    head, end, rest = data.partition(HEAD_END)
    lines = head.split(b"\r\n")
    if any(line.lower().startswith(b"upgrade:") for line in lines):
        return data
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close"]) + end + rest


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either has gone
        while data := one.recv(65536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@dataclass
class Cluster(Server):
    """The nodes, seen as one server: *base* is the balancer."""

    nodes: Sequence[Server] = ()
    balancer: Balancer = field(default_factory=Balancer)

    def stop(self) -> int:
        for client in self.clients:
            client.close()
        self.clients.clear()
        return max([node.stop() for node in self.nodes if node.process and node.process.poll() is None], default=0)


@contextlib.contextmanager
def start_cluster(
    folder: Path,
    bucket: BucketService,
    *,
    nodes: Sequence[Mapping[str, str]] = ({}, {}),
    postgres: Postgres | None = None,
    program: str = "server",
    **variables: str,
) -> Iterator[Cluster]:
    """Start nodes with a new database and a new place in the bucket.

    *variables* have no prefix and are those of all nodes; each of *nodes* adds its own.
    """
    balancer = Balancer()
    shared = {
        "DATABASE_URL": (postgres or shared_cluster()).new_database(),
        "BLOBS": bucket.prefix(),
        "PUBLIC_BASE_URL": f"http://127.0.0.1:{balancer.port}",
        **variables,
    }
    log: list[str] = []
    made = [
        Server(
            folder / f"node{number}",
            {**shared, "NODE": f"node{number}", **own},
            program=program,
            log=log,
            beyond=bucket.env,
        )
        for number, own in enumerate(nodes)
    ]
    first, base = made[0], shared["PUBLIC_BASE_URL"]
    cluster = Cluster(
        first.data_dir, first.variables, log=log, beyond=bucket.env, nodes=made, balancer=balancer, base=base
    )
    try:
        for node in made:
            node.start()
            balancer.nodes.append(int(node.base.rpartition(":")[2]))
        yield cluster
    finally:
        cluster.stop()
        balancer.close()
