"""Limits the number of open connections, and how long one may be idle.

The command `serve` makes one Connections for the process. The acceptor asks it to admit each new connection, which
becomes a TrackedConnection. The protocols report to the TrackedConnection what happens on it.
"""

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from server.accounts.addresses import address_key, client_address
from server.accounts.issuing import fresh_id
from server.accounts.limits import RateTable, Tally
from server.clock import now_ms
from server.config import Network
from server.http.problems import Problem, raw_answer
from server.metrics import Metrics
from server.model.ids import Prefix
from server.transport.fair_queue import FairQueue

MIN_READ_BYTES = 16 * 1024  # a client must read so much, or all that waits, within ConnectionRules.unread_s
MAX_CUTS = 20  # an account with more connections cut off within a minute may open no others
REFUSED_TOO_OFTEN = Problem(
    "rate_limited", "this address sent too much that is no request", headers={"Retry-After": "60"}
)
SILENT_AT_ONCE = 16  # connections that are closed together to make room


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRules:
    """The most connections, and the longest times of inactivity in seconds.

    A connection counts for an account while it is used for one of its requests or streams.
    """

    max_open: int
    max_of_address: int
    max_of_account: int
    refusals_of_address: int = 1200  # in a minute, of what is no HTTP or beyond the bounds of a head
    head_s: float = 15.0  # within which the whole head of a request must arrive
    rest_s: float = 75.0  # between two requests, or a second more
    unread_s: float = 60.0  # within which a client must read MIN_READ_BYTES, or all that was sent


class Connections:
    """Counts the open connections, and lists those that can be closed to make room for others."""

    def __init__(self, rules: ConnectionRules, *, trusted_proxies: Sequence[Network], metrics: Metrics) -> None:
        self.rules = rules
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever a connection has ended, or may be closed from now on."""
        self.fair_queue = FairQueue()
        self.headless: dict[TrackedConnection, None] = {}  # without a request so far; the oldest first
        self.resting: dict[TrackedConnection, None] = {}  # between two requests, or parts of a body; the oldest first
        self.idle: dict[TrackedConnection, None] = {}  # with a stream that has nothing to send; the oldest first
        self._trusted = trusted_proxies
        self._metrics = metrics
        self._open = 0
        self._of_address: Tally[str] = Tally()
        self._of_account: Tally[str] = Tally()
        self._refusals = RateTable()  # by address: data that became no request
        self._cuts = RateTable()  # by account: connections that were cut because they sent too much

    @property
    def full(self) -> bool:
        return self._open >= self.rules.max_open

    def admit(self, peer: str) -> "TrackedConnection | None":
        """Admit a connection from the address *peer*. Returns None if that address has too many.

        A trusted proxy may have any number, because many clients come through it.
        """
        address = client_address(peer, (), ())
        trusted = address is not None and any(address in network for network in self._trusted)
        counted = None if trusted else address_key(address)
        if counted is not None and not self.take_address(counted):
            self._metrics.refused.labels("too_many_connections").inc()
            return None
        self._open += 1
        self._metrics.connections.set(self._open)
        return TrackedConnection(self, counted)

    def make_room(self) -> None:
        """Close some connections to make room for new ones.

        It closes the oldest that never sent a request; if there are none, the one that has waited longest for its next
        request; if there is none, the longest silent streams of the account with the most connections.
        """
        silent = list(islice(self.headless, SILENT_AT_ONCE)) or list(islice(self.resting, 1))
        if not silent and self.idle:
            largest = max(
                {tracked.account for tracked in self.idle}, key=lambda account: self._of_account[account or ""]
            )
            silent = list(islice((tracked for tracked in self.idle if tracked.account == largest), SILENT_AT_ONCE))
        for tracked in silent:
            self._metrics.refused.labels("too_many_connections").inc()
            tracked.abort()

    def close_rested(self) -> None:
        """Close the connections that have rested for too long. To be called about once a second.

        A timer for each answer would cost more than all else that is counted here.
        """
        since = asyncio.get_running_loop().time() - self.rules.rest_s
        for tracked in [*takewhile(lambda tracked: tracked.rests_since < since, self.resting)]:
            tracked.close()

    def take_account(self, account: str) -> bool:
        """Count one more connection of *account*. Returns False if it has too many, or was cut off too often."""
        of_account = self._of_account.get(account, 0)
        if of_account >= self.rules.max_of_account:
            return False
        if len(self._cuts) and not self._cuts.look(account, now=now_ms(), limit=MAX_CUTS).allowed:
            return False
        self._of_account[account] = of_account + 1
        return True

    def leave_account(self, account: str) -> None:
        self._of_account.leave(account)

    def note_cut(self, account: str) -> None:
        self._cuts.hit(account, now=now_ms(), limit=MAX_CUTS)

    def count_refusal(self, address: str) -> bool:
        """Count data from *address* that became no request. Returns False if there was too much of it lately."""
        return self._refusals.hit(address, now=now_ms(), limit=self.rules.refusals_of_address).allowed

    def take_address(self, address: str) -> bool:
        """Count one more connection from *address*. Returns False if it has too many."""
        if self._of_address[address] >= self.rules.max_of_address:
            return False
        self._of_address[address] += 1
        return True

    def leave_address(self, address: str) -> None:
        self._of_address.leave(address)

    def release(self, address: str | None) -> None:
        """Note that a connection has ended. *address* is that for which it was counted."""
        self._open -= 1
        if address is not None:
            self.leave_address(address)
        self._metrics.connections.set(self._open)
        self.on_room()


class TrackedConnection:
    """One connection. Its protocol calls the methods, and this closes it if its client is too slow.

    A connection is at work while a request is answered or a WebSocket is open. Otherwise it waits for the rest of a
    request's head, which must arrive in time, or rests between two requests.
    """

    def __init__(self, connections: Connections, address: str | None) -> None:
        self._connections = connections
        self.account: str | None = None  # the account for which it is counted
        self.rests_since = 0.0  # in the time of the event loop, if it is between two requests
        self._address = address
        self._party = address or self  # a proxy's connections are separate parties
        self._fair_queue = connections.fair_queue
        self._forwarded: str | None = None  # the address that a proxy forwarded with the present request
        self._transport: asyncio.WriteTransport | None = None
        self._unused: dict[TrackedConnection, None] | None = None  # where it is listed while it is not at work
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._left = False

    def take_turn(self) -> bool:
        """Whether a piece of work may be done at once. If not, call await_turn()."""
        return self._fair_queue.take(self._party)

    def await_turn(self, work: Callable[[], None]) -> None:
        """Call *work* when it is this connection's turn."""
        self._fair_queue.join(self._party, work)

    def begin(self, transport: asyncio.WriteTransport) -> None:
        """Note that the connection is open and waits for its first request."""
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # so that pause_writing() is called as soon as anything waits
        self._list_in(self._connections.headless)
        self.start_head_timer()

    def start_head_timer(self) -> None:
        """Limit the time until a request's head has arrived. The time begins with the first call."""
        if self._head_timer is None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._head_timer = loop.call_later(self._connections.rules.head_s, self._transport.close)

    def work(self) -> None:
        """Note that a request is being answered, or a WebSocket is open."""
        if self._unused is not None or self._head_timer is not None:
            self._forget_idleness()

    def count_for(self, account: str) -> bool:
        """See ConnectionUse in http/address_limits.py."""
        if self.account == account or self._left:
            return True
        self._leave_account()
        if self._connections.take_account(account):
            self.account = account
        return self.account is not None

    def count_forwarded(self, address: str) -> bool:
        """See ConnectionUse in http/address_limits.py."""
        if self._address is not None or self._forwarded == address or self._left:  # it comes through no proxy
            return True
        self._leave_forwarded()
        if self._connections.take_address(address):
            self._forwarded = address
        return self._forwarded is not None

    def idle(self) -> None:
        """Note that its stream has nothing to send, so it may be closed if others need the room."""
        if self._unused is not self._connections.idle and not self._left:
            self._list_in(self._connections.idle)
            self._connections.on_room()

    def await_client(self) -> None:
        """See ConnectionUse in http/address_limits.py."""
        if self.account is None and not self._left:
            self._forget_idleness()
            self._list_as_resting()

    def refuse(self, problem: Problem) -> bytes:
        """The answer to data that became no request: *problem*, or 429 if its address sent too much of it."""
        if self._address is not None and not self._connections.count_refusal(self._address):
            problem = REFUSED_TOO_OFTEN
        return raw_answer(problem, request_id=fresh_id(Prefix.REQUEST))

    def note_cut(self) -> None:
        """Note that the connection is cut off because its client sends too much."""
        if self.account is not None:
            self._connections.note_cut(self.account)

    def rest(self) -> None:
        """Note that the request was answered. The next one may come on the same connection."""
        self._forget_idleness()
        self._leave_account()
        self._leave_forwarded()
        self._list_as_resting()

    def start_unread_timer(self) -> None:
        """Limit the time in which the client must read what was sent, since it has not read all of it."""
        assert self._transport is not None
        self._watch_reader(_unread_bytes(self._transport))

    def stop_unread_timer(self) -> None:
        """Note that the client has read all that was sent."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def close(self) -> None:
        """End the connection once all that was sent has been taken."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, without sending the rest."""
        self._forget_idleness()
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        """Note that the connection has ended. It may be called again."""
        self._forget_idleness()
        self.stop_unread_timer()
        self._leave_account()
        self._leave_forwarded()
        if not self._left:
            self._left = True
            self._connections.release(self._address)

    def _leave_account(self) -> None:
        if self.account is not None:
            self._connections.leave_account(self.account)
            self.account = None

    def _leave_forwarded(self) -> None:
        if self._forwarded is not None:
            self._connections.leave_address(self._forwarded)
            self._forwarded = None

    def _list_in(self, unused: "dict[TrackedConnection, None]") -> None:
        self._unused = unused
        unused[self] = None

    def _list_as_resting(self) -> None:
        self.rests_since = asyncio.get_running_loop().time()
        self._list_in(self._connections.resting)
        self._connections.on_room()

    def _forget_idleness(self) -> None:
        if self._unused is not None:
            self._unused.pop(self, None)
            self._unused = None
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


class TrackedProtocol(asyncio.Protocol):
    """The part that TrackedHttp and PatientWebSocket share: they report to their TrackedConnection."""

    tracked: TrackedConnection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.tracked.leave()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.tracked.start_unread_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.tracked.stop_unread_timer()


def _unread_bytes(transport: asyncio.WriteTransport) -> int:
    """The sent bytes that the client has not read: those in this process, and those in the system's send buffer.

    Systems other than Linux may not report the second part. There a slow client's progress is seen in larger steps.
    """
    kept = array("i", [0])
    connection = transport.get_extra_info("socket")
    try:
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, kept)
    except OSError:
        kept[0] = 0
    return transport.get_write_buffer_size() + kept[0]
