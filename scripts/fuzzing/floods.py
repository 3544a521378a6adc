"""Fuzzing with many small requests, frames and headers: while they come, other clients must be answered at once."""

import socket
import time
from contextlib import suppress
from typing import Any

import httpx
from hypothesis import strategies as st

from benchmarks.flood_items import FRAMES, HTTP_KINDS, OPENING_FRAMES, handshake, requests
from scripts.fuzzing.serving import HANG_S, QUIET_S, Fuzzed
from scripts.fuzzing.target import Finding, Target

STRANGER = "127.0.0.3"
MAX_WAIT_S = 2.0  # of a bystander; much of that is the machine's other work
MAX_BYTES = 200_000
SOCKETS = ("/v1/jobs/unknown/audio", "/v1/jobs/unknown/stream", "/v1/realtime", "/v1/listen")


class Floods:
    """Sends one flood over one connection."""

    def __init__(self, server: Fuzzed) -> None:
        self._server = server
        made = httpx.post(f"{server.serving.base}/v1/keys", json={"environment": "sandbox"}, timeout=HANG_S)
        self._key = str(made.raise_for_status().json()["key"])
        self._asking = httpx.Client(base_url=server.serving.base, timeout=HANG_S)
        described = self._asking.get("/openapi.json").json()["paths"]
        self.doors = [(method.upper(), path) for path, methods in described.items() for method in methods]
        self.doors += [("WS", path) for path in SOCKETS]

    def check(self, given: Any) -> None:
        (method, path), kind, keyed, size = given
        key, path = (self._key if keyed else ""), "/sandbox" + path
        if method == "WS":
            first, item = handshake(path if keyed else f"{path}?token=st_bad", key), FRAMES[kind[0]]
            opening = OPENING_FRAMES.get(kind[0], b"")
        else:
            (first, item), opening = requests(kind[1], method, path, key), b""
        with (
            suppress(ConnectionError, TimeoutError),
            socket.create_connection(self._server.address, HANG_S, (STRANGER, 0)) as connection,
        ):
            connection.settimeout(QUIET_S)
            connection.sendall(first)
            if method == "WS":
                connection.recv(1)
            connection.sendall(opening + item * max(1, size // len(item)))
            self._look()
            while connection.recv(65_536):
                pass
        self._look()
        self._server.check_log()

    def _look(self) -> None:
        """Raise Finding if a bystander waits for long."""
        began = time.monotonic()
        self._asking.get("/healthz").raise_for_status()
        if (waited := time.monotonic() - began) > MAX_WAIT_S:
            raise Finding(f"a bystander waited for {waited:.1f} s")


def targets(server: Fuzzed) -> list[Target]:
    floods = Floods(server)
    kinds = st.tuples(st.sampled_from(tuple(FRAMES)), st.sampled_from(HTTP_KINDS))  # of a WebSocket, of a request
    given = st.tuples(st.sampled_from(floods.doors), kinds, st.booleans(), st.integers(1, MAX_BYTES))
    return [Target("floods", given, floods.check, 20)]
