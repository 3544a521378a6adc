"""Sends the same request to a server again and again; benchmarks.requests starts it: python -m benchmarks.asking

Reads a line of JSON: the request, the address as HOST:PORT, the number of connections, the seconds, and the requests a
second (0: a new one as soon as an answer comes). Prints a line of JSON: per_s, the answers a second, and answers_ms,
the time of each answer from the instant at which its request was due. Imports no numpy, whose threads would disturb the
first 60 ms of the measurement.
"""

import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30


@dataclass
class Asking:
    """One connection that sends the same request again and again."""

    connection: socket.socket
    due: float = 0.0  # the instant from which the answer that is awaited counts; 0: none is awaited
    left: int = 0  # bytes of the answer that are still to come

    def ask(self, request: bytes, due: float) -> None:
        self.due, self.left = due, -1
        self.connection.sendall(request)

    def read_answer(self) -> bool:
        """Read what has come of the answer, and return whether it is whole."""
        data = self.connection.recv(262_144)
        if not data:
            raise SystemExit("the server closed a connection")
        if self.left < 0:
            head, end, body = data.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if not end or not length:
                raise SystemExit(f"no whole head of an answer with a length: {data[:400]!r}")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"an unexpected answer: {data[:600]!r}")
            self.left = int(length) - len(body)
        else:
            self.left -= len(data)
        return self.left == 0


def ask(request: bytes, address: tuple[str, int], connections: int, seconds: float, per_s: float) -> dict[str, Any]:
    """Ask for *seconds*, *per_s* times a second or, if that is 0, as fast as answers come. Return the line to print."""
    # select() waits in microseconds, epoll in whole milliseconds, many times as long as an answer takes
    with selectors.SelectSelector() as selector:
        idle = [Asking(socket.create_connection(address)) for _ in range(connections)]
        for one in idle:
            one.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(one.connection, selectors.EVENT_READ, one)
        began = time.perf_counter()
        answers_ms: list[float] = []
        sent = 0
        while (now := time.perf_counter()) < began + seconds or len(idle) < connections:
            while idle and now < began + seconds and (not per_s or began + sent / per_s <= now):
                idle.pop().ask(request, began + sent / per_s if per_s else now)
                sent += 1
            pause_s = max(0.0, began + sent / per_s - now) if per_s and idle else TIMEOUT_S
            for key, _ in selector.select(min(pause_s, max(0.01, began + seconds - now))):
                if key.data.read_answer():
                    answers_ms.append((time.perf_counter() - key.data.due) * 1000)
                    idle.append(key.data)
        ended = time.perf_counter()
    return {"per_s": len(answers_ms) / (ended - began), "answers_ms": answers_ms}


def main() -> int:
    request, address, connections, seconds, per_s = json.loads(sys.stdin.readline())
    host, port = address.split(":")
    print(json.dumps(ask(request.encode(), (host, int(port)), connections, seconds, per_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
