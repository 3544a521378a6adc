"""Writes log lines: a fixed sentence and its fields, as text for people or as JSON for programs.

Spoken words, prompts, keys, tokens and signatures are never logged. URLs are logged without their query.
"""

import logging
import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import orjson

from server.model.errors import RequestError, StorageError

log = logging.getLogger("scribewire")

MAX_PATH = 200
"""The most bytes of a logged path in a line of text, including escapes."""

_AMBIGUOUS = re.compile(r"""[\s"'=\\]|^$""")

_PLAIN = re.compile(r"[!#-\[\]-~]*")  # ASCII that is the same in text and in JSON

_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "taskName", "color_message"}


def configure(*, style: str, level: str) -> None:
    """Send every log line of the process to standard error in *style* (text or json)."""
    # As the documentation of logging advises: collecting what no line shows would double the cost of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  the documented switch has no other name
    lines = logging.StreamHandler()
    lines.setFormatter(_Json() if style == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)
    for noisy in ("httpx", "httpcore", "uvicorn.access", "websockets", "faster_whisper"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for name in ("uvicorn.error", "python_multipart"):  # they warn of all data that is no HTTP, or no form
        logging.getLogger(name).setLevel(logging.ERROR)
    # It warns of each attempt of each connection; NotificationListener logs once that the database is away.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN and value is not None}


def _cause(record: logging.LogRecord) -> str | None:
    """The record's error in one sentence, if it means that the storage is away, busy or full; else None.

    Such an error is logged without its trace, because tasks that try again each second would fill the log.
    """
    error = record.exc_info[1] if record.exc_info else None
    return str(error) if isinstance(error, StorageError) and isinstance(error, RequestError) else None


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        cause = _cause(record)
        at = datetime.fromtimestamp(record.created, UTC).time().isoformat("milliseconds")
        message = record.getMessage() if cause is None else f"{record.getMessage()}: {cause}"
        text = " ".join([message, *(f"{name}={_value(value)}" for name, value in _fields(record).items())])
        line = printable(f"{at} {record.levelname.lower():7} {text}".rstrip())
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


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if (cause := _cause(record)) is not None:
            line["error"] = cause
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = orjson.dumps(line, default=str).decode()
        return text if text.isprintable() else "".join(map(_json_escape, text))
