"""An answer whose body comes piece by piece and whose source must be closed, such as a file that is read."""

from collections.abc import AsyncGenerator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Streamed(StreamingResponse):
    """Closes *source* when the answer ends, also where the client leaves before that.

    Starlette leaves the source as it is then, and what it has open stays open until Python collects garbage.
    """

    def __init__(self, source: AsyncGenerator[bytes], *, status: int = 200, headers: Mapping[str, str]) -> None:
        super().__init__(source, status, headers)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()
