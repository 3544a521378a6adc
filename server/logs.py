"""Log lines: a fixed sentence and its fields, as text for people or as JSON for programs.

Spoken words, prompts, keys, tokens and signatures are never logged. URLs are logged without their query.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from server.model.errors import RequestError, StorageError

log = logging.getLogger("scribewire")

_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "taskName", "color_message"}


def configure(*, style: str, level: str) -> None:
    """Send every log line of the process to standard error in *style* (text or json)."""
    # As the documentation of logging advises, nothing is collected that no line shows: it would double their cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  the documented switch has no other name
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "uvicorn.access", "uvicorn.error", "websockets", "faster_whisper"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # It warns of every attempt of every connection; that the database is away is said once, by who listens to it.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN and value is not None}


def _cause(record: logging.LogRecord) -> str | None:
    """The whole of the record's error in a sentence, if it is storage that is away, busy or full.

    A service that tries again each second would fill the log with how that came about.
    """
    error = record.exc_info[1] if record.exc_info else None
    return str(error) if isinstance(error, StorageError) and isinstance(error, RequestError) else None


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).time().isoformat("milliseconds")
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        cause = _cause(record)
        told = record.getMessage() if cause is None else f"{record.getMessage()}: {cause}"
        line = printable(f"{at} {record.levelname.lower():7} {told} {fields}".rstrip())
        if not record.exc_info or cause is not None:
            return line
        # Indented, so that no text inside an exception can pass for a line of the log.
        return "\n".join(
            [line, *("  " + printable(part) for part in self.formatException(record.exc_info).splitlines())]
        )


def printable(text: str) -> str:
    """*text* with escapes in place of line breaks, terminal codes and other characters that are not printed.

    Clients choose parts of what is logged, and must not be able to write a line of their own.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
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
        return orjson.dumps(line, default=str).decode()
