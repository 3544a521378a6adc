"""Fuzzing HTTP: headers and queries, byte ranges of outputs, JSON bodies, multipart bodies, bytes that are no HTTP."""

import io
import json
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import soundfile
from hypothesis import strategies as st

from scripts.fuzzing.inputs import header_values, json_values, mutate, seeds
from scripts.fuzzing.serving import Fuzzed
from scripts.fuzzing.target import Finding, Target

HEADERS = (
    "Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Content-Type", "Expect", "Host",
    "Idempotency-Key", "If-None-Match", "If-Range", "Last-Event-ID", "Origin", "Prefer", "Range", "Sec-WebSocket-Key",
    "Upgrade", "X-Forwarded-For", "X-Request-Id",
)  # fmt: skip
PATHS = (
    "/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/events", "/v1/jobs/{job}/outputs/json", "/v1/jobs/{job}/outputs/srt",
    "/v1/jobs/{job}/live.vtt", "/v1/jobs/{job}/estimate", "/v1/jobs/{job}/deliveries",
    "/v1/channels", "/v1/jobs/job_none", "/v1/usage", "/v1/keys", "/v1/models",
    "/v1/estimate/models", "/v1/formats", "/openapi.json", "/readyz", "/", "/docs", "/live/{job}", "/sandbox/v1/jobs",
    "//v1/jobs", "/v1/%00", "/v1/jobs/%2e%2e%2f", "/x%0a12:00:00.000%20error%20x",
)  # fmt: skip
QUERIES = (
    "limit", "cursor", "status", "created_after", "created_before", "metadata[a]", "url_ttl", "last_event_id", "types",
    "exp", "kid", "sig", "token", "models", "agent_turns", "complexity", "final", "force", "wait",
    "max_columns", "max_lines", "max_cue_s", "columns_per_second",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "BREW")

JSON_PATHS = (
    "/v1/transcribe", "/v1/live", "/v1/keys", "/v1/tokens", "/v1/webhooks/test", "/v1/webhooks/enable",
    "/v1/webhook-secret/rotate", "/v1/estimate", "/v1/estimate/free", "/v1/channels", "/v1/auth/grant",
    "/v1/realtime/client_secrets", "/v1/listen",
)  # fmt: skip
MEMBERS = (
    "url", "webhook_url", "output_formats", "word_timestamps", "language", "prompt", "metadata", "wait", "retention",
    "encoding", "sample_rate", "channels", "record", "interim_results", "name", "environment", "expires_in", "job_id",
    "scope", "ttl", "models", "agent_turns", "complexity", "output_tokens", "sandbox_scenario", "channel",
    "channel_count", "keywords", "max_columns", "max_lines", "max_cue_s", "columns_per_second", "session",
    "expires_after", "ttl_seconds",
)  # fmt: skip
FIELDS = (*MEMBERS, "model", "response_format", "stream", "temperature", "timestamp_granularities[]", "file")


def sound(seconds: float = 0.5) -> bytes:
    """Return silence as a WAV file: the scripted engine needs no speech."""
    out = io.BytesIO()
    soundfile.write(out, np.zeros(round(8000 * seconds), np.int16), 8000, format="WAV")
    return out.getvalue()


def raw_request(method: str, target: str, headers: Sequence[tuple[str, bytes]], body: bytes = b"") -> bytes:
    """Return a request after which the server closes the connection."""
    lines = [f"{method} {target} HTTP/1.1".encode(), *(name.encode() + b": " + value for name, value in headers)]
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


class Requests:
    """Checks that send one request each."""

    def __init__(self, server: Fuzzed) -> None:
        self._server = server
        self._own = [("Host", b"fuzz"), ("Authorization", f"Bearer {server.serving.key}".encode())]

    def headers(self, given: Any) -> None:
        method, path, query, headers = given
        asked = "&".join(f"{name}={quote(value)}" for name, value in query)
        target = path.replace("{job}", self._server.job) + ("?" + asked) * bool(asked)
        if method == "DELETE" and self._server.job in path:
            method = "GET"  # the prepared job is needed again
        fuzzed = [(name, value.replace(b"\r", b"").replace(b"\n", b"")) for name, value in headers]
        self._server.exchange([raw_request(method, target, [*self._own, *fuzzed])], method=method, complete=False)
        self._server.check_log()

    def ranges(self, given: Any) -> None:
        first, last, name = given
        content = self._server.outputs[name]
        header = f"bytes={'' if first is None else first}-{'' if last is None else last}".encode()
        path = f"/v1/jobs/{self._server.job}/outputs/{name}"
        answer = self._server.exchange([raw_request("GET", path, [*self._own, ("Range", header)])])
        if answer is None:
            raise Finding("no answer to a range")
        if answer.status == 206:
            place = answer.headers["content-range"].removeprefix("bytes ").partition("/")[0].split("-")
            if answer.body != content[int(place[0]) : int(place[1]) + 1] or not answer.body:
                raise Finding(f"{header!r} gave other bytes than {answer.headers['content-range']} says")
        elif answer.status == 200 and answer.body != content:
            raise Finding(f"{header!r} gave other content")

    def json(self, given: Any) -> None:
        path, members, seed = given
        body = json.dumps(members).encode()
        if seed is not None:
            body = mutate(body, random.Random(seed))
        query = "?wait=0" if path == "/v1/transcribe" else ""
        kind = [("Content-Type", b"application/json"), ("Content-Length", str(len(body)).encode())]
        answer = self._server.exchange([raw_request("POST", path + query, [*self._own, *kind], body)], method="POST")
        self._judge(answer, path)

    def multipart(self, given: Any) -> None:
        path, parts, seed, size = given
        body = form(parts)
        if seed is not None:
            body = mutate(body, random.Random(seed))
        kind = [("Content-Type", b"multipart/form-data; boundary=b"), ("Content-Length", str(len(body)).encode())]
        head = raw_request("POST", path + "?wait=0", [*self._own, *kind])
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        self._judge(self._server.exchange([head, *pieces], method="POST"), path)

    def no_http(self, seed: int) -> None:
        chance = random.Random(seed)
        valid = raw_request(
            "POST", "/v1/transcribe", [*self._own, ("Transfer-Encoding", b"chunked")], b"5\r\nhello\r\n0\r\n\r\n"
        )
        self._server.exchange([mutate(valid, chance)], complete=False)
        self._server.check_log()

    def _judge(self, answer: Any, path: str) -> None:
        if answer is None:
            raise Finding(f"no answer from {path}")
        if answer.status >= 400 and not answer.headers["content-type"].startswith("application/"):
            raise Finding(f"{answer.status} of {path} is no problem document: {answer.body[:300]!r}")
        self._server.check_log()


def form(parts: Sequence[tuple[str, bytes, str | None]]) -> bytes:
    """Return a multipart body of (name, content, file name), with b as its boundary."""
    body = b""
    for name, content, filename in parts:
        place = f'; filename="{filename}"' * (filename is not None)
        body += f'--b\r\nContent-Disposition: form-data; name="{name}"{place}\r\n\r\n'.encode() + content + b"\r\n"
    return body + b"--b--\r\n"


def targets(server: Fuzzed) -> list[Target]:
    sent = Requests(server)
    query = st.lists(st.tuples(st.sampled_from(QUERIES), header_values), max_size=3)
    headers = st.lists(st.tuples(st.sampled_from(HEADERS), header_values), max_size=4)
    numbers = st.none() | st.integers(0, 2000) | st.integers(0, 2**70)
    members = st.dictionaries(st.sampled_from(MEMBERS) | st.text(max_size=9), json_values(), max_size=6)
    part = st.tuples(
        st.sampled_from(FIELDS),
        st.binary(max_size=40) | st.sampled_from((sound(), b"json,srt", b"true")),
        st.none() | st.just("a.wav"),
    )
    parts = st.lists(part, max_size=5) | st.just([("file", sound(), "a.wav")])
    return [
        Target(
            "headers", st.tuples(st.sampled_from(METHODS), st.sampled_from(PATHS), query, headers), sent.headers, 80
        ),
        Target("ranges", st.tuples(numbers, numbers, st.sampled_from(("json", "srt"))), sent.ranges, 40),
        Target("json", st.tuples(st.sampled_from(JSON_PATHS), members, st.none() | seeds), sent.json, 60),
        Target(
            "multipart",
            st.tuples(
                st.sampled_from(("/v1/transcribe", "/v1/audio/transcriptions")),
                parts,
                st.none() | seeds,
                st.integers(1, 5000),
            ),
            sent.multipart,
            40,
        ),
        Target("no-http", seeds, sent.no_http, 12),
    ]
