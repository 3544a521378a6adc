"""Limits by network address, and limits of open streams, downloads and sockets.

OuterMiddleware (middleware.py) and sockets count the refusals of requests without a known account. An address that was
refused too often waits for each further refusal, and gets 429. They also ask before they log a request, because a line
of the log is longer than the shortest request, and a flood of requests would fill the disk.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import Scope

from server.accounts.addresses import address_key, client_address, peer_key
from server.accounts.limits import StreamRules
from server.config import Network
from server.http.address_limits import ConnectionUse
from server.http.caller import Caller
from server.http.problems import Problem
from server.keyed_limits import RateTable, Tally, TokenBucket
from server.logs import log
from server.model.accounts import Channel
from server.model.jobs import Job

LOG_LINES, LOG_LINES_PER_S = 1_000, 40
"""The lines that one address may add to the log at once, and then each second: about 1 MB in a minute."""

MAX_ADDRESSES = 10_000  # whose lines are counted; beyond it all counts are dropped
SUMMARY_S = 60.0
FORWARDED = b"x-forwarded-for"


def address_of(scope: Scope, trusted: Sequence[Network]) -> str:
    """The address_key() of the client that sent the request. *trusted* are the operator's proxies."""
    client: tuple[str, int] | None = scope.get("client")
    peer = client[0] if client else None
    if not trusted:
        return peer_key(peer)
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == FORWARDED]
    return address_key(client_address(peer, forwarded, trusted))


def check_account(connection: HTTPConnection, account: str) -> None:
    """Count the connection for *account*. Raises Problem too_many_connections if the account has too many."""
    used: ConnectionUse | None = connection.scope["state"].get("connection")
    if used is not None and not used.count_for(account):
        raise too_many_connections("This account")


def too_many_connections(whose: str) -> Problem:
    return Problem(
        "too_many_connections", f"{whose} has too many connections. Close some.", headers={"Retry-After": "5"}
    )


@dataclass(slots=True)
class AddressCounters:
    """Counts refusals and lines of the log by address, in memory. See server/http/address_limits.py."""

    refusals_per_minute: int
    trusted_proxies: Sequence[Network]
    _refused: RateTable = field(default_factory=RateTable)
    _lines: dict[str, TokenBucket] = field(default_factory=dict)
    _left_out: int = 0

    def check_connections(self, scope: Scope) -> None:
        connection: ConnectionUse | None = scope["state"].get("connection")
        if self.trusted_proxies and connection is not None:
            address = address_of(scope, self.trusted_proxies)
            if not connection.count_forwarded(address):
                raise too_many_connections("This address")

    def check_refusals(self, scope: Scope) -> None:
        address = address_of(scope, self.trusted_proxies)
        self._refused.hit(address, limit=self.refusals_per_minute).check()

    def may_log(self, scope: Scope) -> bool:
        address = address_of(scope, self.trusted_proxies)
        if len(self._lines) >= MAX_ADDRESSES:
            self._lines.clear()
        allowance = self._lines.setdefault(address, TokenBucket(most=LOG_LINES, per_s=LOG_LINES_PER_S))
        if allowance.afford(1):
            return True
        if not self._left_out:
            asyncio.get_running_loop().call_later(SUMMARY_S, self._sum_up)
        self._left_out += 1
        return False

    def _sum_up(self) -> None:
        log.warning("requests of addresses that sent many were not logged", extra={"count": self._left_out})
        self._left_out = 0


@dataclass(slots=True)
class StreamLimits:
    """Counts open streams, downloads and sockets. Each method counts one more while its block lasts.

    All methods raise Problem too_many_connections.
    """

    rules: StreamRules
    _open: Tally[str] = field(default_factory=Tally)  # by job, its downloads, channel, account and its sockets

    def hold_stream(self, job: Job) -> AbstractContextManager[None]:
        """Count a reader of *job*'s events."""
        rules = self.rules
        if job.order.live is not None:
            return self._hold({job.id: rules.per_session}, f"{rules.per_session} streams of a live session")
        return self._hold(
            {job.id: rules.per_job, f"{job.account} in {job.environment}": rules.per_account},
            f"{rules.per_job} streams of a file and {rules.per_account} of an account",
        )

    def hold_download(self, job: Job) -> AbstractContextManager[None]:
        """Count a download of one of *job*'s outputs."""
        most = self.rules.downloads_per_job
        return self._hold({f"downloads of {job.id}": most}, f"{most} downloads of a job")

    def hold_channel_stream(self, channel: Channel) -> AbstractContextManager[None]:
        """Count a reader of *channel*."""
        most = self.rules.per_session
        return self._hold({channel.id: most}, f"{most} streams of a channel")

    def hold_socket(self, caller: Caller) -> AbstractContextManager[None]:
        """Count a socket on which *caller* may open live sessions.

        The limit is the account's number of streams plus twice its number of live sessions.
        """
        account, _, plan = caller.require_account()
        if plan.live_sessions is None:
            return nullcontext()
        most = self.rules.per_account + 2 * plan.live_sessions
        return self._hold({f"sockets of {account.id} in {caller.environment}": most}, f"{most} sockets of an account")

    @contextmanager
    def _hold(self, most: Mapping[str, int], said: str) -> Iterator[None]:
        if any(self._open[name] >= bound for name, bound in most.items()):
            raise Problem(
                "too_many_connections",
                f"At most {said} may be open. Close some.",
                headers={"Retry-After": "5"},
                members={"violated_policies": ["streams"]},
            )
        with self._open.adding(*most):
            yield
