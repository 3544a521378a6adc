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
class SocketSession:
    """The live session of a socket. One task of the socket writes to *seat*, another follows the events."""

    parts: RouteParts
    live: LiveSession
    seat: Seat

    @property
    def heard_s(self) -> float:
        """Seconds of audio that came and were decoded."""
        return self.live.progress().received_s or 0.0

    async def follow(self, tell: Callable[[Sequence[Frame]], Awaitable[None]]) -> None:
        """Pass every event and partial on until the session is over. Raises Refused if its writer did not end it."""
        quiet_s = self.parts.limits.streams.keep_alive_s
        with self.parts.following.open_reader(self.live.job.id, after=0, quiet_s=quiet_s) as reader:
            async for batch in reader:
                if batch is not None:
                    async with reader.record_delivery(batch):
                        await tell([orjson.loads(item.form(json_with_type)) for item in batch.items])
        await self.parts.session_registry.check_end(self.live)


@asynccontextmanager
async def open_session(
    parts: RouteParts,
    connection: HTTPConnection,
    caller: Caller,
    order: Order,
    warnings: tuple[Mapping[str, str], ...] = (),
) -> AsyncIterator[SocketSession]:
    """A new live session of the caller. It takes no more audio after the block, and ends by itself.

    It counts as a request. Raises RateLimited, and what the registry's admit() and open() and
    Acceptance.accept() raise.
    """
    await parts.access.count(connection, caller)
    submitted = await _submit(parts, caller, ParsedRequest(order, warnings=warnings))
    live = await parts.session_registry.open(submitted.job)
    try:
        async with live.seat() as seat:
            yield SocketSession(parts, live, seat)
    finally:
        live.end()


async def _submit(parts: RouteParts, caller: Caller, parsed: ParsedRequest) -> Submitted:
    """Make the job of a new session.

    These clients close a socket and open the next one at once, and some give up for good if that is refused. So an
    account at its limit of sessions is not refused while one of them is ending: it waits for that end.
    """
    registry = parts.session_registry
    try:
        registry.admit(caller.environment, parsed.order)
        return await parts.acceptance.accept(caller.customer, parsed)
    except ConcurrencyLimited:
        if not await registry.wait_for_session_end(caller.account_id, max_s=MAX_CHANGEOVER_S):
            raise
    registry.admit(caller.environment, parsed.order)
    return await parts.acceptance.accept(caller.customer, parsed)
