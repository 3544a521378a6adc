"""Unloads models that nobody uses."""

import asyncio
import logging

from pipeline.recognition.model_set import ModelSet
from server.waiting import set_within

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""The seconds between two looks at the models."""


async def unload_idle(models: ModelSet, idle_s: float, closing: asyncio.Event) -> None:
    """Unload each model that nobody used for *idle_s* seconds, until *closing* is set; with 0 none."""
    while not await set_within(closing, LOOK_S):
        for name in models.unload_idle(idle_s) if idle_s else ():
            log.info("unloaded a model that nobody uses", extra={"model": name})
