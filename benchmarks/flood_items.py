"""What strangers send in great numbers: frames, requests and pieces of requests that cost work, each in few bytes."""

from collections.abc import Mapping
from urllib.parse import urlsplit

EMPTY_BINARY = b"\x82\x80\0\0\0\0"
EMPTY_PING = b"\x89\x80\0\0\0\0"
EMPTY_TEXT = b"\x81\x80\0\0\0\0"
FRAGMENT = b"\x00\x80\0\0\0\0"


def text_frame(text: str) -> bytes:
    """A masked frame, with zeros as its mask."""
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


def requests(kind: str, method: str, path: str, key: str) -> tuple[bytes, bytes]:
    """The first bytes of a connection, and what is sent after them again and again."""
    plain = urlsplit(path).path
    match kind:
        case "chunks":
            return head("POST", plain, key, "Transfer-Encoding: chunked", "Content-Type: audio/wav"), b"1\r\na\r\n"
        case "half heads":
            return head(method, plain, key).removesuffix(b"\r\n") + b"X-Slow: ", b"-"
        case "half bodies":
            return head("POST", plain, key, "Content-Length: 1000000", "Content-Type: audio/wav"), b"-"
        case "headers":
            return b"", head(method, plain, key, *["a:"] * 5000)
        case "some headers":
            return b"", head(method, plain, key, *["a:"] * 80)
        case "query fields":
            return b"", head(method, f"{plain}?token={'a&' * 15_000}", key)
        case "some query fields":
            return b"", head(method, f"{plain}?token={'a&' * 30}", key)
        case "escapes":
            return b"", head(method, plain + "%1b" * 1200, key)
        case "some escapes":
            return b"", head(method, plain + "%1b" * 300, key)
        case _:
            return b"", head(method, plain, key)


HTTP_KINDS = (
    "chunks",
    "half heads",
    "half bodies",
    "headers",
    "some headers",
    "query fields",
    "some query fields",
    "escapes",
    "some escapes",
    "requests",
)


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
