"""A TCP connection between browser and server that a test can cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Cable:
    """Listens at .base and passes bytes on to the server."""

    def __init__(self, base: str) -> None:
        address = urlsplit(base)
        self._behind = (str(address.hostname), int(address.port or 80))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._whole = True
        self.base = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            self._whole = False
            for end in self._open:
                with contextlib.suppress(OSError):  # the other end has closed it
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed, because the test is over
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, self._lock:
            if not self._whole:
                return
            near = near.dup()
        try:
            far = socket.create_connection(self._behind)
        except OSError:
            near.close()
            return
        with near, far:
            with self._lock:
                self._open |= {near, far}
            back = threading.Thread(target=_pass, args=(far, near), daemon=True)
            back.start()
            _pass(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # cut() was called
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):  # the other direction has ended first
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cable(base: str) -> Iterator[Cable]:
    line = Cable(base)
    try:
        yield line
    finally:
        line.close()
