"""Accepts connections, as many as the process has file descriptors for.

Every connection needs a descriptor, and so does every file, pipe and outgoing request. If connections took all of them,
no audio could be read. asyncio's own server accepts thousands of connections before a protocol can count the first one,
and when descriptors run out it writes a log line for each attempt. So connections are accepted here, one by one, and
none while the limit is reached.
"""

import asyncio
import resource
import socket
from collections.abc import Callable

from server.accounts.issuing import fresh_id
from server.config import PREFIX, Config, ConfigError
from server.http.problems import Problem, raw_answer
from server.logs import log
from server.model.ids import Prefix
from server.transport.connections import ConnectionRules, Connections, TrackedConnection

MAX_DESCRIPTORS = 1_048_576  # where the system has no limit
RESERVED_DESCRIPTORS = 256  # for the database, decoders and outgoing requests
DESCRIPTORS_EACH = 2  # of a connection: its socket, and the file that is uploaded or downloaded over it
MAX_CONNECTIONS = 10_000  # even if there are more descriptors: an idle connection takes 25 kB of memory

OF_ACCOUNT = 0.6  # of all connections: half of them may be readers of one session, and its owner needs some too

BACKLOG = 2048  # connections that the system keeps until they are accepted
RETRY_S = 1.0  # pause after an error of accept(), such as no free descriptor
WARN_EVERY_S = 60.0


def raise_descriptor_limit() -> int:
    """Raise the limit of open descriptors as high as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has a lower limit than it reports
        log.warning("the limit of open files could not be raised: %s", error, extra={"limit": soft})
        return soft
    return wanted


def connection_limits(config: Config, descriptors: int) -> ConnectionRules:
    """The limits of connections in a process with so many *descriptors*.

    Raises ConfigError if the settings ask for more connections than there are descriptors for.
    """
    possible = max(1, (descriptors - RESERVED_DESCRIPTORS) // DESCRIPTORS_EACH)
    if config.max_connections > possible:
        raise ConfigError(
            f"{PREFIX}MAX_CONNECTIONS must be at most {possible}, because this process may open {descriptors} files, "
            f"got {config.max_connections}"
        )
    max_open = config.max_connections or min(possible, MAX_CONNECTIONS)
    max_of_address = config.max_connections_per_address or max(1, max_open // 2)
    return ConnectionRules(
        max_open=max_open, max_of_address=max_of_address, max_of_account=max(1, int(max_open * OF_ACCOUNT))
    )


class Acceptor:
    """Accepts the connections of one listening socket and gives each a protocol."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make_protocol: Callable[[TrackedConnection], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._closed = False
        self._starting: set[asyncio.Task[None]] = set()
        self._warned_at = -WARN_EVERY_S

    def start(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._connections.on_room = self._resume
        self._resume()

    def close(self) -> None:
        """Close the listening socket. Open connections stay open."""
        self._pause()
        self._closed = True
        self._listening.close()

    def _resume(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        """Accept one connection. The event loop calls it once in each turn while any wait, so that turns stay short."""
        if self._connections.full:
            self._pause()
            self._warn("there are as many connections as there may be; new ones wait")
            self._connections.make_room()
        if self._connections.full:
            return
        try:
            connection, peer = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause()
            self._loop.call_later(RETRY_S, self._resume)
            self._warn(f"connections cannot be accepted: {error.strerror}")
            return
        self._admit(connection, str(peer[0]))

    def _admit(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        tracked = self._connections.admit(peer)
        if tracked is None:
            _refuse(connection)
            return
        starting = self._loop.create_task(self._start_protocol(connection, tracked))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _start_protocol(self, connection: socket.socket, tracked: TrackedConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make_protocol(tracked), connection)
        except BaseException as error:
            connection.close()
            tracked.leave()
            if not isinstance(error, OSError):  # of which the cause is that the client has left
                raise

    def _warn(self, text: str) -> None:
        if self._loop.time() - self._warned_at >= WARN_EVERY_S:
            self._warned_at = self._loop.time()
            log.warning(text)


def _refuse(connection: socket.socket) -> None:
    """Answer that the address has too many connections, if that is possible without waiting, and close."""
    detail = "this address has too many connections; close some"
    problem = Problem("too_many_connections", detail, headers={"Retry-After": "5"})
    with connection:
        try:
            connection.send(raw_answer(problem, request_id=fresh_id(Prefix.REQUEST)))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the client has left already
