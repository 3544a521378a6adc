"""Live sessions behind one socket, for the dialects of other services.

Such a client opens a socket first and says later what it will send. So its live session is made when its first audio
comes. It ends with the socket, or earlier; audio that comes later makes another session.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson
from starlette.requests import HTTPConnection

from server.http.caller import Caller
from server.jobs.orders import ParsedRequest
from server.live.session import LiveSession
from server.live.writers import Seat
from server.model.errors import ConcurrencyLimited
from server.model.jobs import Submitted
from server.model.orders import Order
from server.routes.parts import RouteParts
from server.streams.rendering import json_with_type

Frame: TypeAlias = Mapping[str, Any]
"""An event or partial as our own WebSockets send it."""
MAX_CHANGEOVER_S = 5.0  # how long a client waits for the end of the session that it has just left


@dataclass(frozen=True, slots=True)
class SessionOpener:
    """Opens live sessions for sockets."""

    parts: RouteParts

    @property
    def closing(self) -> bool:
        """Whether the server is stopping, so that no more sessions are opened."""
        return self.parts.session_registry.closing

    @asynccontextmanager
    async def open(
        self, connection: HTTPConnection, caller: Caller, order: Order, warnings: Sequence[Mapping[str, str]] = ()
    ) -> AsyncIterator["SocketSession"]:
        """A new live session of the caller. It takes no more audio after the block, and ends by itself.

        It counts as a request. Raises RateLimited, and what the registry's admit() and open() and
        Acceptance.accept() raise.
        """
        await self.parts.access.count(connection, caller)
        submitted = await self._submit(caller, order, warnings)
        live = await self.parts.session_registry.open(submitted.job)
        try:
            async with live.seat() as seat:
                yield SocketSession(self, live, seat)
        finally:
            live.end()

    async def _submit(self, caller: Caller, order: Order, warnings: Sequence[Mapping[str, str]]) -> Submitted:
        """Make the job of a new session.

        These clients close a socket and open the next one at once, and some give up for good if that is refused. So an
        account at its limit of sessions is not refused while one of them is ending: it waits for that end.
        """
        parsed = ParsedRequest(order, warnings=tuple(warnings))
        try:
            self.parts.session_registry.admit(caller.environment, order)
            return await self.parts.acceptance.accept(caller.customer, parsed)
        except ConcurrencyLimited:
            if not await self.parts.session_registry.wait_for_session_end(caller.account_id, max_s=MAX_CHANGEOVER_S):
                raise
        self.parts.session_registry.admit(caller.environment, order)
        return await self.parts.acceptance.accept(caller.customer, parsed)


class SocketSession:
    """One live session: a task of its socket writes to it, another follows its events."""

    def __init__(self, session_opener: SessionOpener, live: LiveSession, seat: Seat) -> None:
        self._opener = session_opener
        self._live = live
        self._seat = seat

    @property
    def job_id(self) -> str:
        return self._live.job.id

    @property
    def ending(self) -> bool:
        """Whether it takes no more audio."""
        return self._live.ending

    @property
    def heard_s(self) -> float:
        """Seconds of audio that came and were decoded."""
        return self._live.progress().received_s or 0.0

    async def take(self, data: bytes) -> bool:
        """Take the next bytes of audio, as fast as they are recognised. Returns False when it takes no more."""
        return await self._seat.take(data)

    def finalize(self) -> float:
        """See LiveSession.finalize()."""
        return self._seat.finalize()

    def keep_alive(self) -> None:
        self._seat.keep_alive()

    async def over(self) -> None:
        """Wait until the session has ended, and no longer counts among those that the account may have."""
        await self._live.over.wait()

    def end(self) -> None:
        """Take no more audio. What came is still recognised, and those who follow get its words."""
        self._live.end()

    async def follow(self, tell: Callable[[Sequence[Frame]], Awaitable[None]]) -> None:
        """Pass every event and partial on until the session is over. Raises Refused if its writer did not end it."""
        following = self._opener.parts.following
        with following.open_reader(
            self.job_id, after=0, quiet_s=self._opener.parts.limits.streams.keep_alive_s
        ) as reader:
            async for batch in reader:
                if batch is not None:
                    async with reader.record_delivery(batch):
                        await tell([orjson.loads(item.form(json_with_type)) for item in batch.items])
        await self._opener.parts.session_registry.check_end(self._live)
