"""WebSockets that send JSON text, and refuse clients in a way that these can read.

A client with a key can read HTTP, so it is refused before the WebSocket opens. A browser, which has a token, cannot
read that answer. So for a client with a token the WebSocket opens, sends an error frame, and closes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from msgspec.json import encode as json_bytes
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.frames import Frame, Opcode

from server.http.client_addresses import PAUSE_S, IdleReport
from server.http.operation import ErrorShape, problem_response
from server.http.problems import CODES, UNDECODABLE, Problem, problem_of
from server.logs import log, path_for_log
from server.metrics import Metrics
from server.model.errors import RateLimited

NORMAL = 1000
GOING_AWAY = 1001
ABNORMAL = 1006  # never sent: the connection ended without a close frame
TOO_BIG = 1009
MAX_REASON_BYTES = 123  # the room in a close frame
MAX_MESSAGE_BYTES = 1024 * 1024  # of a message of audio
CLOSING_S = 10.0  # how long a peer may take to read the last message
ORDER_S = 0.01  # the average time between two messages without audio, over ORDERS_AHEAD_S
ORDERS_AHEAD_S = 0.5
MAX_COMMAS = 4000  # in a message: parsing millions of values would hold up the event loop

_CODES = {"ingest_finished": 4410, "shutting_down": GOING_AWAY, **dict.fromkeys(UNDECODABLE, 4415)}
TOO_MANY, SERVER_ERROR, UNAVAILABLE = 429, 500, 503


_COUNTED = frozenset(
    {*range(1000, 1016), *_CODES.values()} | {code for status, _ in CODES.values() for code in (status, 4000 + status)}
)


def code_label(code: int | None) -> str:
    """The label of *code* in the metrics. Peers may close with 2,000 codes of their own, which count as one."""
    return str(code) if code is None or code in _COUNTED else "other"


def close_code(problem: Problem) -> int:
    """4000 plus the HTTP status, unless the WebSocket protocol has a code of its own."""
    if problem.code in _CODES:
        return _CODES[problem.code]
    if problem.status == UNAVAILABLE:
        return 1013
    return 1011 if problem.status >= SERVER_ERROR else 4000 + problem.status


def cut_reason(text: str) -> str:
    """The part of *text* that fits into a close frame."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def text_frame(body: bytes) -> bytes:
    """The WebSocket frame with the UTF-8 text *body*. It is the same for all clients."""
    return Frame(Opcode.TEXT, body).serialize(mask=False)


def message_of(text: str | None) -> Mapping[str, Any] | None:
    """Parse the JSON object that a peer sent; None if *text* is something else or has more than MAX_COMMAS."""
    if text is None or text.count(",") > MAX_COMMAS:
        return None
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


class MessageTooBig(Exception):
    """A message is larger than allowed. Send smaller ones."""


def own_error_frame(problem: Problem, path: str, request_id: str) -> bytes:
    """The error frame of the server's own API."""
    return json_bytes({"type": "error", "error": problem.body(instance=path, request_id=request_id)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketErrorStyle:
    """The form of a socket's errors, by default that of the server's own API."""

    refusal: ErrorShape | None = None  # of an HTTP answer before the WebSocket opens
    error_frame: Callable[[Problem, str, str], bytes] = own_error_frame  # gets the problem, the path and the request id
    close_code: Callable[[Problem], int] = close_code


OWN_ERROR_STYLE = SocketErrorStyle()


def socket_route(
    path: str,
    converse: Callable[["Socket"], Awaitable[None]],
    *,
    metrics: Metrics,
    error_style: SocketErrorStyle = OWN_ERROR_STYLE,
) -> WebSocketRoute:
    """The route of a WebSocket. *converse* accepts the socket and handles its messages until the end."""

    async def serve(websocket: WebSocket) -> None:
        socket = Socket(websocket, route=path, metrics=metrics, error_style=error_style)
        await socket.serve(converse(socket))

    return WebSocketRoute(path, serve)


class Socket:
    """One WebSocket. send() may be called from several tasks."""

    def __init__(
        self, websocket: WebSocket, *, route: str, metrics: Metrics, error_style: SocketErrorStyle = OWN_ERROR_STYLE
    ) -> None:
        self.websocket = websocket
        self._error_style = error_style
        self._route = route
        self._metrics = metrics
        self._code: int | None = None
        self.may_rest = False
        """Whether the client only reads, so that the socket may be closed while there is nothing to read."""
        self._idle_report = IdleReport(websocket.scope)
        self._orders_until = 0.0  # the time that the orders so far have used up, at one in each ORDER_S
        self._sent_at = time.monotonic()  # the newest frames

    async def serve(self, work: Awaitable[None]) -> None:
        """Await *work*, report its error to the client if it raises one, and close the WebSocket."""
        try:
            await work
        except WebSocketDisconnect as left:
            self._code = left.code
        except MessageTooBig as error:
            await self.close(TOO_BIG, str(error))
        except Exception as error:  # noqa: BLE001  the outermost edge: every error becomes an answer
            await self._refuse(error)
        else:
            await self.close(NORMAL)
        self._metrics.websockets.labels(self._route, code_label(self._code)).inc()
        self._write_log_line()

    def _write_log_line(self) -> None:
        """Write the socket's log line."""
        state, path = self.websocket.state, path_for_log(self.websocket.scope["path"])
        fields = {"request_id": state.request_id, "path": path, "code": self._code, "account": self._account}
        if state.address_limits.may_log(self.websocket.scope):
            log.info("websocket", extra=fields)

    @property
    def _account(self) -> str | None:
        """The account whose key the client has sent; None without a valid key."""
        return getattr(self.websocket.state, "account", None)

    async def accept(self, *, subprotocol: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        if self._is_connecting:
            shown = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
            await self.websocket.accept(subprotocol, shown)

    async def send(self, *bodies: bytes) -> None:
        """Send JSON texts in one write. Raises what send_frames() raises."""
        await self.send_frames(b"".join(map(text_frame, bodies)))

    async def send_frames(self, frames: bytes) -> None:
        """Send one or more text_frame()s in one write. transport/websocket.py makes that possible.

        Raises WebSocketDisconnect, also if another task has noticed that the client left.
        """
        if self._is_disconnected:
            raise WebSocketDisconnect(ABNORMAL)
        await self.websocket.send({"type": "websocket.send", "frames": frames})
        self._sent_at = time.monotonic()

    def rest_while(self, quiet: bool) -> None:  # noqa: FBT001  the only argument
        """Note whether there is nothing to send at the moment."""
        if self.may_rest:
            self._idle_report.rest_while(quiet)

    async def wait_while_read(self) -> None:
        """Wait until nothing could be sent for CLOSING_S: there is nothing more, or the client does not read."""
        self._sent_at = time.monotonic()
        while (left_s := self._sent_at + CLOSING_S - time.monotonic()) > 0:  # noqa: ASYNC110  an event would be set with each frame
            await asyncio.sleep(left_s)

    async def wait_for_turn(self) -> None:
        """Wait until the client may send another message without audio. This limits how many the server answers."""
        now = asyncio.get_running_loop().time()
        self._orders_until = max(self._orders_until, now - ORDERS_AHEAD_S) + ORDER_S
        if self._orders_until > now:
            await asyncio.sleep(self._orders_until - now)

    async def close(self, code: int, reason: str = "") -> None:
        """Close the WebSocket. Waits at most CLOSING_S for the client to read."""
        if self._code is None:
            self._code = code
            if not self._is_disconnected:
                with suppress(TimeoutError, WebSocketDisconnect):
                    async with asyncio.timeout(CLOSING_S):
                        await self.websocket.close(code, cut_reason(reason))

    async def _refuse(self, error: Exception) -> None:
        error, reads_http = await self._count_refusal(error), "token" not in self.websocket.query_params
        if self._is_connecting and (reads_http or isinstance(error, RateLimited)):
            response = problem_response(self.websocket, error, shape=self._error_style.refusal)
            response.headers["X-Request-Id"] = self.websocket.state.request_id
            self._code = response.status_code
            await self.websocket.send_denial_response(response)
            return
        problem = problem_of(error)
        if problem is None:
            log.error("websocket broke", exc_info=error, extra={"request_id": self.websocket.state.request_id})
            problem = Problem("internal", "the server failed; it has been logged")
        code = self._error_style.close_code(problem)
        with suppress(TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(CLOSING_S):
                await self.accept()
                if code != GOING_AWAY:
                    await self._send_error(problem)
        await self.close(code, f"{problem.code}: {problem.detail}")

    async def _count_refusal(self, error: Exception) -> Exception:
        """*error*, or RateLimited if the client has no key and its address was refused too often.

        It returns after PAUSE_S if a limit was reached, so that trying again at once gains nothing.
        """
        if not self._is_connecting:
            return error
        if self._account is None:
            try:
                self.websocket.state.address_limits.check_refusals(self.websocket.scope)
            except RateLimited as too_often:
                await asyncio.sleep(PAUSE_S)
                return too_often
        elif (problem := problem_of(error)) is not None and problem.status == TOO_MANY:
            await asyncio.sleep(PAUSE_S)
        return error

    async def _send_error(self, problem: Problem) -> None:
        if not self._is_disconnected:
            path, request_id = self.websocket.scope["path"], self.websocket.state.request_id
            await self.send(self._error_style.error_frame(problem, path, request_id))

    @property
    def _is_connecting(self) -> bool:
        return self.websocket.application_state is WebSocketState.CONNECTING

    @property
    def _is_disconnected(self) -> bool:
        left = WebSocketState.DISCONNECTED
        return self.websocket.client_state is left or self.websocket.application_state is left
