"""An answer whose body comes piece by piece and whose source must be closed, such as a file that is read."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, nullcontext

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


async def first_piece(source: AsyncGenerator[bytes]) -> bytes:
    """The first piece of *source*; empty if *source* is. Give both to Streamed.

    Take it before the answer begins: if *source* raises an error here, the error can still become the answer.
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
    """Sends *first*, then *source*. Closes *source* when the answer ends, also if the client leaves before.

    Starlette does not close the source of a client that left, so its files would stay open until Python collects
    garbage.
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
        """*seat*, which was taken before the answer began, is left at its end."""
        super().__init__(_after(first, source), status, headers)
        self._source = source
        self._seat = nullcontext() if seat is None else seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._seat:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._source.aclose()
