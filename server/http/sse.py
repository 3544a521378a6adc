"""Formats Server-Sent Events as the WHATWG standard describes, and parses Last-Event-ID."""

import re

from server.model.errors import Refused

MEDIA_TYPE = "text/event-stream"
STREAM_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "X-Accel-Buffering": "no",
}
"""The headers of every stream. The last one keeps proxies from buffering."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment that keeps proxies from closing the connection. Clients ignore it."""

_NUMBER = re.compile(r"[0-9]{1,18}")


def retry(ms: int) -> bytes:
    """The line that makes clients reconnect *ms* after a connection broke."""
    return b"retry: %d\n\n" % ms


def event(name: str | None, data: bytes, *, seq: int | None = None) -> bytes:
    """One event with UTF-8 *data*. Without *seq* the client's last event id stays. *name* None means "message".

    The client gets every line break in the data as a line feed.
    """
    lines = [] if seq is None else [b"id: %d" % seq]
    if name is not None:
        lines.append(b"event: " + name.encode())
    lines += [b"data: " + line for line in re.split(rb"\r\n|\r|\n", data)]
    return b"\n".join(lines) + b"\n\n"


def last_event_id(header: str | None, query: str | None = None) -> int:
    """Parse the number of the last event that the client has; 0 if it has none.

    *header* is preferred to *query*, because a reconnecting EventSource repeats its address and adds the header. Raises
    Refused invalid_last_event_id if it is no number. The caller checks whether the stream has such an event.
    """
    text = (header or query or "").strip()
    if not text:
        return 0
    if not _NUMBER.fullmatch(text):
        raise Refused(
            "invalid_last_event_id", "Last-Event-ID must be the id of an event of this stream, a decimal number"
        )
    return int(text)
