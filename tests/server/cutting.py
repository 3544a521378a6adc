"""A line between a client and a server that breaks at a chosen moment, or goes silent."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Line:
    """Passes on what comes to *port*, both ways, to another port of this machine.

    After break_at(word), the connection on which the client next says *word* is cut: with *heard* the server still gets
    it, but the client gets no answer.
    """

    def __init__(self, to: int) -> None:
        self.cuts = 0
        self._to = to
        self._word: bytes | None = None
        self._heard = False
        self._sound = threading.Event()
        self._sound.set()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._begin(self._accept)

    def break_at(self, word: bytes, *, heard: bool) -> None:
        self._word, self._heard = word, heard

    def be_silent(self) -> None:
        """Pass nothing on, and refuse nothing, until it speaks again."""
        self._sound.clear()

    def speak(self) -> None:
        self._sound.set()

    def close(self) -> None:
        self._sound.set()
        for one in (self._listening, *self._sockets):
            with suppress(OSError):  # the other side was faster
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _begin(self, work, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                self._sockets.append(client)
                with suppress(ConnectionRefusedError):  # nobody answers there, and the client is told the same
                    server = socket.create_connection(("127.0.0.1", self._to))
                    self._sockets.append(server)
                    self._begin(self._pass_on, client, server)
                    self._begin(self._pass_on, server, client)
                    continue
                client.close()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):  # either has gone
            while data := one.recv(65536):
                self._sound.wait()
                cut = self._word is not None and self._word in data
                if cut:
                    self._word = None
                    self.cuts += 1
                if not cut or self._heard:
                    other.sendall(data)
                if cut:
                    one.shutdown(socket.SHUT_RDWR)
                    break
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@contextmanager
def line(to: int) -> Iterator[Line]:
    made = Line(to)
    try:
        yield made
    finally:
        made.close()
