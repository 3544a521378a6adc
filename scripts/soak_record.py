"""What the clients of a soak saw, and the receiver of its webhooks."""

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.measure import spread

SETTLE_S = 20  # after a disturbance


class WrongAnswerError(Exception):
    """The server broke a promise."""


@dataclass
class Record:
    """What all clients saw: counts, times of this minute, and what went wrong."""

    done: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)  # accepted, with a webhook
    hooks: "defaultdict[str, set[str]]" = field(default_factory=lambda: defaultdict(set))  # job id -> webhook ids
    _times: "defaultdict[str, list[float]]" = field(default_factory=lambda: defaultdict(list))
    _troubles: int = 0
    _calm_since: float = 0.0

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """Excuse failures that happen inside and for SETTLE_S afterwards."""
        self._troubles += 1
        try:
            yield
        finally:
            self._troubles -= 1
            self._calm_since = time.monotonic() + SETTLE_S

    def was_disturbed(self, since: float) -> bool:
        """Return whether there was trouble at some time between *since* and now."""
        return self._troubles > 0 or since < self._calm_since

    def time(self, name: str, seconds: float) -> None:
        self._times[name].append(seconds)

    def take_times(self) -> dict[str, dict[str, float]]:
        """Return the percentiles of all times since the last call, and their number."""
        taken, self._times = self._times, defaultdict(list)
        return {name: {**spread(values), "count": len(values)} for name, values in sorted(taken.items())}


def receive(record: Record, folder: Path, chance: random.Random) -> ThreadingHTTPServer:
    """Receive webhooks at /hook, sometimes answering with an error, and serve the files of *folder*."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            record.hooks[body["data"]["job_id"]].add(self.headers["webhook-id"])
            self._answer(500 if chance.random() < 0.1 else 200, b"")

        def do_GET(self) -> None:
            self._answer(200, (folder / Path(self.path).name).read_bytes())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # a killed server does not read on
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    return receiver
