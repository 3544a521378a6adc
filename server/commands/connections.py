"""How many connections the server has at a time, and how long a client may do nothing with one.

serve.py makes one Connections for the process. The acceptor asks it for a Place for each new connection, and uvicorn's
protocols tell that Place what the connection does.
"""

import asyncio
import fcntl
import termios
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from server.accounts.addresses import Network, address_key, client_address
from server.commands.turns import Turns
from server.metrics import Metrics

MIN_READ_BYTES = 16 * 1024  # that a client takes within ConnectionRules.unread_s, if so much waits for it
SILENT_AT_ONCE = 16  # connections without a request that are closed together to make room


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRules:
    """How many connections there may be, and how long a client may do nothing, in seconds."""

    max_open: int
    max_of_address: int
    head_s: float = 15.0  # until the whole head of a request has come
    unread_s: float = 60.0  # in which MIN_READ_BYTES or all of what is sent must be taken


class Connections:
    """Counts the open connections, and knows which of them can be closed to make room for others."""

    def __init__(self, rules: ConnectionRules, *, trusted_proxies: Sequence[Network], metrics: Metrics) -> None:
        self.rules = rules
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever a connection has ended, or rests and can be closed."""
        self.turns = Turns()
        self.headless: dict[Place, None] = {}  # without a request so far; the oldest first
        self.resting: dict[Place, None] = {}  # between two requests; the oldest first
        self._trusted = trusted_proxies
        self._metrics = metrics
        self._open = 0
        self._of_address: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        return self._open >= self.rules.max_open

    def admit(self, peer: str) -> "Place | None":
        """Return a place for a connection from the address *peer*, or None if that address has as many as it may.

        A trusted proxy may have any number, because many clients come through it.
        """
        address = client_address(peer, (), ())
        trusted = address is not None and any(address in network for network in self._trusted)
        counted = None if trusted else address_key(address)
        if counted is not None and self._of_address[counted] >= self.rules.max_of_address:
            self._metrics.refused.labels("too_many_connections").inc()
            return None
        self._open += 1
        if counted is not None:
            self._of_address[counted] += 1
        self._metrics.connections.set(self._open)
        return Place(self, counted)

    def make_room(self) -> None:
        """Close the oldest connections that never sent a request, or if there are none, the one that rests longest."""
        silent = list(islice(self.headless, SILENT_AT_ONCE))
        for place in silent or list(islice(self.resting, 1)):
            self._metrics.refused.labels("too_many_connections").inc()
            place.abort()

    def release(self, address: str | None) -> None:
        """Note that a connection from *address*, as it was counted, has ended."""
        self._open -= 1
        if address is not None:
            self._of_address[address] -= 1
            if self._of_address[address] == 0:
                del self._of_address[address]
        self._metrics.connections.set(self._open)
        self.on_room()


class Place:
    """One connection among all. Its protocol says what the connection does, and the place ends it if that is nothing.

    A connection is at work while a request is answered or a WebSocket is open. Otherwise it waits for the head of a
    request, which must come in time, or rests between two requests.
    """

    def __init__(self, connections: Connections, address: str | None) -> None:
        self._connections = connections
        self._address = address
        self._transport: asyncio.WriteTransport | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._left = False

    @property
    def turns(self) -> Turns:
        """In which all connections of the process parse what came."""
        return self._connections.turns

    def begin(self, transport: asyncio.WriteTransport) -> None:
        """The connection is open. Its first request is awaited."""
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # so that stall() is called for anything that is not taken at once
        self._connections.headless[self] = None
        self.await_head()

    def await_head(self) -> None:
        """A part of a request's head has come, or must come now. The time for it runs from the first such call."""
        if self._head_timer is None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._head_timer = loop.call_later(self._connections.rules.head_s, self._transport.close)

    def work(self) -> None:
        """A request has come, or a WebSocket is open."""
        self._forget_idleness()

    def rest(self) -> None:
        """The request is answered, and the next one may come on the same connection."""
        self._forget_idleness()
        self._connections.resting[self] = None
        self._connections.on_room()

    def stall(self) -> None:
        """The client has not taken all that was sent. It is given some time for that."""
        assert self._transport is not None
        self._watch_reader(_unread_bytes(self._transport))

    def flow(self) -> None:
        """The client has taken all that was sent."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def abort(self) -> None:
        """End the connection at once, without what is still to be sent."""
        self._forget_idleness()
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        """The connection has ended. May be called again."""
        self._forget_idleness()
        self.flow()
        if not self._left:
            self._left = True
            self._connections.release(self._address)

    def _forget_idleness(self) -> None:
        self._connections.headless.pop(self, None)
        self._connections.resting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_reader(self, unread: int) -> None:
        loop = asyncio.get_running_loop()
        self._unread_timer = loop.call_later(self._connections.rules.unread_s, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        assert self._transport is not None
        unread = _unread_bytes(self._transport)
        if unread > before - MIN_READ_BYTES:
            self.abort()
        else:
            self._watch_reader(unread)


class Placed(asyncio.Protocol):
    """What uvicorn's protocols have in common here: they tell their place how the connection fares."""

    place: Place

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.place.leave()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.place.stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.place.flow()


def _unread_bytes(transport: asyncio.WriteTransport) -> int:
    """What was sent and has not arrived at the client: here, and in the system, which keeps megabytes for a connection.

    Systems other than Linux may not tell the second part. There only larger steps of a client are seen.
    """
    kept = array("i", [0])
    connection = transport.get_extra_info("socket")
    try:
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, kept)
    except OSError:
        kept[0] = 0
    return transport.get_write_buffer_size() + kept[0]
