"""Writes log lines: a fixed sentence and its fields, as text for people or as JSON for programs.

Spoken words, prompts, keys, tokens and signatures are never logged. URLs are logged without their query.
"""

import asyncio
import logging
import re
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import orjson

from server.model.errors import RequestError, StorageError

log = logging.getLogger("scribewire")

MAX_PATH = 200
"""The most bytes of a logged path in a line of text, including escapes."""

MAX_PATH_JSON = 300
"""The most bytes of it in a line of JSON, whose escapes are longer: \\u001b for \\x1b."""

_AMBIGUOUS = re.compile(r"""[\s"'=\\]|^$""")

_PLAIN = re.compile(r"[!#-\[\]-~]*")  # ASCII that is the same in text and in JSON

_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "taskName", "color_message"}


def configure(*, style: str, level: str) -> None:
    """Send every log line of the process to standard error in *style* (text or json)."""
    # As the documentation of logging advises: collecting what no line shows would double the cost of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  the documented switch has no other name
    logging.basicConfig(level=level.upper(), handlers=[_Lines(_Json() if style == "json" else _Text())], force=True)
    for noisy in ("httpx", "httpcore", "uvicorn.access", "websockets", "faster_whisper"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for name in ("uvicorn.error", "python_multipart"):  # they warn of all data that is no HTTP, or no form
        logging.getLogger(name).setLevel(logging.ERROR)
    # It warns of each attempt of each connection; NotificationListener logs once that the database is away.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def log_request(level: int, fields: Mapping[str, object]) -> None:
    """Write the line of an answered request. The caller has checked that *level* is logged.

    Most lines are of this kind, and a logging record would cost several times as much as the line. So a record is made
    only if configure() was not called, or if there are other handlers.
    """
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(lines := handlers[0], _Lines):
        lines.write_line(level, "request", fields)
    else:
        log.log(level, "request", extra=fields)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN and value is not None}


def _cause(record: logging.LogRecord) -> str | None:
    """The record's error in one sentence, if it means that the storage is away, busy or full; else None.

    Such an error is logged without its trace, because tasks that try again each second would fill the log.
    """
    error = record.exc_info[1] if record.exc_info else None
    return str(error) if isinstance(error, StorageError) and isinstance(error, RequestError) else None


class _Style(logging.Formatter):
    """The format of a line."""

    @abstractmethod
    def line(self, at_s: float, level: str, message: str, fields: Mapping[str, object]) -> str:
        """A line with the time *at_s* (s since 1970 UTC) and those of *fields* that are not None."""


class _Lines(logging.StreamHandler[Any]):
    """Writes lines to standard error, in order.

    The lines of all requests that are answered in one turn of the event loop are written together.
    """

    def __init__(self, style: _Style) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(style)
        self._style = style
        self._waiting: list[str] = []

    def write_line(self, level: int, message: str, fields: Mapping[str, object]) -> None:
        """Write a line with the present time. Call it only in the event loop's thread."""
        line = self._style.line(time.time(), logging.getLevelName(level), message, fields)
        self.acquire()
        try:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self.flush)
            self._waiting.append(line)
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        self._write_waiting()
        super().emit(record)

    def flush(self) -> None:
        self._write_waiting()
        super().flush()

    def _write_waiting(self) -> None:
        self.acquire()
        try:
            if self._waiting:
                self.stream.write(self.terminator.join([*self._waiting, ""]))
                self._waiting.clear()
        finally:
            self.release()


class _Text(_Style):
    def line(self, at_s: float, level: str, message: str, fields: Mapping[str, object]) -> str:
        at = datetime.fromtimestamp(at_s, UTC).time().isoformat("milliseconds")
        text = " ".join([message, *(f"{name}={_value(value)}" for name, value in fields.items() if value is not None)])
        return printable(f"{at} {level.lower():7} {text}".rstrip())

    def format(self, record: logging.LogRecord) -> str:
        cause = _cause(record)
        text = record.getMessage() if cause is None else f"{record.getMessage()}: {cause}"
        line = self.line(record.created, record.levelname, text, _fields(record))
        if not record.exc_info or cause is not None:
            return line
        # Indented, so that no text inside an exception looks like a line of the log.
        return "\n".join(
            [line, *("  " + printable(part) for part in self.formatException(record.exc_info).splitlines())]
        )


def _value(value: object) -> object:
    """*value*, in quotes if it would otherwise look like several fields."""
    if not isinstance(value, str) or not _AMBIGUOUS.search(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_for_log(path: str) -> str:
    """The beginning of *path* that takes at most MAX_PATH bytes of a line of text."""
    if _PLAIN.fullmatch(path):
        return path[:MAX_PATH]
    ends = accumulate(len(printable(char).encode()) + (char in '"\\') for char in path[:MAX_PATH])
    return path[: sum(end <= MAX_PATH for end in ends)]


def bytes_in_line(path: str) -> int:
    """The most bytes that *path*, which path_for_log() has cut, takes in a line of text or JSON."""
    return len(path) if _PLAIN.fullmatch(path) else MAX_PATH_JSON


def printable(text: str) -> str:
    """*text* with escapes in place of line breaks, terminal codes and other unprintable characters.

    So clients, whose text is logged, cannot write log lines of their own.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _json_escape(char: str) -> str:
    """*char*, or JSON's escape for it if it is not printable: U+009B is a terminal's code, U+2028 breaks lines."""
    if char.isprintable():
        return char
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class _Json(_Style):
    def line(self, at_s: float, level: str, message: str, fields: Mapping[str, object]) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
            "level": level.lower(),
            "logger": log.name,
            "message": message,
        }
        line |= {name: value for name, value in fields.items() if value is not None}
        text = orjson.dumps(line, default=str).decode()
        return text if text.isprintable() else "".join(map(_json_escape, text))

    def format(self, record: logging.LogRecord) -> str:
        fields = {"logger": record.name, **_fields(record)}
        if (cause := _cause(record)) is not None:
            fields["error"] = cause
        elif record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname, record.getMessage(), fields)
