"""Estimates as a client reads them, for tests."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

from estimator import Estimator, parse_request
from tests.estimator.pricing import NOON

PROMPT_2000 = "a" + " a" * 1999  # exactly 2,000 o200k tokens


def ask(estimator: Estimator, now: datetime = NOON, **members: object) -> dict[str, Any]:
    """Return the answer as a client reads it."""
    request = parse_request({"prompt": "Hello, world!", **members})
    return orjson.loads(orjson.dumps(estimator.estimate(request, now=now, estimate_id="est_1")))


def row_of(estimator: Estimator, model: str, **members: object) -> dict[str, Any]:
    """Return the row of the only model that is asked about."""
    (row,) = ask(estimator, models=[model], **members)["models"]
    return row


def codes(notes: list[dict[str, str]]) -> list[str]:
    return [note["code"] for note in notes]


def usd(money: dict[str, str] | str, bound: str = "expected") -> Decimal:
    return Decimal(money if isinstance(money, str) else money[bound])
