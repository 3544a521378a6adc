"""The server that is fuzzed: a real process, what it holds, what it logs, and raw exchanges with it."""

import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.measure import process_tree, rss_mb
from benchmarks.serving import Serving
from scripts.fuzzing.target import Finding

HANG_S = 30
"""An answer that takes longer never comes."""

QUIET_S = 0.3
"""If no answer comes within this time, the server is waiting for the rest of the request."""

LIMITS = {
    "requests_per_minute = 3000": "requests_per_minute = 10000000",
    "active_jobs = 500": "active_jobs = 1000000",
    "live_sessions = 100": "live_sessions = 1000000",
}
SERVER_ERROR = 500
FAULT = re.compile(r"^(\d\d:\d\d:\d\d\.\d{3} (error|critical) |Traceback )", re.MULTILINE)
"""The beginning of a log line that reports a fault."""

BUSY = frozenset({"queue_full", "shutting_down"})
"""The codes of the 503 answers that are no fault."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Fuzzed:
    """The server that is fuzzed, and one of its finished jobs."""

    serving: Serving
    job: str = ""
    outputs: dict[str, bytes] = field(default_factory=dict)
    busy: int = 0
    _read: int = 0  # bytes of the log that were looked at
    _own: frozenset[str] = frozenset()  # temporary files that are there from the start

    def __post_init__(self) -> None:
        self._own = frozenset(self._temporary())
        self.client = httpx.Client(
            base_url=self.serving.base, headers={"Authorization": f"Bearer {self.serving.key}"}, timeout=HANG_S
        )

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.serving.base)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a well-formed request. Raises Finding for what check_answer() finds, and if no answer comes."""
        try:
            answer = self.client.request(method, path, **options)
        except httpx.TransportError as error:
            raise Finding(f"{method} {path}: no answer: {error!r}") from error
        self.check_answer(Answer(answer.status_code, answer.headers, answer.content))
        return answer

    def exchange(self, pieces: Sequence[bytes], *, method: str = "GET", complete: bool = True) -> Answer | None:
        """Send raw bytes and return the answer, or None if the connection ends without one.

        If the request is not *complete*, the client leaves when no answer comes at once. Raises Finding.
        """
        with socket.create_connection(self.address, HANG_S) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # the server has answered before the end
                for piece in pieces:
                    connection.sendall(piece)
            answer = http.client.HTTPResponse(connection, method=method)
            try:
                if not complete:
                    connection.settimeout(QUIET_S)
                    with suppress(TimeoutError):
                        connection.recv(1, socket.MSG_PEEK)
                    connection.settimeout(HANG_S)
                    connection.shutdown(socket.SHUT_WR)
                answer.begin()
                found = Answer(answer.status, dict(answer.getheaders()), answer.read())
            except TimeoutError:
                raise Finding(f"no answer within {HANG_S} s") from None
            except (http.client.HTTPException, OSError):
                return None
        self.check_answer(found)
        return found

    def check_answer(self, answer: Answer) -> None:
        """Raise Finding for an answer that is the server's fault."""
        if answer.status < SERVER_ERROR:
            return
        with suppress(ValueError):
            if answer.json().get("code") in BUSY:
                self.busy += 1
                return
        raise Finding(f"status {answer.status}: {answer.body[:500]!r}")

    def check_log(self) -> None:
        """Raise Finding if the server has logged an error since the last look."""
        with self.serving.log.open("rb") as file:
            file.seek(self._read)
            new = file.read().decode("utf-8", "replace")
        self._read += len(new.encode())
        if FAULT.search(new):
            raise Finding(f"the server logged:\n{new[-3000:]}")

    # --- what it holds -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End and delete every job but the prepared one, and wait until nothing of them is left."""
        while jobs := [job["job_id"] for job in self._jobs() if job["job_id"] != self.job]:
            for job in jobs:
                self.ask("DELETE", f"/v1/jobs/{job}", params={"force": "true"})
        wait_until(lambda: not self.leftovers(), lambda: f"files are left: {self.leftovers()[:9]}")

    def _jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.ask("GET", "/v1/jobs", params={"limit": 100}).json()["data"]
        return jobs

    def leftovers(self) -> list[str]:
        """Return what the server still has of jobs that are over: temporary files, and open files of any kind.

        What was there when it was ready is its own.
        """
        return sorted((self._temporary() | self._open_files()) - self._own)

    def _open_files(self) -> set[str]:
        """Return the audio and outputs that the server has open."""
        names = set()
        for descriptor in Path(f"/proc/{self.serving.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                names.add(str(descriptor.readlink()))
        places = tuple(str(self.serving.folder / place) for place in ("data/blobs", "data/incoming", "tmp"))
        return {f"open {name}" for name in names if name.startswith(places)}

    def _temporary(self) -> set[str]:
        places = (self.serving.folder / "data" / "incoming", self.serving.folder / "tmp")
        return {str(path) for place in places for path in place.rglob("*")}

    def resources(self) -> dict[str, float]:
        """Return the processes, open descriptors and MiB of memory of the server."""
        return {
            "processes": len(list(process_tree(self.serving.pid))),
            "descriptors": len(list(Path(f"/proc/{self.serving.pid}/fd").iterdir())),
            "memory_mb": round(rss_mb(self.serving.pid), 1),
        }


def wait_until(holds: Callable[[], bool], fault: Callable[[], str]) -> None:
    """Return once *holds*. Raises Finding with the text of *fault* after HANG_S."""
    until = time.monotonic() + HANG_S
    while not holds():
        if time.monotonic() > until:
            raise Finding(fault())
        time.sleep(0.05)
