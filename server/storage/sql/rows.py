"""Converts rows of the job table to values and back. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

import orjson
from msgspec import convert
from msgspec.json import Decoder

from server.model.accounts import Quota
from server.model.jobs import Job, JobError
from server.model.orders import Order, Source

T = TypeVar("T")

SqlRow: TypeAlias = Mapping[str, Any]
"""Values by the names of their columns."""

LIVE, BATCH = 0, 1  # the column `class`

JOB_COLUMNS = ", ".join("options" if member.name == "order" else member.name for member in fields(Job))
"""All that job_of() reads."""

FIRST_DIALECT = "deepgram"
"""The dialect of stored callbacks that name none: they are from a time when only one dialect had callbacks."""

UNBOUNDED = 2**62  # for SQL that needs a number where there is no limit


def read_row(kind: type[T], row: SqlRow) -> T:
    """Make a dataclass from the columns named like its members."""
    return convert(row, kind)


def job_of(row: SqlRow) -> Job:
    """The job of a row. Raises ValueError, and KeyError for a column that is missing."""
    members = {name: value for name, value in row.items() if value is not None}
    for name, read in READERS.items():
        if name in members:
            members[name] = read(members[name])
    members["order"] = members.pop("options")
    return convert(members, Job)


def order_of(text: str) -> Order:
    order = _ORDER.decode(text)
    if order.callback is None or "dialect" in order.callback:
        return order
    return replace(order, callback={"dialect": FIRST_DIALECT, **order.callback})


# Decoders ignore members that they do not know: a newer node may have stored them.
_ORDER = Decoder(Order)
error_of = Decoder(JobError).decode
quotas_of = Decoder(list[Quota]).decode

READERS: Mapping[str, Callable[[str], object]] = {
    "options": order_of,
    "source": Decoder(Source).decode,
    "error": error_of,
    "warnings": Decoder(tuple[Mapping[str, str], ...]).decode,
    "languages": Decoder(dict[str, float]).decode,
    "speakers": Decoder(dict[str, float]).decode,
}
"""The columns whose values are stored as JSON, and what reads them."""


def text_of(value: object) -> str:
    """A dataclass, list or dict as JSON text, which the database's JSON functions can read."""
    return orjson.dumps(value).decode()
