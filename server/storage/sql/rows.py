"""Converting rows of the job table to values and back. Pure."""

from collections.abc import Iterable
from typing import Any, Protocol

import orjson

from pipeline.documents.cues import SubtitleShape
from server.model.accounts import Quota
from server.model.jobs import Job, JobError, State
from server.model.orders import DeepgramShape, LiveOptions, Order, Source

LIVE, BATCH = 0, 1  # the column `class`

PLAIN = (
    "id",
    "account",
    "environment",
    "created_at",
    "started_at",
    "finished_at",
    "expires_at",
    "cancel_requested_at",
    "answered_at",
    "erased_at",
    "attempt",
    "epoch",
    "progress",
    "stage",
    "duration_s",
    "language",
    "language_probability",
    "engine",
    "model",
    "text",
)
"""Columns that are members of Job under the same name."""


class Row(Protocol):
    """Values by the names of their columns."""

    def __getitem__(self, name: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


def job_of(row: Row) -> Job:
    return Job(
        state=State(row["state"]),
        order=order_of(row["options"]),
        source=Source(**orjson.loads(row["source"])),
        error=error_of(row["error"]),
        warnings=tuple(orjson.loads(row["warnings"])),
        **{name: row[name] for name in PLAIN},
    )


def order_of(text: str) -> Order:
    members: dict[str, Any] = orjson.loads(text)
    live = members.pop("live")
    subtitles = SubtitleShape(**members.pop("subtitles", {}))
    callback = members.pop("callback", None)
    members.update({name: tuple(value) for name, value in members.items() if isinstance(value, list)})
    return Order(
        **members,
        live=None if live is None else LiveOptions(**live),
        subtitles=subtitles,
        callback=None if callback is None else DeepgramShape(**callback),
    )


def error_of(text: str | None) -> JobError | None:
    return None if text is None else JobError(**orjson.loads(text))


def quotas_of(text: str) -> list[Quota]:
    return [Quota(**members) for members in orjson.loads(text)]


def text_of(value: object) -> str:
    """A dataclass, list or dict as JSON text, which the database's JSON functions can read."""
    return orjson.dumps(value).decode()
