"""Converts rows of the job table to values and back. Pure."""

from collections.abc import Mapping
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

# Decoders ignore members that they do not know: a newer node may have stored them.
_ORDER, _SOURCE, _ERROR, _QUOTAS = Decoder(Order), Decoder(Source), Decoder(JobError), Decoder(list[Quota])


def read_row(kind: type[T], row: SqlRow) -> T:
    """Make a dataclass from the columns named like its members."""
    return convert(row, kind)


def job_of(row: SqlRow) -> Job:
    parsed = {
        "order": order_of(row["options"]),
        "source": _SOURCE.decode(row["source"]),
        "error": error_of(row["error"]),
        "warnings": orjson.loads(row["warnings"]),
        "languages": {} if row["languages"] is None else orjson.loads(row["languages"]),
        "speakers": None if row["speakers"] is None else orjson.loads(row["speakers"]),
    }
    return convert({**row, **parsed}, Job)


def order_of(text: str) -> Order:
    order = _ORDER.decode(text)
    if order.callback is None or "dialect" in order.callback:
        return order
    return replace(order, callback={"dialect": FIRST_DIALECT, **order.callback})


def error_of(text: str | None) -> JobError | None:
    return None if text is None else _ERROR.decode(text)


def quotas_of(text: str) -> list[Quota]:
    return _QUOTAS.decode(text)


def text_of(value: object) -> str:
    """A dataclass, list or dict as JSON text, which the database's JSON functions can read."""
    return orjson.dumps(value).decode()
