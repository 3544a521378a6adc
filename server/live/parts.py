"""The parts of the server that live sessions use. app.py makes them once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.ingest.isolation import Isolation
from server.accounts.plans import Plans
from server.live.models import LiveModels
from server.live.rules import LiveRules
from server.metrics import Metrics
from server.storage.sql.storage import Storage
from server.streams.partials import Partials
from server.translation.targets import Translation


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What the live sessions of a process share. *closing* is set when the server stops."""

    worker: str  # the name in their leases
    storage: Storage
    partials: Partials
    translations: Mapping[str, Translation]  # by environment
    engines: Mapping[str, LiveModels]  # by environment
    isolation: Isolation
    plans: Plans
    metrics: Metrics
    closing: asyncio.Event
    takes_writers: bool = True  # False: live sessions run on other nodes
    rules: LiveRules
