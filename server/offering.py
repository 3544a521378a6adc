"""The model's offer in a cluster: nodes with a model publish it, nodes without one read it."""

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from pipeline.translation.translator import TranslatorUnavailable
from server.config import Config
from server.engines import ServedModels, sandbox_offer, with_aliases
from server.logs import log
from server.model.errors import StorageError
from server.model.offers import Offer
from server.storage.ports import Offers
from server.storage.sql.storage import Storage
from server.storage.waiting import patiently
from server.translation.remote import ChatTranslator, LibreTranslator
from server.waiting import set_within

FIRST_S = 0.5  # between two reads while no offer is published
AGAIN_S = 30.0  # between two reads later, because a node may start with another model


async def publish_offer(engines: Mapping[str, ServedModels], storage: Storage) -> None:
    """Publish this node's offer for nodes without a model. Does nothing if there are no other nodes."""
    if storage.offers is not None:
        await storage.offers.publish(engines["production"].offer)


async def learn_targets(
    translator: ChatTranslator | LibreTranslator, offers: MutableMapping[str, Offer], closing: asyncio.Event
) -> None:
    """Ask the operator's translator for its languages until it says them. Until then any may be ordered."""
    while True:
        try:
            targets = tuple(await translator.targets())
        except TranslatorUnavailable as unavailable:
            log.warning("the translator cannot be asked for its languages: %s", unavailable)
            if await set_within(closing, AGAIN_S):
                return
        else:
            offers["production"] = replace(offers["production"], translates_to=targets)
            await closing.wait()
            return


class OfferWatch:
    """The offers of each environment on a node without a model. run() keeps them up to date."""

    def __init__(self, offers: Offers, config: Config) -> None:
        self._published = offers
        self._config = config
        self.offers: dict[str, Offer] = {"sandbox": with_aliases(sandbox_offer(), config)}

    async def wait(self) -> None:
        """Wait until a node with a model has published its offer."""
        if not await patiently(self._read):
            log.warning("waiting for a node with a model: one with the role live or worker")
            while not await patiently(self._read):  # noqa: ASYNC110  another process sets it
                await asyncio.sleep(FIRST_S)

    async def run(self, closing: asyncio.Event) -> None:
        """Read the published offer every AGAIN_S seconds, until *closing* is set."""
        while not await set_within(closing, AGAIN_S):
            try:
                await self._read()
            except StorageError as error:  # the next read may succeed, and the offer hardly ever changes
                log.warning("what the model offers could not be looked up: %s", error)

    async def _read(self) -> bool:
        """Read the published offer. Returns whether there is one."""
        offer = await self._published.last()
        if offer is not None:
            self.offers["production"] = with_aliases(offer, self._config)
        return offer is not None
