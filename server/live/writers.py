"""The writers of a live session: one at a time. Also decides how long the session waits for a sign of life.

session.py has one Writers. A connection holds a Seat while it writes.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from server.live.rules import LiveRules
from server.metrics import Metrics
from server.model.errors import Refused
from server.waiting import set_within


class WritableSession(Protocol):
    """The methods of a session that its writers use. LiveSession implements them."""

    @property
    def ending(self) -> bool: ...
    async def take(self, data: bytes) -> bool: ...
    def finalize(self) -> float: ...
    def keep_alive(self) -> None: ...
    def end(self) -> None: ...


class Seat:
    """A writer's place at a session. Its methods raise Refused ingest_busy once another writer has taken it."""

    def __init__(self, session: WritableSession) -> None:
        self._session = session
        self.lost = asyncio.Event()
        """Set when another writer took this seat, after a long silence of this one."""

    async def take(self, data: bytes) -> bool:
        return await self._ours().take(data)

    def finalize(self) -> float:
        return self._ours().finalize()

    def keep_alive(self) -> None:
        self._ours().keep_alive()

    def end(self) -> None:
        self._ours().end()

    def _ours(self) -> WritableSession:
        if self.lost.is_set():
            raise Refused("ingest_busy", "another writer has taken over")
        return self._session


class Writers:
    """The writers of one session, one after the other."""

    def __init__(self, rules: LiveRules, metrics: Metrics) -> None:
        self._rules = rules
        self._metrics = metrics
        self._seat: Seat | None = None
        self._vacant = asyncio.Event()
        self._taking = False
        self._sign_of_life = self._audio_at = time.monotonic()

    @asynccontextmanager
    async def seat(self, session: WritableSession) -> AsyncIterator[Seat]:
        """The right to write to *session* while the block lasts. Raises Refused ingest_finished, ingest_busy."""
        if self._seat is not None:  # it may be the same writer, whose broken connection is still being read
            await set_within(self._vacant, self._rules.seat_s)
        if session.ending:
            raise finished_refusal()
        if self._seat is not None:
            if not self.gone:
                raise Refused("ingest_busy", "another writer is connected to this session")
            self._seat.lost.set()
            self._metrics.live_takeovers.inc()
        seat = self._seat = Seat(session)
        self._vacant.clear()
        self.keep_alive()
        try:
            yield seat
        finally:
            if self._seat is seat:
                self._seat = None
                self._vacant.set()
                self.keep_alive()

    @contextmanager
    def taking(self, data: bytes) -> Iterator[None]:
        """Mark that the block takes *data*, as fast as it is recognised. Meanwhile the writer is not silent."""
        self._taking = True
        try:
            yield
        finally:
            self._taking = False
            self.keep_alive()
            if data:
                self._audio_at = self._sign_of_life

    def keep_alive(self) -> None:
        """Note that the writer is there, or was until now."""
        self._sign_of_life = time.monotonic()

    @property
    def gone(self) -> bool:
        """Whether nobody writes here, or somebody whose connection is probably dead."""
        return self._seat is None or (not self._taking and self._silent_s >= self._rules.takeover_s)

    @property
    def patience_s(self) -> float:
        """How much longer the session waits for a sign of life. Audio that waits for recognition is one."""
        if self._taking:
            return math.inf
        return (self._rules.writerless_s if self._seat is None else self._rules.idle_s) - self._silent_s

    @property
    def overdue(self) -> Refused | None:
        """Why the session waits no longer; None while it does."""
        rules = self._rules
        if not self._taking and time.monotonic() - self._audio_at >= rules.audioless_s:
            return Refused("ingest_idle", f"no audio came for {rules.audioless_s:g} s")
        if self.patience_s > 0:
            return None
        if self._seat is None:
            return Refused("ingest_idle", f"no writer came back within {rules.writerless_s:g} s")
        return Refused("ingest_idle", f"neither audio nor keep_alive came for {rules.idle_s:g} s")

    @property
    def _silent_s(self) -> float:
        return time.monotonic() - self._sign_of_life


def finished_refusal() -> Refused:
    return Refused("ingest_finished", "the session takes no more audio")
