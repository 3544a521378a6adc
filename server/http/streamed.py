"""Answers that stream their body, such as a file, and then close the source; and Server-Sent Events (WHATWG)."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, nullcontext

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from server.model.errors import Refused

MEDIA_TYPE = "text/event-stream"

STREAM_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "X-Accel-Buffering": "no",
}
"""The headers of every stream. The last one keeps proxies from buffering."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment that keeps proxies from closing the connection. Clients ignore it."""

_NUMBER = re.compile(r"[0-9]{1,18}")


async def first_piece(source: AsyncGenerator[bytes]) -> bytes:
    """The first piece of *source*; empty if *source* is. Pass it and *source* to Streamed.

    Reading it before the answer begins lets an error of *source* become the answer.
    """
    try:
        return await anext(source, b"")
    except BaseException:
        await source.aclose()
        raise


async def _after(first: bytes, source: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    if first:
        yield first
    async for piece in source:
        yield piece


class Streamed(StreamingResponse):
    """Sends *first*, then *source*, and closes *source* when the answer ends or the client leaves.

    Starlette does not close the source if the client leaves, so files would stay open until garbage is collected.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        seat: AbstractContextManager[object] | None = None,
        *,
        first: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str],
    ) -> None:
        """*seat* is a context manager that is exited at the end of the answer."""
        super().__init__(_after(first, source), status, headers)
        self._source = source
        self._seat = nullcontext() if seat is None else seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._seat:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._source.aclose()


def retry(ms: int) -> bytes:
    """The line that makes clients reconnect *ms* after a connection broke."""
    return b"retry: %d\n\n" % ms


def event(name: str | None, data: bytes, *, seq: int | None = None) -> bytes:
    """One event with UTF-8 *data*. Without *seq* the client's last event id stays. *name* None means "message".

    The client gets every line break in the data as a line feed.
    """
    lines = [] if seq is None else [b"id: %d" % seq]
    if name is not None:
        lines.append(b"event: " + name.encode())
    lines += [b"data: " + line for line in re.split(rb"\r\n|\r|\n", data)]
    return b"\n".join(lines) + b"\n\n"


def last_event_id(header: str | None, query: str | None = None) -> int:
    """Parse the number of the last event that the client has; 0 if it has none.

    *header* is preferred to *query*, because a reconnecting EventSource repeats its address and adds the header. Raises
    Refused invalid_last_event_id if it is no number. The caller checks whether the stream has such an event.
    """
    text = (header or query or "").strip()
    if not text:
        return 0
    if not _NUMBER.fullmatch(text):
        raise Refused(
            "invalid_last_event_id", "Last-Event-ID must be the id of an event of this stream, a decimal number"
        )
    return int(text)
