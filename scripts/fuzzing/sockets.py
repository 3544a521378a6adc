"""Fuzzes the WebSockets: messages in any order to live sessions and to both dialects, broken frames and requests.

The dialects are /v1/listen of Deepgram's and /v1/realtime of OpenAI's.
"""

import base64
import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from hypothesis import strategies as st
from websockets.exceptions import ConcurrencyError, ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from benchmarks.flood_items import EMPTY_BINARY, EMPTY_PING, EMPTY_TEXT, handshake
from benchmarks.serving import Serving
from scripts.fuzzing.containers import change_file, changed_files
from scripts.fuzzing.inputs import json_values, mutate, seeds, texts

HANG_S = 30
QUIET_S = 0.2  # without a message, after which the client goes on
OVER = ("completed", "failed", "canceled", "expired")
CLOSINGS = frozenset(
    {1000, 1001, 1002, 1007, 1008, 1009, 1013, 4400, 4401, 4403, 4404, 4408, 4409, 4410, 4413, 4415, 4429}
)
"""The codes with which the server may close; server/api.md says what they mean. 1011, a fault of its own, is none."""

Step = tuple[str, Any]


class Sockets:
    """Sends what one input says to a server, over one connection or a few."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        key = {"Authorization": f"Bearer {server.key}"}
        self._http = httpx.Client(base_url=server.base, headers=key, timeout=HANG_S)

    def session(self, given: tuple[dict[str, Any], list[Step]]) -> None:
        """Start a live session with *options*, send the steps to it, and end it."""
        options, steps = given
        path = f"/v1/jobs/{self._start(options)}"
        writers: list[ClientConnection] = []
        try:
            for kind, value in steps:
                if kind == "open":
                    writers += self._open(f"{path}/{value}")
                elif kind == "post":
                    self._http.post(f"{path}/audio", content=bytes(value))
                elif kind == "job":
                    self._http.post(f"{path}/{value}")
                elif writers:
                    with suppress(ConnectionClosed):
                        send(writers[-1], kind, value)
            for writer in writers:
                check_messages(writer)
        finally:
            for writer in writers:
                writer.close()
        self._end(path)

    def dialect(self, given: tuple[str, list[tuple[str, str]], list[Step]]) -> None:
        """Open the socket of a dialect with a query, and send the steps to it."""
        path, query, steps = given
        for writer in self._open(f"{path}?{urlencode(query)}"):
            with writer:
                with suppress(ConnectionClosed):
                    for kind, value in steps:
                        send(writer, kind, value)
                check_messages(writer)

    def frames(self, seed: int) -> None:
        """Send bytes that are no frames, after a correct handshake."""
        path = f"/v1/jobs/{self._start({})}"
        audio = b"\x82\x94\0\0\0\0" + bytes(20)
        self._exchange(
            handshake(f"{path}/audio", self._server.key), mutate(2 * (audio + EMPTY_PING + EMPTY_TEXT), seed)
        )
        self._exchange(handshake(f"{path}/audio", self._server.key), mutate(audio + EMPTY_BINARY, seed))
        self._end(path)

    def no_http(self, seed: int) -> None:
        """Send bytes that are no HTTP."""
        valid = (
            b"POST /v1/transcribe?wait=0 HTTP/1.1\r\nHost: fuzz\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
            b'53\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
            b"\r\n0\r\n\r\n"
        )
        self._exchange(mutate(valid, seed))

    def _exchange(self, *pieces: bytes) -> None:
        """Send raw bytes, end the sending side, and read until the server closes, which it must do within HANG_S."""
        address = urlsplit(self._server.base)
        with (
            suppress(ConnectionError),
            socket.create_connection((address.hostname or "", address.port or 0), HANG_S) as connection,
        ):
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            assert not answer.startswith(b"HTTP/1.1 5"), answer
            while connection.recv(65_536):
                pass

    def _start(self, options: dict[str, Any]) -> str:
        answer = self._http.post("/v1/live", json=options)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    def _open(self, path: str) -> list[ClientConnection]:
        """Open a WebSocket. Returns nothing if the server refuses it, which it may unless the fault is its own."""
        own = {"Authorization": f"Bearer {self._server.key}"}
        address = f"ws{self._server.base.removeprefix('http')}{path}"
        try:
            return [connect(address, additional_headers=own, compression=None, open_timeout=HANG_S, close_timeout=5)]
        except InvalidStatus as error:
            refusal = error.response
        assert refusal.status_code < 500, refusal.body
        return []

    def _end(self, path: str) -> None:
        """Finish the session, unless it is over already."""
        self._http.post(f"{path}/finish")
        until = time.monotonic() + HANG_S
        while (answer := self._http.get(path, params={"wait": 5})).is_success and answer.json()["status"] not in OVER:
            assert time.monotonic() < until, f"the live session does not end: {answer.text}"


def send(writer: ClientConnection, kind: str, value: Any) -> None:
    """Send one message, or do with the connection what *kind* says."""
    match kind:
        case "audio":
            writer.send(bytes(value))
        case "append":
            audio = base64.b64encode(bytes(value)).decode()
            writer.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        case "container":
            writer.send(change_file(value))
        case "text":
            writer.send(value)
        case "json":
            writer.send(json.dumps(value))
        case "ping":
            with suppress(ConcurrencyError):  # a ping with these bytes is not answered yet
                writer.ping(bytes(value))
        case "close":
            writer.close()
        case "break":  # as a lost network does
            with suppress(OSError):
                writer.socket.shutdown(socket.SHUT_RDWR)


def check_messages(writer: ClientConnection) -> None:
    """Read what comes until the server closes, or says nothing for a moment. None of it may be a fault of its own."""
    try:
        while True:
            message = json.loads(writer.recv(QUIET_S))
            assert "internal" not in str((message.get("variant"), message.get("error"))).lower(), message
    except TimeoutError:
        return
    except ConnectionClosed as closed:
        end = closed.rcvd
    assert end is None or end.code in CLOSINGS, f"the server closed with {end}"


# --- inputs ----------------------------------------------------------------------------------------------------------

ANY = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("json"), json_values()),
    st.tuples(st.just("container"), changed_files),
    st.tuples(st.just("audio"), st.sampled_from((0, 1, 2, 999, 3200, 64_001, 960_000, 1_048_576, 1_048_577))),
    st.tuples(st.just("ping"), st.integers(0, 125)),
    st.tuples(st.sampled_from(("close", "break")), st.none()),
)
"""What may come to any of the sockets."""


def _named(names: Sequence[str], members: "st.SearchStrategy[dict[str, Any]]") -> "st.SearchStrategy[Step]":
    """Return a strategy of messages of these types."""
    return st.tuples(
        st.just("json"), st.builds(lambda name, more: {**more, "type": name}, st.sampled_from(names), members)
    )


def sessions() -> "st.SearchStrategy[Any]":
    """Return a strategy for Sockets.session()."""
    options = st.fixed_dictionaries(
        {},
        optional={
            "encoding": st.sampled_from(("pcm_s16le", "pcm_f32le", "mulaw", "alaw", "container")),
            "sample_rate": st.sampled_from((8000, 16_000, 44_100, 48_000)),
            "record": st.booleans(),
            "interim_results": st.booleans(),
        },
    )
    channels = st.sampled_from(({}, {"channels": 2}, {"channels": "separate", "channel_count": 3}))
    places = st.sampled_from(("0", "-1", "99999", "9" * 30, "x", "%00", ""))
    readers = places.map(lambda text: f"stream?last_event_id={text}")
    opening = st.tuples(st.just("open"), st.sampled_from(("audio", "audio", "stream", "audio?token=st_none")) | readers)
    step = st.one_of(
        opening,
        ANY,
        _named(("finalize", "keep_alive", "close", "session.started"), st.just({})),
        st.tuples(st.just("post"), st.sampled_from((0, 1, 3200, 100_000))),
        st.tuples(st.just("job"), st.sampled_from(("finish", "cancel"))),
    )
    steps = st.tuples(opening, st.lists(step, max_size=7)).map(lambda made: [made[0], *made[1]])
    return st.tuples(st.builds(lambda one, more: {**one, **more}, options, channels), steps)


def dialects() -> "st.SearchStrategy[Any]":
    """Return a strategy for Sockets.dialect()."""
    raw = st.sampled_from(("linear16", "linear32", "mulaw", "alaw")).map(
        lambda encoding: [("encoding", encoding), ("sample_rate", "16000")]
    )
    names = st.sampled_from(
        (
            "channels",
            "multichannel",
            "language",
            "endpointing",
            "interim_results",
            "keyterm",
            "callback",
            "model",
            "tag",
        )
    )
    values = st.sampled_from(("true", "1", "8", "9", "1000", "en", "-1", "", "x" * 2000)) | st.text(max_size=9)
    more = st.lists(st.tuples(names, values), max_size=4)
    orders = _named(
        ("KeepAlive", "Finalize", "CloseStream", "Configure", "Results"), st.just({}) | st.just({"channel": 1})
    )
    listen = st.tuples(
        st.just("/v1/listen"), raw | more | st.builds(list.__add__, raw, more), st.lists(orders | ANY, max_size=7)
    )
    session = st.recursive(
        json_values(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                ("type", "audio", "input", "format", "rate", "transcription", "model", "language", "turn_detection")
            ),
            inner,
            max_size=4,
        ),
        max_leaves=6,
    )
    formats = st.sampled_from(({"type": "audio/pcmu"}, {"type": "audio/pcm", "rate": 24_000}, {"type": "audio/x"}))
    valid = formats.map(lambda form: {"type": "transcription", "audio": {"input": {"format": form}}})
    events = _named(
        ("session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear",
         "response.create", "conversation.item.delete", "transcription_session.update"),
        st.fixed_dictionaries({}, optional={"session": session | valid, "audio": json_values()}),
    )  # fmt: skip
    appended = st.tuples(st.just("append"), st.sampled_from((0, 1, 3, 4800, 96_001)))
    query = st.sampled_from(([], [("intent", "transcription")], [("model", "whisper-1")], [("intent", "x")]))
    realtime = st.tuples(st.just("/v1/realtime"), query, st.lists(events | appended | ANY, max_size=7))
    return listen | realtime


def targets(server: Serving) -> dict[str, tuple[Any, Any]]:
    """Return by name the inputs and what is done with each."""
    sockets = Sockets(server)
    return {
        "sessions": (sessions(), sockets.session),
        "dialects": (dialects(), sockets.dialect),
        "frames": (seeds, sockets.frames),
        "no HTTP": (seeds, sockets.no_http),
    }
