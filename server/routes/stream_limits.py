"""How many streams, downloads and sockets may be open at once: of one job, one channel and one account."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from server.accounts.limits import StreamRules, Tally
from server.http.caller import Caller
from server.http.problems import Problem
from server.model.channels import Channel
from server.model.jobs import Job


@dataclass(slots=True)
class StreamLimits:
    """Counts open streams, downloads and sockets. A file may have few readers, a live session many."""

    rules: StreamRules
    _open: Tally[str] = field(default_factory=Tally)  # by job, its downloads, channel, account and its sockets

    def reading(self, job: Job) -> AbstractContextManager[None]:
        """A seat for one reader of *job*'s events while the block lasts. Raises Problem too_many_connections."""
        rules = self.rules
        if job.order.live is not None:
            return self._taken({job.id: rules.per_session}, f"{rules.per_session} streams of a live session")
        return self._taken(
            {job.id: rules.per_job, f"{job.account} in {job.environment}": rules.per_account},
            f"{rules.per_job} streams of a file and {rules.per_account} of an account",
        )

    def downloading(self, job: Job) -> AbstractContextManager[None]:
        """A seat for one download of *job*'s outputs. Raises Problem too_many_connections."""
        most = self.rules.downloads_per_job
        return self._taken({f"downloads of {job.id}": most}, f"{most} downloads of a job")

    def watching(self, channel: Channel) -> AbstractContextManager[None]:
        """A seat for one reader of *channel* while the block lasts. Raises Problem too_many_connections."""
        most = self.rules.per_session
        return self._taken({channel.id: most}, f"{most} streams of a channel")

    def socket_of(self, caller: Caller) -> AbstractContextManager[None]:
        """A seat for a socket on which *caller* may hold live sessions, now or later.

        The limit is the streams of the account plus twice its live sessions. Raises Problem too_many_connections.
        """
        account, _, plan = caller.require_account()
        if plan.live_sessions is None:
            return nullcontext()
        most = self.rules.per_account + 2 * plan.live_sessions
        return self._taken({f"sockets of {account.id} in {caller.environment}": most}, f"{most} sockets of an account")

    @contextmanager
    def _taken(self, most: Mapping[str, int], said: str) -> Iterator[None]:
        if any(self._open[name] >= bound for name, bound in most.items()):
            raise Problem(
                "too_many_connections",
                f"at most {said} may be open",
                headers={"Retry-After": "5"},
                members={"violated-policies": ["streams"]},
            )
        with self._open.adding(*most):
            yield
