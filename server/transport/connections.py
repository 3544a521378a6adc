"""Limits the number of open connections, and how long one may be idle.

A connection needs a descriptor, and so does every file, pipe and outgoing request. If connections took all descriptors,
no audio could be read.

The command `serve` makes one Connections for the process. Each HTTP protocol has a TrackedConnection, to which it and
the WebSocket's protocol report what happens.
"""

import asyncio
import fcntl
import resource
import termios
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from server.accounts.keys import fresh_id
from server.config import PREFIX, Config, ConfigError, Network
from server.http.client_addresses import address_key, client_address, too_many_connections
from server.http.problems import Problem, raw_answer
from server.keyed_limits import RateTable, Tally
from server.logs import log
from server.metrics import Metrics
from server.model.ids import Prefix

MIN_READ_BYTES = 16 * 1024  # a client must read so much, or all that waits, within ConnectionRules.unread_s
MAX_CUTS = 20  # an account with more connections cut off within a minute may open no others
REFUSED_TOO_OFTEN = Problem(
    "rate_limited", "this address sent too much that is no request", headers={"Retry-After": "60"}
)
SILENT_AT_ONCE = 16  # connections that are closed together
MAX_DESCRIPTORS = 1_048_576  # where the system has no limit
RESERVED_DESCRIPTORS = 256  # for the database, decoders and outgoing requests
DESCRIPTORS_EACH = 2  # of a connection: its socket, and the file that is uploaded or downloaded over it
MAX_CONNECTIONS = 10_000  # even if there are more descriptors: an idle connection takes 25 kB of memory
OF_ACCOUNT = 0.6  # of all connections: half of them may be readers of one session, and its owner needs some too


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
    unread_s: float = 60.0  # within which a client must read MIN_READ_BYTES, or all that was sent


class Connections:
    """Counts the open connections, and lists those that can be closed for others."""

    def __init__(self, rules: ConnectionRules, *, trusted_proxies: Sequence[Network], metrics: Metrics) -> None:
        self.rules = rules
        self.headless: dict[TrackedConnection, None] = {}  # without a request so far; the oldest first
        self.resting: dict[TrackedConnection, None] = {}  # between two requests, or parts of a body; the oldest first
        self.idle: dict[TrackedConnection, None] = {}  # with a stream that has nothing to send; the oldest first
        self.of_address: Tally[str] = Tally()
        self.of_account: Tally[str] = Tally()
        self.refusals = RateTable()  # by address: data that became no request
        self.cuts = RateTable()  # by account: connections that were cut because they sent too much
        self._trusted = trusted_proxies
        self._metrics = metrics
        self._open = 0

    def address_of(self, peer: str) -> str | None:
        """The key by which connections from the address *peer* are counted.

        None for a trusted proxy, which may have any number, because many clients come through it.
        """
        address = client_address(peer, (), ())
        trusted = address is not None and any(address in network for network in self._trusted)
        return None if trusted else address_key(address)

    def admit(self, address: str | None) -> None:
        """Count one more connection from *address* (see address_of). Raises Problem too_many_connections.

        When all are taken, silent ones are closed; see _close_silent().
        """
        if address is not None and not self.of_address.join(address, most=self.rules.max_of_address):
            self._metrics.refused.labels("too_many_connections").inc()
            raise too_many_connections("This address")
        self._open += 1
        if self._open > self.rules.max_open and not self._close_silent():
            self._metrics.refused.labels("too_many_connections").inc()
            self.release(address)
            raise too_many_connections("The server")
        self._metrics.connections.set(self._open)

    def release(self, address: str | None) -> None:
        """Note that a connection has ended that was admitted for *address*."""
        self._open -= 1
        if address is not None:
            self.of_address.leave(address)
        self._metrics.connections.set(self._open)

    def admit_account(self, account: str) -> bool:
        """Count one more connection of *account*. Returns False if it has too many, or was cut off too often."""
        return self.cuts.look(account, limit=MAX_CUTS).allowed and self.of_account.join(
            account, most=self.rules.max_of_account
        )

    def _close_silent(self) -> bool:
        """Close some connections, so that new ones may open. Returns False if there is none that may be closed.

        It closes the oldest that never sent a request; if there are none, the one that has waited longest for its next
        request; if there is none, the longest silent streams of the account with the most connections.
        """
        silent = list(islice(self.headless, SILENT_AT_ONCE)) or list(islice(self.resting, 1))
        if not silent and self.idle:
            largest = max(
                {tracked.account for tracked in self.idle}, key=lambda account: self.of_account[account or ""]
            )
            silent = list(islice((tracked for tracked in self.idle if tracked.account == largest), SILENT_AT_ONCE))
        for tracked in silent:
            self._metrics.refused.labels("too_many_connections").inc()
            tracked.abort()
        return bool(silent)


class TrackedConnection:
    """One connection. Its protocol calls the methods, and this closes it if its client is too slow.

    A connection is at work while a request is answered or a WebSocket is open. Otherwise it waits for the rest of a
    request's head, which must arrive in time, or rests between two requests.
    """

    def __init__(self, connections: Connections, transport: asyncio.WriteTransport) -> None:
        self._connections = connections
        self._transport = transport
        self.account: str | None = None  # the account for which it is counted
        self._address = connections.address_of(_peer_of(transport))
        self._forwarded: str | None = None  # the address that a proxy forwarded with the present request
        self._unused: dict[TrackedConnection, None] | None = None  # where it is listed while it is not at work
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._counted = False

    def begin(self) -> None:
        """Note that the connection is open and waits for its first request. If there are too many, it is refused."""
        try:
            self._connections.admit(self._address)
        except Problem as refusal:
            self._transport.write(raw_answer(refusal, request_id=fresh_id(Prefix.REQUEST)))
            self._transport.close()
            return
        self._counted = True
        self._transport.set_write_buffer_limits(high=0)  # so that pause_writing() is called as soon as anything waits
        self._list_in(self._connections.headless)
        self.start_head_timer()

    def start_head_timer(self) -> None:
        """Limit the time until a request's head has arrived. The time begins with the first call."""
        if self._head_timer is None:
            loop = asyncio.get_running_loop()
            self._head_timer = loop.call_later(self._connections.rules.head_s, self._transport.close)

    def work(self) -> None:
        """Note that a request is being answered, or a WebSocket is open."""
        self._forget_idleness()

    def count_for(self, account: str) -> bool:
        """See ConnectionUse in http/client_addresses.py."""
        if self.account == account or not self._counted:
            return True
        self._leave_account()
        if self._connections.admit_account(account):
            self.account = account
        return self.account is not None

    def count_forwarded(self, address: str) -> bool:
        """See ConnectionUse in http/client_addresses.py."""
        if self._address is not None or self._forwarded == address or not self._counted:  # it comes through no proxy
            return True
        self._leave_forwarded()
        if self._connections.of_address.join(address, most=self._connections.rules.max_of_address):
            self._forwarded = address
        return self._forwarded is not None

    def idle(self) -> None:
        """Note that its stream has nothing to send, so it may be closed for others."""
        if self._unused is not self._connections.idle and self._counted:
            self._list_in(self._connections.idle)

    def await_client(self) -> None:
        """See ConnectionUse in http/client_addresses.py."""
        if self.account is None and self._counted:
            self._forget_idleness()
            self._list_in(self._connections.resting)

    def refuse(self, problem: Problem) -> bytes:
        """The answer to data that became no request: *problem*, or 429 if its address sent too much of it."""
        limit = self._connections.rules.refusals_of_address
        if self._address is not None and not self._connections.refusals.hit(self._address, limit=limit).allowed:
            problem = REFUSED_TOO_OFTEN
        return raw_answer(problem, request_id=fresh_id(Prefix.REQUEST))

    def note_cut(self) -> None:
        """Note that the connection is cut off because its client sends too much."""
        if self.account is not None:
            self._connections.cuts.hit(self.account, limit=MAX_CUTS)

    def rest(self) -> None:
        """Note that the request was answered. The next one may come on the same connection."""
        self._forget_idleness()
        self._leave_account()
        self._leave_forwarded()
        if self._counted:
            self._list_in(self._connections.resting)

    def start_unread_timer(self) -> None:
        """Limit the time in which the client must read what was sent, since it has not read all of it."""
        self._watch_reader(_unread_bytes(self._transport))

    def stop_unread_timer(self) -> None:
        """Note that the client has read all that was sent."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def abort(self) -> None:
        """Close the connection at once, without sending the rest."""
        self._forget_idleness()
        self._transport.abort()

    def leave(self) -> None:
        """Note that the connection has ended."""
        self._forget_idleness()
        self.stop_unread_timer()
        self._leave_account()
        self._leave_forwarded()
        if self._counted:
            self._counted = False
            self._connections.release(self._address)

    def _leave_account(self) -> None:
        if self.account is not None:
            self._connections.of_account.leave(self.account)
            self.account = None

    def _leave_forwarded(self) -> None:
        if self._forwarded is not None:
            self._connections.of_address.leave(self._forwarded)
            self._forwarded = None

    def _list_in(self, unused: "dict[TrackedConnection, None]") -> None:
        self._unused = unused
        unused[self] = None

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


def _peer_of(transport: asyncio.WriteTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


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
