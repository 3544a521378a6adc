"""Fuzzing the WebSockets for clients of other services: /v1/listen of Deepgram's, /v1/realtime of OpenAI's."""

import base64
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from scripts.fuzzing.containers import FILES
from scripts.fuzzing.inputs import NASTY_NUMBERS, NASTY_TEXTS, json_values, seeds
from scripts.fuzzing.serving import Fuzzed
from scripts.fuzzing.sockets import open_socket, receive_all, talk
from scripts.fuzzing.target import Finding, Target

LISTEN, REALTIME = "/v1/listen", "/v1/realtime"
CLOSINGS = frozenset({1000, 1001, 1002, 1007, 1008, 1009, 1011, 1013})
"""The codes with which the server may close; server/clients.md says what they mean."""

FAULTS = frozenset({"internal", "INTERNAL"})
"""The codes of errors that are the server's own."""

LISTEN_QUERY = (
    "encoding", "sample_rate", "channels", "multichannel", "language", "interim_results", "endpointing",
    "utterance_end_ms", "vad_events", "punctuate", "smart_format", "keyterm", "keywords", "callback", "model", "tag",
)  # fmt: skip
REALTIME_TYPES = (
    "session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear",
    "response.create", "conversation.item.delete", "transcription_session.update",
)  # fmt: skip
SESSION_MEMBERS = (
    "type", "audio", "input", "format", "rate", "transcription", "model", "language", "languages", "prompt", "keywords",
    "turn_detection", "silence_duration_ms", "eagerness", "threshold", "noise_reduction", "include",
)  # fmt: skip


class Dialects:
    """Checks that hold one socket each."""

    def __init__(self, server: Fuzzed) -> None:
        self._server = server

    def listen(self, given: Any) -> None:
        self._converse(LISTEN, *given)

    def realtime(self, given: Any) -> None:
        self._converse(REALTIME, *given)

    def _converse(self, path: str, query: list[tuple[str, str]], steps: list[tuple[str, Any]]) -> None:
        socket = open_socket(self._server, f"{path}?{urlencode(query)}")
        if socket is not None:
            with socket:
                with suppress(ConnectionClosed):
                    for kind, value in steps:
                        say(socket, kind, value)
                check_messages(*receive_all(socket))
        self._server.check_log()


def say(socket: ClientConnection, kind: str, value: Any) -> None:
    """Send one message."""
    if kind == "append":
        audio = base64.b64encode(bytes(value)).decode()
        talk(socket, "json", {"type": "input_audio_buffer.append", "audio": audio})
    else:
        talk(socket, kind, value)


def check_messages(messages: list[Any], code: int | None) -> None:
    """Raise Finding for an error that is the server's own, and for a closing code that clients do not know."""
    for message in messages:
        told = message.get("error") or {}
        if message.get("variant") in FAULTS or (isinstance(told, dict) and told.get("code") in FAULTS):
            raise Finding(f"the server told of a fault of its own: {message}")
    if code is not None and code not in CLOSINGS:
        raise Finding(f"the server closed with {code}")


def texts() -> "st.SearchStrategy[tuple[str, Any]]":
    """Return a strategy of messages that no client sends."""
    return st.one_of(
        st.tuples(st.just("text"), st.sampled_from((*NASTY_TEXTS, *NASTY_NUMBERS, b'{"type": 1}'))),
        st.tuples(st.just("json"), json_values()),
        st.tuples(st.just("drop"), st.booleans()),
    )


def listen_queries() -> "st.SearchStrategy[Any]":
    raw = st.fixed_dictionaries(
        {"encoding": st.sampled_from(("linear16", "linear32", "mulaw", "alaw")), "sample_rate": st.just("16000")},
        optional={
            "channels": st.sampled_from(("1", "2", "3", "8", "9")),
            "multichannel": st.sampled_from(("true", "false")),
            "interim_results": st.just("true"),
        },
    ).map(lambda members: list(members.items()))
    values = st.sampled_from(("true", "1", "2", "8", "1000", "linear16", "en", "multi", "-1", "", "x" * 2000))
    wild = st.lists(st.tuples(st.sampled_from(LISTEN_QUERY), values | st.text(max_size=9)), max_size=5)
    orders = st.sampled_from(("KeepAlive", "Finalize", "CloseStream", "Configure", "Results"))
    step = st.one_of(
        st.tuples(st.just("audio"), st.sampled_from((0, 1, 3, 3200, 64_001, 1_048_576, 1_048_577))),
        st.tuples(st.just("container"), st.tuples(st.integers(0, FILES - 1), seeds)),
        st.tuples(st.just("json"), orders.map(lambda kind: {"type": kind, "channel": 1})),
        texts(),
    )
    return st.tuples(raw | raw | wild, st.lists(step, max_size=7))


def talk_messages() -> "st.SearchStrategy[Any]":
    query = st.sampled_from(([], [("intent", "transcription")], [("model", "whisper-1")], [("intent", "x")]))
    members = st.recursive(
        json_values(),
        lambda inner: st.dictionaries(st.sampled_from(SESSION_MEMBERS), inner, max_size=4),
        max_leaves=6,
    )
    formats = st.sampled_from(({"type": "audio/pcmu"}, {"type": "audio/pcm", "rate": 24_000}, {"type": "audio/x"}))
    session = formats.map(lambda form: {"type": "transcription", "audio": {"input": {"format": form}}})
    events = st.sampled_from(REALTIME_TYPES)
    step = st.one_of(
        st.tuples(st.just("append"), st.sampled_from((0, 1, 3, 4800, 96_001))),
        st.tuples(st.just("json"), events.map(lambda kind: {"type": kind})),
        st.tuples(st.just("json"), st.tuples(events, members).map(lambda made: {"type": made[0], "session": made[1]})),
        st.tuples(st.just("json"), session.map(lambda made: {"type": "session.update", "session": made})),
        st.tuples(st.just("json"), json_values().map(lambda value: {"type": REALTIME_TYPES[1], "audio": value})),
        st.tuples(st.just("audio"), st.just(10)),
        texts(),
    )
    return st.tuples(query, st.lists(step, max_size=7))


def targets(server: Fuzzed) -> list[Target]:
    dialects = Dialects(server)
    return [
        Target("listen", listen_queries(), dialects.listen, 5),
        Target("realtime", talk_messages(), dialects.realtime, 5),
    ]
