"""What strangers send in great numbers: frames, requests and pieces of requests that cost work, each in few bytes."""

import gzip
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

EMPTY_BINARY = b"\x82\x80\0\0\0\0"
EMPTY_PING = b"\x89\x80\0\0\0\0"
EMPTY_TEXT = b"\x81\x80\0\0\0\0"
FRAGMENT = b"\x00\x80\0\0\0\0"


def text_frame(text: str) -> bytes:
    """Return a masked text frame, with zeros as its mask."""
    assert len(text) < 126
    return bytes((0x81, 0x80 | len(text))) + bytes(4) + text.encode()


FRAMES: Mapping[str, bytes] = {
    "pings": EMPTY_PING,
    "empty frames": EMPTY_BINARY,
    "empty texts": EMPTY_TEXT,
    "fragments": FRAGMENT,
    "empty objects": text_frame("{}"),
    "empty appends": text_frame('{"type":"input_audio_buffer.append","audio":""}'),
    "keep-alives": text_frame('{"type":"keep_alive"}'),
    "half frames": b"\0",
    "long pings": b"\x89\xfd\0\0\0\0" + bytes(125),
    "closes": b"\x88\xfd\0\0\0\0\x03\xe8" + b"a" * 123,
    "reserved frames": b"\xf3\x80\0\0\0\0",
}
"""What is sent over an open WebSocket, again and again."""

OPENING_FRAMES: Mapping[str, bytes] = {
    "fragments": b"\x02\x80\0\0\0\0",
    "half frames": b"\x82\xff" + (1_000_000).to_bytes(8, "big") + bytes(4),
}
"""What is sent once before that."""


def head(method: str, path: str, key: str, *more: str) -> bytes:
    own = [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *own, *more, "", ""]).encode()


LENGTH, WAV = "Content-Length: 1000000", "Content-Type: audio/wav"
PACKED = gzip.compress(bytes(100_000))

BODIES: Mapping[str, tuple[tuple[str, ...], bytes]] = {
    "chunks": (("Transfer-Encoding: chunked", WAV), b"1\r\na\r\n"),
    "half bodies": ((LENGTH, WAV), b"-"),
    "parts": ((LENGTH, "Content-Type: multipart/form-data; boundary=x"), b"--x\r\n\r\n\r\n"),
    "brackets": ((LENGTH, "Content-Type: application/json"), b"["),
}
"""The headers of a request whose body never ends, and the bytes that are sent of it again and again."""

HEADERS: Mapping[str, Sequence[str]] = {
    "headers": ["a:"] * 5000,
    "some headers": ["a:"] * 80,
    "conditions": [
        "If-None-Match: " + ",".join(f'"{number}"' for number in range(1500)),
        "Prefer: " + "wait=1," * 1200,
        "Range: bytes=" + "0-," * 2000,
    ],
}
"""The headers of requests that are sent again and again."""

TARGETS: Mapping[str, str] = {
    "query fields": f"?token={'a&' * 15_000}",
    "some query fields": f"?token={'a&' * 30}",
    "escapes": "%1b" * 1200,
    "some escapes": "%1b" * 300,
}
"""What stands behind the paths of requests that are sent again and again."""


def requests(kind: str, method: str, path: str, key: str) -> tuple[bytes, bytes]:
    """Return the first bytes of a connection, and the bytes that are sent after them again and again."""
    plain = urlsplit(path).path
    if kind in BODIES:
        headers, item = BODIES[kind]
        return head("POST", plain, key, *headers), item
    match kind:
        case "half heads":
            return head(method, plain, key).removesuffix(b"\r\n") + b"X-Slow: ", b"-"
        case "packed bodies":
            packing = ["Content-Encoding: gzip", f"Content-Length: {len(PACKED)}"]
            return b"", head("POST", plain, key, *packing) + PACKED
        case "piled requests":  # what comes behind a body is parsed with it
            more = head("GET", plain, key, *HEADERS["some headers"])
            return b"", head("POST", plain, key, "Content-Length: 1") + b"-" + 14 * more
        case _:
            return b"", head(method, plain + TARGETS.get(kind, ""), key, *HEADERS.get(kind, ()))


HTTP_KINDS = (*BODIES, *HEADERS, *TARGETS, "half heads", "packed bodies", "piled requests", "requests")


def handshake(path: str, key: str) -> bytes:
    return head(
        "GET",
        path,
        key,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
