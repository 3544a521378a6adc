"""Fuzzing the parsers in this process, which is a hundred times faster than through a socket."""

import random
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipeline.errors import AudioTooLong
from pipeline.ingest.containers import Probe
from pipeline.ingest.crossing import HEAD, Done, Failed, MalformedMessage, Message, Opened, length_of, pack, unpack
from scripts.fuzzing.inputs import NASTY_NUMBERS, NASTY_TEXTS, mutate, seeds
from scripts.fuzzing.target import Finding, Target
from server.accounts.addresses import address_key, client_address
from server.accounts.limits import Limits
from server.accounts.plans import BUILT_IN
from server.http.bodies import _Form, json_object
from server.http.headers import byte_range, clean_filename, idempotency_key, none_match, preference
from server.http.problems import Problem
from server.http.sse import last_event_id
from server.model.errors import BadLimits, Refused, RequestError

SIZE = 1000
VALID = (
    b"bytes=0-99", b"bytes=-5", b"bytes=7-", b'respond-async, wait=10; foo="bar"', b'"8e03978e-40d5-43dd-bc93"',
    b'W/"abc", "def"', b"203.0.113.7, [2001:db8::1]:443, unknown", b"42", b"C:\\speech\\a.wav",
)  # fmt: skip


def _range(text: str) -> None:
    found = byte_range(text, SIZE)
    if found is not None and not 0 <= found.start < found.stop <= found.size == SIZE:
        raise Finding(f"a range outside the content: {found}")


def _filename(text: str) -> None:
    name = clean_filename(text)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"} & {unicodedata.category(letter) for letter in name or ""}
    if name is not None and (hidden or "/" in name or len(name.encode()) > SIZE):
        raise Finding(f"not clean: {name!r}")


PARSERS: Mapping[str, Callable[[str], Any]] = {
    "range": _range,
    "prefer": lambda text: preference([text, text]),
    "idempotency": idempotency_key,
    "none-match": lambda text: none_match([text], '"abc"'),
    "forwarded": lambda text: address_key(client_address("127.0.0.1", [text], ())),
    "peer": lambda text: address_key(client_address(text, [], ())),
    "last-event": last_event_id,
    "filename": _filename,
}


def _header(given: tuple[str, bytes]) -> None:
    name, value = given
    try:
        PARSERS[name](value.decode("latin-1"))
    except (RequestError, BadLimits):
        return


def _any_bytes(seed: int) -> bytes:
    chance = random.Random(seed)
    return mutate(chance.choice((*VALID, *NASTY_TEXTS, *NASTY_NUMBERS)), chance)


def _limits(seed: int) -> None:
    text = mutate(BUILT_IN.read_bytes(), random.Random(seed)).decode("utf-8", "replace")
    try:
        Limits.from_toml(text)
    except BadLimits:
        return


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nhello\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n'
    b"--b--\r\n"
)


def _form(seed: int) -> None:
    """Check that a body gives the same fields however it is cut into chunks."""
    chance = random.Random(seed)
    body, seen = mutate(FORM, chance), []
    for _ in range(2):
        form = _Form(b"b")
        try:
            rest = body
            while rest:
                size = chance.choice((1, 7, len(rest)))
                form.feed(rest[:size])
                rest = rest[size:]
            form.close()
            seen.append((form.fields, form.file, b"".join(form.take_bytes())))
        except (Problem, Refused) as error:
            seen.append(type(error))
    if seen[0] != seen[1]:
        raise Finding(f"two chunkings of {body!r} differ: {seen}")


def _json(seed: int) -> None:
    chance = random.Random(seed)
    try:
        json_object(mutate(b'{"url": "https://example.org/a.mp3", "wait": 3, "metadata": {"a": "b"}}', chance))
    except Problem:
        return


MESSAGES: tuple[Message, ...] = (
    Opened(Probe("wav", "pcm_s16le", 8000, 1, 1.5, duration_stated=True)),
    Done(("audio_truncated",)),
    Failed(AudioTooLong("too long", limit_s=1.0, actual_s=2.0)),
    np.zeros(40, np.float32),
)


def _message(seed: int) -> None:
    """Check that any bytes of a decoder are a message or raise MalformedMessage."""
    chance = random.Random(seed)
    data = mutate(pack(chance.choice(MESSAGES)), chance)
    if len(data) < HEAD.size:
        return
    try:
        kind, _ = length_of(data[: HEAD.size])
        unpack(kind, data[HEAD.size :])
    except MalformedMessage:
        return


def targets() -> list[Target]:
    values = seeds.map(_any_bytes) | st.binary(max_size=60)
    return [
        Target("header-parsers", st.tuples(st.sampled_from(sorted(PARSERS)), values), _header, 400),
        Target("limits-file", seeds, _limits, 40),
        Target("form-parser", seeds, _form, 150),
        Target("json-parser", seeds, _json, 200),
        Target("decoder-messages", seeds, _message, 200),
    ]
