"""Limits of open streams, downloads and sockets."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from server.accounts.limits import StreamRules
from server.http.operation import Caller
from server.http.problems import Problem
from server.keyed_limits import Tally
from server.model.accounts import Channel
from server.model.jobs import Job


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
