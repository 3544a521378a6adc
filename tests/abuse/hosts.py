"""Hosts of strangers, which the server is made to call: silent ones, slow ones, and ones that ask for nonsense."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" * 2000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: 10000000\r\n\r\n"


@contextmanager
def silent_host() -> Iterator[int]:
    """A port, on every address of this machine, where connections are taken and nothing is ever answered."""
    with socket.create_server(("0.0.0.0", 0), backlog=4096) as listening:
        yield listening.getsockname()[1]


@contextmanager
def _host(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """The address of a host whose thread is *answer*, with a listening socket, and an event that ends it."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        stop = threading.Event()
        thread = threading.Thread(target=answer, args=(listening, stop))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def dripping_host() -> Iterator[str]:
    """The address of a host that promises a recording and sends a byte of it every second."""
    with _host(_drip) as address:
        yield address


def _drip(listening: socket.socket, stop: threading.Event) -> None:
    callers: list[socket.socket] = []
    while not stop.wait(0.2):
        if select.select([listening], [], [], 0)[0]:
            callers.append(listening.accept()[0])
            callers[-1].sendall(HEAD)
        for caller in callers.copy():
            try:
                caller.sendall(b"R")
            except ConnectionError:  # it has given up
                callers.remove(caller)
                caller.close()
    for caller in callers:
        caller.close()


@contextmanager
def never_ready() -> Iterator[str]:
    """The address of a host that sends interim answers (`100 Continue`) as fast as they are read, and no other."""
    with _host(_send_interim_answers) as address:
        yield address


def _send_interim_answers(listening: socket.socket, stop: threading.Event) -> None:
    callers: list[socket.socket] = []
    while not stop.is_set():
        readable, writable, _ = select.select([listening], callers, [], 0.2)
        if readable:
            callers.append(listening.accept()[0])
            callers[-1].setblocking(False)
        for caller in writable:
            try:
                caller.send(INTERIM)
            except ConnectionError:  # it has given up
                callers.remove(caller)
                caller.close()
    for caller in callers:
        caller.close()
