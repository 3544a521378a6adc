"""The offer of the model for nodes of a cluster that have none: nodes with a model publish it, others read it."""

import asyncio
from collections.abc import Mapping

from server.config import Config
from server.engines import ServedEngine, sandbox_offer, with_aliases
from server.logs import log
from server.model.errors import StorageError
from server.model.offers import Offer
from server.storage.patience import patiently
from server.storage.ports import Offers, Storage
from server.waiting import set_within

FIRST_S = 0.5  # between two looks for an offer while there is none
AGAIN_S = 30.0  # between two looks for a newer one: nodes may start with another model


async def publish_offer(engines: Mapping[str, ServedEngine], storage: Storage) -> None:
    """Publish this node's offer for nodes without a model. Does nothing if there are no other nodes."""
    if storage.offers is not None:
        await storage.offers.publish(engines["production"].offer)


class OfferWatch:
    """The offers of each environment on a node without a model. run() keeps them up to date."""

    def __init__(self, offers: Offers, config: Config) -> None:
        self._published = offers
        self._config = config
        self.offers: dict[str, Offer] = {"sandbox": with_aliases(sandbox_offer(), config)}

    async def wait(self) -> None:
        """Wait until a node with a model has published its offer."""
        if not await patiently(self._look):
            log.warning("waiting for a node with a model: one with the role live or worker")
            while not await patiently(self._look):  # noqa: ASYNC110  another process sets it
                await asyncio.sleep(FIRST_S)

    async def run(self, closing: asyncio.Event) -> None:
        """Look for a newer offer now and then, until *closing* is set."""
        while not await set_within(closing, AGAIN_S):
            try:
                await self._look()
            except StorageError as error:  # the next look may succeed, and the offer hardly ever changes
                log.warning("what the model offers could not be looked up: %s", error)

    async def _look(self) -> bool:
        offer = await self._published.last()
        if offer is not None:
            self.offers["production"] = with_aliases(offer, self._config)
        return offer is not None
