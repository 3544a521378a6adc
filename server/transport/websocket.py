"""uvicorn's WebSocket, with backpressure for writers and limits on frames.

Live audio is read no faster than it is recognised. Unread audio waits in the sockets of both sides, and all later
frames of the peer wait behind it, pongs too. So little may wait there, and a peer that is still sending counts as
alive.

A frame of one byte costs as much work as one of a thousand, and one packet may have thousands of frames. So a
connection parses only a few frames in a turn of the event loop. Small messages have an allowance; beyond it they wait
in the sockets, like audio that comes too fast. A peer that sends too many pings or pongs, or continues to send after
our close frame, is cut off (1008).
"""

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import HeaderLineTooLong
from websockets.frames import CloseCode, Frame, Opcode, apply_mask  # type: ignore[attr-defined]
from websockets.http11 import MAX_LINE_LENGTH, Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from server.http.operation import UPGRADE
from server.http.problems import Problem
from server.keyed_limits import TokenBucket
from server.transport.connections import TrackedProtocol

WAITING_BYTES = 128 * 1024
"""The size of a connection's receive buffer: seconds of raw audio, half a minute of compressed audio."""

MAX_FRAGMENTS = 1024
"""The most frames of one message. Each is kept until the last one, and even an empty one takes memory."""

MAX_UNREAD_BYTES = 1024 * 1024
"""The most bytes that may wait for a client which sends pings and does not read the answers."""

TURN_FRAMES = 16
"""The frames of one connection that are parsed in one turn."""

MESSAGES, MESSAGES_PER_S = 1000, 1000
"""The allowance of frames without content: so many at once, and then so many a second.

A browser gives audio in frames of 128 samples, which are 375 a second, or 750 halves of them.
"""

GATHER_S = 0.02
"""How long small messages gather in the socket, because to wake up for each would cost more than to read it."""

FREE_BYTES = 1024
"""A longer frame costs less of the allowance; with so many bytes or more it costs LEAST_PRICE of a frame."""

LEAST_PRICE = 0.1

AUDIO_HEAD, AUDIO_AT = b"\x82\xfe", 8
"""How a whole, masked message of 126 to 65,535 bytes begins, and where its audio does, behind its length and mask."""

CONTROLS, CONTROLS_PER_S = 64, 20
"""The allowance of pings and pongs. A client that keeps its connection alive sends one every few seconds."""

AFTER_CLOSE_FRAMES = 2000
"""The most frames after our close frame. Seconds of audio may be under way before the peer has read it."""

CUT_S = 1.0
"""Seconds between the close frame that cuts off a peer and the end of the connection, so that the frame arrives."""

LEAVE_S = 5.0
"""Seconds in which routes should close their WebSockets when the server stops. Then GOING_AWAY is sent."""


class PricedFrames(ServerProtocol):
    """The frame parser of websockets with a budget: it stops after TURN_FRAMES frames, and charges their price."""

    def __init__(self, *, max_size: int | None) -> None:
        super().__init__(max_size=max_size, logger=logging.getLogger("uvicorn.error"))
        self.held = False
        """Whether there is unparsed data. parse_more() continues with it."""
        self.excess = False
        """Whether the peer has sent too many pings or pongs, or too much after our close frame."""
        self._rest = bytearray()
        self._at_boundary = False  # neither a frame nor a message has begun
        self._small = False
        self._frames_left = TURN_FRAMES
        self._controls = TokenBucket(most=CONTROLS, per_s=CONTROLS_PER_S)
        self._messages = TokenBucket(most=MESSAGES, per_s=MESSAGES_PER_S)
        self._after_close = AFTER_CLOSE_FRAMES

    @property
    def gather_s(self) -> float:
        """How long to wait before more is read, because the newest message was small."""
        return GATHER_S if self._small else 0.0

    @property
    def owed_s(self) -> float:
        """The seconds that the peer must wait because it has sent too many small messages."""
        return self._messages.owed_s()

    def hold(self, data: bytes) -> None:
        """Keep *data* until parse_more() is called."""
        self._rest += data
        self.held = True

    def parse_message(self, data: bytes) -> bool:
        """Parse *data* if it is one message of audio in one frame of usual size, as nearly all is that writers send.

        Returns False if it is anything else, which is for hold(). The parser takes three times as long.
        """
        size = int.from_bytes(data[2:4], "big")
        if (
            data[:2] != AUDIO_HEAD
            or len(data) != AUDIO_AT + size
            or not self._at_boundary
            or self.state is not State.OPEN
        ):
            return False
        self.recv_frame(Frame(Opcode.BINARY, apply_mask(data[AUDIO_AT:], data[4:AUDIO_AT])))
        return True

    def parse_more(self) -> None:
        """Parse up to TURN_FRAMES frames of the held data."""
        rest, self._rest, self.held = self._rest, bytearray(), False
        self._frames_left, self._at_boundary = TURN_FRAMES, False
        self.receive_data(rest)

    def recv_frame(self, frame: Frame) -> None:
        """Called by the parser with each frame."""
        if not self._charge_frame(frame):
            self.excess = True
            self.fail(CloseCode.POLICY_VIOLATION, "too many frames")
            return
        super().recv_frame(frame)
        self._at_boundary = self.current_size is None and not self.reader.buffer
        self._frames_left -= 1
        if self._frames_left <= 0 and self.reader.buffer:
            self.held, self._rest, self.reader.buffer = True, self.reader.buffer, bytearray()

    def _charge_frame(self, frame: Frame) -> bool:
        """Take the price of *frame* from the peer's allowance. Returns False if the peer must be cut off."""
        if self.state is State.CLOSING:
            self._after_close -= 1
            if self._after_close < 0:
                return False
        if frame.opcode in (Opcode.PING, Opcode.PONG):
            return self._controls.spend(1) <= 0
        self._small = len(frame.data) < FREE_BYTES
        self._messages.spend(max(LEAST_PRICE, 1 - len(frame.data) / FREE_BYTES))
        return True


class PatientWebSocket(TrackedProtocol, WebSocketsSansIOProtocol):
    """The server's WebSocket protocol."""

    conn: PricedFrames

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = PricedFrames(max_size=self.config.ws_max_size)
        self._last: dict[str, Any] = {}  # the newest message of audio
        self._waits = False  # whether _parse_or_read() will be called
        self._cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the connection's HTTP protocol, which has read the request."""
        super().connection_made(transport)
        http = self.transport.get_protocol()
        assert isinstance(http, TrackedProtocol)
        self.tracked = http.tracked
        self.tracked.work()
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAITING_BYTES)
        self._heard_at = self.loop.time()
        self.read_paused = True  # until the route accepts the peer
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        if self._cut:
            return
        waits = self.conn.held or self._awaits_accept
        if not waits and self.conn.parse_message(data):
            self.handle_events()
            return
        self.conn.hold(data)
        if not waits:
            self._parse()
        self._pause_if_held()

    @property
    def _awaits_accept(self) -> bool:
        """Whether the route has neither accepted nor refused the peer."""
        return self.handshake_initiated and not self.handshake_complete

    def handle_connect(self, event: Request) -> None:
        if self.conn.accept(event).status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._refuse_request()
            return
        super().handle_connect(event)
        self.scope["state"]["connection"] = self.tracked

    def _parse(self) -> None:
        """Parse the next frames of the held data and pass their messages to the route."""
        self.conn.parse_more()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_request()
            return
        if self.conn.parser_exc is not None:
            self.handle_parser_exception()
            return
        self.handle_events()
        if self.conn.excess:
            self._cut_off()

    def _refuse_request(self) -> None:
        """Refuse what is no handshake of a WebSocket. uvicorn would not count it, or wait for another request."""
        refusal = Problem("upgrade_required", "this is no handshake of a WebSocket", headers=UPGRADE)
        if isinstance(self.conn.handshake_exc, HeaderLineTooLong):
            refusal = Problem("headers_too_large", f"a header of a WebSocket may have {MAX_LINE_LENGTH} bytes")
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(self.tracked.refuse(refusal))
        self.transport.close()

    def _pause_if_held(self) -> None:
        """Stop reading while data is held. It is parsed in a later turn, once the route has taken all messages."""
        if not self.conn.held or self._cut or self.transport.is_closing():
            return
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        if self.queue.empty() or self.close_sent:
            self._parse_later()

    def _parse_later(self) -> None:
        """Call _parse_or_read() in the next turn of the event loop, or once the peer's allowance permits it."""
        if not self._waits and not self._awaits_accept:
            self._waits = True
            self.loop.call_later(0.0 if self.close_sent else self.conn.owed_s, self._parse_or_read)

    def _parse_or_read(self) -> None:
        """Parse the held data, and continue to read if none is left."""
        self._waits = False
        if self.disconnected or self._cut or self.transport.is_closing():
            return
        if self.conn.held:
            self._parse()
            self._pause_if_held()
        if not self.conn.held and (self.queue.empty() or self.close_sent):
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self.read_paused and not self._cut:
            self.read_paused = False
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """Give the route a message. After the last one, reading continues as the peer's allowance permits."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            if self.conn.held or self.conn.owed_s > 0:
                self._parse_later()
            elif self.conn.gather_s and not self._waits:
                self._waits = True
                self.loop.call_later(self.conn.gather_s, self._parse_or_read)
            else:
                self._resume_reading()
        return message

    def _cut_off(self) -> None:
        """End the connection because the peer sends too much. Further data is ignored."""
        self._cut = True
        self.tracked.note_cut()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.POLICY_VIOLATION})
        if self.close_sent or self.transport.is_closing():
            self.tracked.abort()
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.tracked.rest()
        self.transport.resume_reading()
        self.loop.call_later(CUT_S, self.tracked.abort)

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return  # a later frame of a message that was too big
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message may have {MAX_FRAGMENTS} frames")
            self.handle_parser_exception()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.tracked.abort()

    async def send(self, message: Any) -> None:
        """Called by the route. Raises ClientDisconnected, also if this side has closed the connection.

        A message may have finished frames (the key "frames"), so that frames for many readers are made only once.
        """
        if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
            raise ClientDisconnected
        if isinstance(frames := message.get("frames"), bytes):
            if not self.writable.is_set():
                await self.writable.wait()
            if self.disconnected or self.conn.state is not State.OPEN:
                raise ClientDisconnected
            self.transport.write(frames)
        else:
            await super().send(message)
            self._follow_up(message["type"])

    def _follow_up(self, sent: str) -> None:
        """Do what follows from a message of the type *sent* by the route."""
        if sent == "websocket.accept":
            for kept in (self.request, self.response):  # as long as the connection is open, 3 kB
                kept.headers.clear()
            self._pause_if_held()  # parses what the peer sent before it was accepted
        elif sent == "websocket.close":
            self._await_close_reply()
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused with an HTTP answer, which uvicorn would log as a fault

    def _await_close_reply(self) -> None:
        """Read on until the peer answers our close frame. Meanwhile the connection may be closed for others."""
        self.tracked.rest()
        if self.conn.held:
            self._parse_later()
        else:
            self._resume_reading()

    def shutdown(self) -> None:
        """Called when the server stops. The route, which stops too, closes the WebSocket after its last message."""
        if not self.handshake_complete or (self.close_sent and self.close_timer is None):
            super().shutdown()
        else:
            self.loop.call_later(LEAVE_S, self._close_for_shutdown)

    def _close_for_shutdown(self) -> None:
        """Close the WebSocket if the route has not done so, and give the peer some time to answer.

        If the connection ended at once while audio of the peer is unread, the peer's system would drop our close frame.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.GOING_AWAY})
            self.conn.send_close(CloseCode.GOING_AWAY, "shutting_down")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self._await_close_reply()
            self.close_timer = self.loop.call_later(LEAVE_S, self.transport.close)

    def send_receive_event_to_app(self) -> None:
        """Called with every whole message. uvicorn would log a traceback for text that is not UTF-8."""
        if self.curr_msg_data_type == "text":
            self._last = {}  # audio behind this message stays behind it
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA, "text must be UTF-8")
            self.handle_parser_exception()
        elif self.curr_msg_data_type == "text" or not self._join_last():
            super().send_receive_event_to_app()

    def _join_last(self) -> bool:
        """Put the newest message of audio into the queue, or add it to the one before if that is short and waits there.

        Returns False for a message that the route will not get.
        """
        if self.close_sent:
            return False
        data, last = b"".join(self.frames), self._last
        self.frames = []
        if 0 < len(data) < FREE_BYTES and not self.queue.empty() and last and len(last["bytes"]) < FREE_BYTES:
            last["bytes"] += data
            return True
        self._last = {"type": "websocket.receive", "bytes": data}
        self.queue.put_nowait(self._last)  # type: ignore[arg-type]  # as uvicorn does
        if not self.read_paused and (self.conn.gather_s or self.queue.qsize() > 1):
            self.read_paused = True
            self.transport.pause_reading()
        return True

    def keepalive_timeout(self) -> None:
        """Called if no pong came in time. The connection ends only if nothing else came although it was being read."""
        if self.read_paused or self._heard_at > self.ping_sent_at:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
