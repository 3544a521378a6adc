"""Fuzzing live sessions: messages in any order, broken frames, and writers that go and come back."""

import json
import random
import socket
import time
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from scripts.fuzzing.containers import FILES, change_file
from scripts.fuzzing.inputs import NASTY_NUMBERS, NASTY_TEXTS, json_values, mutate, seeds
from scripts.fuzzing.serving import HANG_S, SERVER_ERROR, Fuzzed, wait_until
from scripts.fuzzing.target import Finding, Target

OVER = frozenset({"completed", "failed", "canceled", "expired"})
BYTES_PER_S = 32_000
TAKEOVER_S = 15  # after which a writer whose connection broke has surely lost its seat
FAULT = 1011
CLOSINGS = frozenset(
    {1000, 1001, 1002, 1007, 1008, 1009, 1013, 4400, 4401, 4403, 4404, 4408, 4409, 4410, 4413, 4415, 4429}
)
"""The codes with which the server may close; server/api.md says what they mean."""

Step = tuple[Any, ...]


class Sessions:
    """Checks that hold one live session each."""

    def __init__(self, server: Fuzzed) -> None:
        self._server = server

    def messages(self, given: Any) -> None:
        options, steps = given
        job = self._start(options)
        writers: list[ClientConnection] = []
        try:
            for step in steps:
                self._step(job, writers, step)
            for writer in writers:
                check_closing(drain(writer))
        finally:
            for writer in writers:
                writer.close()
        self._end(job)
        self._server.check_log()

    def frames(self, seed: int) -> None:
        """Send bytes that are no frames, after a correct handshake."""
        chance = random.Random(seed)
        job = self._start({})
        valid = b"".join(frame(chance.choice((1, 2, 8, 9, 10)), chance.randbytes(20)) for _ in range(4))
        with socket.create_connection(self._server.address, HANG_S) as connection:
            connection.sendall(self._handshake(job))
            connection.recv(1)
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(mutate(valid, chance))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
        self._end(job)
        self._server.check_log()

    def resume(self, given: Any) -> None:
        """Check that a writer whose connection breaks, and that resumes where the server says, loses nothing."""
        pieces, drops = given
        audio, job, sent = bytes(2 * (sum(pieces) // 2)), self._start({}), 0
        writer = self._take_seat(job, 0, sent)
        for number, size in enumerate(pieces):
            writer.send(audio[sent : sent + size])
            sent = min(len(audio), sent + size)
            if number in drops:
                drop(writer, gently=drops[number])
                writer = self._take_seat(job, 0, sent)
                sent = writer.received_bytes  # type: ignore[attr-defined]  # set by _take_seat
        writer.send(audio[sent:])  # what was lost on the way
        writer.send('{"type": "close"}')
        check_closing(drain(writer))
        self._end(job)
        heard_s = self._server.ask("GET", f"/v1/jobs/{job}").json()["duration"] or 0
        if abs(heard_s - len(audio) / BYTES_PER_S) > 0.01:
            raise Finding(f"{len(audio)} bytes were sent, and {heard_s} s were heard")
        self._server.check_log()

    def _start(self, options: Any) -> str:
        answer = self._server.ask("POST", "/v1/live", json=options)
        if answer.status_code != 201:
            raise Finding(f"no session for {options}: {answer.text}")
        return str(answer.json()["job_id"])

    def _open(self, job: str, path: str = "audio", query: str = "") -> ClientConnection | None:
        """Open a WebSocket of the session, or return None if the server refuses it."""
        return open_socket(self._server, f"/v1/jobs/{job}/{path}{query}")

    def _step(self, job: str, writers: list[ClientConnection], step: Step) -> None:
        kind, value = step
        if kind == "open":
            path, query = value
            writer = self._open(job, path, query)
            if writer is not None:
                writers.append(writer)
        elif kind == "post":
            self._server.ask(
                "POST", f"/v1/jobs/{job}/audio", content=bytes(value), headers={"Content-Type": "audio/wav"}
            )
        elif kind == "job":
            self._server.ask("POST", f"/v1/jobs/{job}/{value}")
        elif writers:
            with suppress(ConnectionClosed):
                talk(writers[-1], kind, value)

    def _end(self, job: str) -> None:
        """End the session if nothing has. Raises Finding if it does not end."""
        self._server.ask("POST", f"/v1/jobs/{job}/finish")
        wait_until(lambda: self._over(job), lambda: f"the live session {job} does not end")

    def _over(self, job: str) -> bool:
        answer = self._server.ask("GET", f"/v1/jobs/{job}")
        return answer.status_code == 404 or answer.json()["status"] in OVER

    def _take_seat(self, job: str, expected: int, sent: int) -> ClientConnection:
        """Connect until the server gives the seat, and set what it has received on the connection."""
        until = time.monotonic() + TAKEOVER_S
        while time.monotonic() < until:
            writer = self._open(job)
            with suppress(ConnectionClosed):
                if writer is not None and (first := json.loads(writer.recv(HANG_S)))["type"] == "session.started":
                    if not expected <= first["received_bytes"] <= sent:
                        raise Finding(f"{first['received_bytes']} bytes were received of {sent} that were sent")
                    writer.received_bytes = first["received_bytes"]  # type: ignore[attr-defined]
                    return writer
            if writer is not None:
                writer.close()
            time.sleep(0.2)
        raise Finding(f"a writer that came back had no seat after {TAKEOVER_S} s")

    def _handshake(self, job: str) -> bytes:
        lines = (
            f"GET /v1/jobs/{job}/audio HTTP/1.1", "Host: fuzz", f"Authorization: Bearer {self._server.serving.key}",
            "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Version: 13", "", "",
        )  # fmt: skip
        return "\r\n".join(lines).encode()


def open_socket(server: Fuzzed, target: str) -> ClientConnection | None:
    """Open a WebSocket of the server, or return None if it refuses. Raises Finding if it answers with a 5xx."""
    host, port = server.address
    key = {"Authorization": f"Bearer {server.serving.key}"}
    address = f"ws://{host}:{port}{target}"
    try:
        return connect(address, additional_headers=key, compression=None, open_timeout=HANG_S, close_timeout=5)
    except InvalidStatus as refusal:
        if refusal.response.status_code >= SERVER_ERROR and b"queue_full" not in refusal.response.body.lower():
            raise Finding(f"the handshake was answered with {refusal.response.status_code}") from None
        return None


def talk(writer: ClientConnection, kind: str, value: Any) -> None:
    """Send one message."""
    match kind:
        case "audio":
            writer.send(bytes(value))
        case "container":
            writer.send(change_file(*value))
        case "text":
            writer.send(value.decode("utf-8", "replace"))
        case "control":
            writer.send(json.dumps({"type": value}))
        case "json":
            writer.send(json.dumps(value))
        case "ping":
            writer.ping(bytes(value % 126))
        case "pause":
            time.sleep(value / 1000)
        case "drop":
            drop(writer, gently=value)


def drop(writer: ClientConnection, *, gently: bool) -> None:
    """Close as a client does, or break the connection as a lost network does."""
    if not gently:
        with suppress(OSError):
            writer.socket.shutdown(socket.SHUT_RDWR)
    writer.close()


def receive_all(writer: ClientConnection) -> tuple[list[Any], int | None]:
    """Return what has come until the server closes, with its closing code, or is silent for a moment, with None."""
    messages = []
    try:
        while True:
            messages.append(json.loads(writer.recv(0.2)))
    except TimeoutError:
        return messages, None
    except ConnectionClosed as closed:
        return messages, closed.rcvd.code if closed.rcvd is not None else None


def drain(writer: ClientConnection) -> int | None:
    """Read what has come, and return the closing code of the server."""
    return receive_all(writer)[1]


def check_closing(code: int | None) -> None:
    if code is not None and code not in CLOSINGS:
        raise Finding(f"the server closed with {code}" + ": a fault of its own" * (code == FAULT))


def frame(kind: int, payload: bytes) -> bytes:
    """Return a masked frame of a client (RFC 6455, 5.2), whose mask changes nothing."""
    return bytes((0x80 | kind, 0x80 | len(payload))) + bytes(4) + payload


def steps() -> "st.SearchStrategy[list[Step]]":
    texts = st.sampled_from((*NASTY_TEXTS, *NASTY_NUMBERS, b'{"type": 1}', b'{"type": "close"'))
    places = st.sampled_from(("0", "1", "-1", "99999", "9" * 30, "x", "%00", ""))
    queries = st.just("") | places.map(lambda text: f"?last_event_id={text}") | st.just("?token=st_none")
    opening = st.tuples(st.just("open"), st.tuples(st.sampled_from(("audio", "audio", "stream")), queries))
    step = st.one_of(
        opening,
        st.tuples(
            st.just("audio"), st.sampled_from((0, 1, 2, 999, 3200, 3201, 960_000, 1_048_576, 1_048_577, 5_000_000))
        ),
        st.tuples(st.just("container"), st.tuples(st.integers(0, FILES - 1), seeds)),
        st.tuples(st.just("text"), texts),
        st.tuples(st.just("json"), json_values()),
        st.tuples(st.just("control"), st.sampled_from(("finalize", "keep_alive", "close", "session.started"))),
        st.tuples(st.just("ping"), st.integers(0, 200)),
        st.tuples(st.just("pause"), st.integers(0, 60)),
        st.tuples(st.just("drop"), st.booleans()),
        st.tuples(st.just("post"), st.sampled_from((0, 1, 3200, 100_000))),
        st.tuples(st.just("job"), st.sampled_from(("finish", "cancel"))),
    )
    return st.tuples(opening, st.lists(step, max_size=7)).map(lambda made: [made[0], *made[1]])


def targets(server: Fuzzed) -> list[Target]:
    sessions = Sessions(server)
    common = {
        "encoding": st.sampled_from(("pcm_s16le", "pcm_f32le", "mulaw", "alaw", "container")),
        "sample_rate": st.sampled_from((8000, 16_000, 44_100, 48_000)),
        "record": st.booleans(),
        "interim_results": st.booleans(),
    }
    mixed = st.fixed_dictionaries({}, optional={**common, "channels": st.sampled_from((1, 2))})
    separate = st.fixed_dictionaries(
        {"channels": st.just("separate")}, optional={**common, "channel_count": st.integers(2, 8)}
    )
    options = mixed | separate
    pieces = st.lists(st.integers(1, 9000), min_size=1, max_size=8)
    drops = st.dictionaries(st.integers(0, 6), st.booleans(), max_size=2)
    return [
        Target("messages", st.tuples(options, steps()), sessions.messages, 5),
        Target("frames", seeds, sessions.frames, 5),
        Target("resumed", st.tuples(pieces, drops), sessions.resume, 3),
    ]
