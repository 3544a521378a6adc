"""A webhook receiver and a file server on loopback. They keep what they receive and answer as they are told."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.waiting import until


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    port: int
    got: list[ReceivedRequest] = field(default_factory=list)
    answer: Callable[[ReceivedRequest], tuple[int, dict[str, str], bytes]] = lambda _got: (204, {}, b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, count: int, *, max_s: float = 15) -> list[ReceivedRequest]:
        """Wait for *count* requests and return all so far."""
        until(lambda: len(self.got) >= count, max_s=max_s)
        return self.got


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = ReceivedRequest(self.command, self.path, headers, self.rfile.read(length))
            receiving.got.append(got)
            status, fields, body = receiving.answer(got)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **fields}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = _take  # noqa: N815  http.server calls these names

        def log_message(self, *_: object) -> None:
            pass

    host = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.daemon_threads = True
    receiving = Receiver(host.server_address[1])
    thread = threading.Thread(target=host.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiving
    finally:
        host.shutdown()
        host.server_close()
        thread.join(5)


@contextlib.contextmanager
def host_folder(folder: Path) -> Iterator[str]:
    """Yield the address of a web server with the files of *folder*."""

    def answer(got: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        file = folder / Path(got.path).name
        return (200, {}, file.read_bytes()) if file.is_file() else (404, {}, b"")

    with receiver() as host:
        host.answer = answer
        yield host.url
