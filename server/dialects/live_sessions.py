"""Opens live sessions for the sockets of dialects. A session ends with its socket, or earlier.

After an earlier end, a socket may open another session.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson
from starlette.requests import HTTPConnection

from server.http.caller import Caller
from server.live.session import LiveSession, Seat
from server.model.errors import ConcurrencyLimited
from server.model.jobs import Submitted
from server.model.orders import Order
from server.parsing.orders import ParsedRequest
from server.requests.request import RouteParts
from server.streams.feed import json_with_type

Frame: TypeAlias = Mapping[str, Any]
"""An event or partial as the server's own WebSockets send it."""
MAX_CHANGEOVER_S = 5.0  # longest wait for the end of the client's previous session


@dataclass(frozen=True, slots=True)
class SocketSession:
    """The live session of a socket. One task of the socket writes to *seat*, another calls follow()."""

    parts: RouteParts
    live: LiveSession
    seat: Seat

    @property
    def heard_s(self) -> float:
        """The seconds of audio that have arrived and were decoded."""
        return self.live.progress().received_s or 0.0

    async def follow(self, send: Callable[[Sequence[Frame]], Awaitable[None]]) -> None:
        """Call *send* with events and partials until the session ends. Raises Refused unless the client ended it."""
        quiet_s = self.parts.limits.streams.keep_alive_s
        with self.parts.following.open_reader(self.live.job.id, after=0, quiet_s=quiet_s) as reader:
            async for batch in reader:
                if batch is not None:
                    async with reader.record_delivery(batch):
                        await send([orjson.loads(item.form(json_with_type)) for item in batch.items])
        await self.parts.session_registry.check_end(self.live)


@asynccontextmanager
async def open_session(
    parts: RouteParts,
    connection: HTTPConnection,
    caller: Caller,
    order: Order,
    warnings: tuple[Mapping[str, str], ...] = (),
) -> AsyncIterator[SocketSession]:
    """Open a live session for the caller, counted as a request. At the end of the block it takes no more audio.

    Raises RateLimited, and what the registry's admit() and open() and Acceptance.accept() raise.
    """
    await parts.access.count(connection, caller)
    submitted = await _submit(parts, caller, ParsedRequest(order, warnings=warnings))
    live = await parts.session_registry.open(submitted.job)
    try:
        async with live.seat() as seat:
            yield SocketSession(parts, live, seat)
    finally:
        live.finish()


async def _submit(parts: RouteParts, caller: Caller, parsed: ParsedRequest) -> Submitted:
    """Make the job of a new session.

    These clients close a socket and open the next one at once, and some give up for good if that is refused. So if an
    account is at its limit of sessions and one of them is ending, the new session waits for that end.
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
