"""The parts of the server that live sessions use. app.py makes them once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.ingest.isolation import Isolation
from server.accounts.limits import Plans
from server.live.models import LiveModels
from server.metrics import Metrics
from server.storage.sql.storage import Storage
from server.streams.feed import Partials
from server.translation.translations import Translators


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRules:
    """How long things may take in a live session, in seconds."""

    lease_s: float = 15.0  # the longest that writers wait after the death of a server
    renew_s: float = 5.0
    look_s: float = 1.0  # how often to look for a cancel and a missing writer
    pause_s: float = 2.0  # a writer that is there without audio for this long has nothing to say: words are decided
    idle_s: float = 30.0  # without audio and keep_alive for this long, the session ends
    audioless_s: float = 600.0  # without audio for this long, the session ends, whatever else the writer sends
    margin_s: float = 3600.0  # the session ends when it is older than the plan's longest audio and this time
    writerless_s: float = 60.0  # without a writer for this long, the session ends
    seat_s: float = 1.0  # how long a new writer waits for the one before it to leave
    takeover_s: float = 10.0  # a writer that sent nothing for this long may be replaced by a new one
    ack_s: float = 1.0  # how often a writer gets an ack
    frame_s: float = 30.0  # longest audio in one message; more is not live
    stale_s: float = 5.0  # how often to look for jobs that lost their process and their writer


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What the live sessions of a process share. *closing* is set when the server stops."""

    worker: str  # the name in their leases
    storage: Storage
    partials: Partials
    translations: Mapping[str, Translators]  # by environment
    engines: Mapping[str, LiveModels]  # by environment
    isolation: Isolation
    plans: Plans
    metrics: Metrics
    closing: asyncio.Event
    takes_writers: bool = True  # False: live sessions run on other nodes
    rules: LiveRules
