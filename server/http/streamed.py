"""An answer that streams its body and then closes the source, such as a file."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, nullcontext

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


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
