"""Server-Sent Events as the WHATWG standard writes them: events out, the resume point in."""

import re

from server.model.errors import RequestError

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment that proxies take for life and clients ignore."""

_NUMBER = re.compile(r"[0-9]{1,18}")


class InvalidLastEventId(RequestError):
    """The Last-Event-ID is none that this stream has sent. Connect without one to get everything from the start."""

    code = "invalid_last_event_id"


def retry(ms: int) -> bytes:
    """Tell the client to reconnect *ms* after a connection broke."""
    return b"retry: %d\n\n" % ms


def event(name: str | None, data: bytes, *, seq: int | None = None) -> bytes:
    """One event of UTF-8 *data*. Without *seq* it does not move the client's resume point; *name* None is "message".

    A line break in the data starts a new data line and arrives as a line feed.
    """
    lines = [] if seq is None else [b"id: %d" % seq]
    if name is not None:
        lines.append(b"event: " + name.encode())
    lines += [b"data: " + line for line in re.split(rb"\r\n|\r|\n", data)]
    return b"\n".join(lines) + b"\n\n"


def last_event_id(header: str | None, query: str | None = None) -> int:
    """After which event the client wants to go on; 0: it has none.

    The header wins over the query: a reconnecting EventSource repeats the address it was opened with and adds the
    header. Raises InvalidLastEventId for what is no number; whether the stream ever was that far is the caller's to
    judge.
    """
    text = (header or query or "").strip()
    if not text:
        return 0
    if not _NUMBER.fullmatch(text):
        raise InvalidLastEventId("Last-Event-ID must be the id of an event of this stream, a decimal number")
    return int(text)
