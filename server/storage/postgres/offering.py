"""The Offers: one row, written by each node with a model as it starts."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from server.model.offers import Offer
from server.model.orders import SILENCE
from server.storage.postgres.database import PostgresDatabase
from server.storage.sql.database import Transaction

ENVIRONMENT = "production"  # the sandbox offers the same on every node


class PostgresOffers:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def tell(self, offer: Offer) -> None:
        text = orjson.dumps(asdict(offer) | {"languages": sorted(offer.languages)}).decode()

        def tell(tx: Transaction) -> None:
            tx.run(
                "INSERT INTO offers (environment, offer) VALUES (?, ?)"
                " ON CONFLICT (environment) DO UPDATE SET offer = excluded.offer",
                (ENVIRONMENT, text),
            )

        await self._database.write(tell)

    async def last(self) -> Offer | None:
        row = await self._database.read(
            lambda tx: tx.one("SELECT offer FROM offers WHERE environment = ?", (ENVIRONMENT,))
        )
        return None if row is None else offer_of(row["offer"])


def offer_of(text: str) -> Offer:
    """The offer that tell() wrote. Members of a newer program are passed over; an older one does not translate."""
    told: Mapping[str, Any] = orjson.loads(text)
    return Offer(
        engine=told["engine"],
        model=told["model"],
        languages=frozenset(told["languages"]),
        translates=told.get("translates", False),
        speakers=told.get("speakers", False),
        endpointing=tuple(told.get("endpointing", (SILENCE,))),
        bundled=told["bundled"],
        warnings=tuple(told["warnings"]),
        aliases=tuple(told["aliases"]),
    )
