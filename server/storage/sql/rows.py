"""Converts rows of the job table to values and back. Pure."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Protocol, TypeVar

import orjson

from pipeline.documents.cues import SubtitleShape
from pipeline.ingest.encodings import RawAudio
from pipeline.text.options import TextOptions
from server.model.accounts import Quota
from server.model.jobs import Job, JobError, State
from server.model.offers import Offer, OfferedModel
from server.model.orders import LiveOptions, Order, Source

T = TypeVar("T")

LIVE, BATCH = 0, 1  # the column `class`

CONVERTED = frozenset({"state", "order", "source", "error", "warnings", "languages", "speakers"})
PLAIN = tuple(member.name for member in fields(Job) if member.name not in CONVERTED)
"""Columns whose values are members of Job without conversion."""

JOB_COLUMNS = ", ".join(("state", "options", "source", "error", "warnings", "languages", "speakers", *PLAIN))
"""All that job_of() reads. SQLite finds each of them in half the time that it takes among all columns."""

FIRST_DIALECT = "deepgram"
"""The dialect of stored callbacks that name none: they are from a time when only one dialect had callbacks."""

UNBOUNDED = 2**62  # for SQL that needs a number where there is no limit

MEMBERS: dict[type, frozenset[str]] = {
    kind: frozenset(field.name for field in fields(kind))
    for kind in (Order, LiveOptions, RawAudio, Source, SubtitleShape, TextOptions, Offer, OfferedModel)
}
"""The names of the members of each kind of value that is stored as JSON."""

TUPLES: dict[type, frozenset[str]] = {
    kind: frozenset(field.name for field in fields(kind) if isinstance(field.default, tuple)) for kind in MEMBERS
}
"""The members among these that are tuples; JSON stores them as lists."""


class SqlRow(Protocol):
    """Values by the names of their columns."""

    def __getitem__(self, name: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


def read_row(kind: type[T], row: SqlRow) -> T:
    """Make a dataclass from the columns named like its members."""
    return kind(**{member.name: row[member.name] for member in fields(kind)})  # type: ignore[arg-type]  # a dataclass


def job_of(row: SqlRow) -> Job:
    return Job(
        state=State(row["state"]),
        order=order_of(row["options"]),
        source=make(Source, orjson.loads(row["source"])),
        error=error_of(row["error"]),
        warnings=tuple(orjson.loads(row["warnings"])),
        languages={} if row["languages"] is None else orjson.loads(row["languages"]),
        speakers=None if row["speakers"] is None else orjson.loads(row["speakers"]),
        **{name: row[name] for name in PLAIN},
    )


def order_of(text: str) -> Order:
    members: dict[str, Any] = orjson.loads(text)
    for name, (kind, usual, as_stored) in PARTS.items():
        if name in members:
            members[name] = usual if members[name] == as_stored else make(kind, members[name])
    if members["live"] is not None:
        members["live"] = make(LiveOptions, members["live"])
    if members.get("raw") is not None:
        members["raw"] = make(RawAudio, members["raw"])
    if members.get("callback") is not None:
        members["callback"] = {"dialect": FIRST_DIALECT, **members["callback"]}
    return make(Order, members)


def error_of(text: str | None) -> JobError | None:
    return None if text is None else JobError(**orjson.loads(text))


def quotas_of(text: str) -> list[Quota]:
    return [Quota(**members) for members in orjson.loads(text)]


def make(kind: type[T], members: dict[str, Any]) -> T:
    """Make a dataclass from its stored members. Unknown ones, which a newer node may have stored, are ignored."""
    for name in TUPLES[kind]:
        if name in members:
            members[name] = tuple(members[name])
    if not members.keys() <= MEMBERS[kind]:
        members = {name: value for name, value in members.items() if name in MEMBERS[kind]}
    return kind(**members)


def text_of(value: object) -> str:
    """A dataclass, list or dict as JSON text, which the database's JSON functions can read."""
    return orjson.dumps(value).decode()


PARTS: dict[str, tuple[type[Any], Any, Any]] = {
    name: (type(usual), usual, orjson.loads(text_of(usual)))
    for name, usual in (("subtitles", Order().subtitles), ("text", Order().text))
}
"""Parts of an order: type, default, and the default as it is stored. All orders with the default share one object."""
