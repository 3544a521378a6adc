"""Admits the writers of a live session, one at a time, and decides how long the session waits for them.

LiveSession has one Writers. A connection holds a Seat while it writes, and its audio goes from there into the intake.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from server.live.intake import Intake
from server.live.rules import LiveRules
from server.metrics import Metrics
from server.model.errors import Refused
from server.waiting import set_within


class WritableSession(Protocol):
    """The methods of a session that its writers use. LiveSession implements them."""

    @property
    def ending(self) -> bool: ...
    def finalize(self) -> float: ...
    def finish(self, why: Refused | None = None) -> None: ...


class Seat:
    """The right to write to a session. Its methods raise Refused ingest_busy once another writer has taken it."""

    def __init__(self, session: WritableSession, writers: "Writers") -> None:
        self._session = session
        self._writers = writers
        self.lost = asyncio.Event()
        """Set when another writer takes the seat, because this one sent nothing for a long time."""

    async def write(self, data: bytes) -> bool:
        """Take the next bytes, as fast as they are recognised. Returns False if the session takes no more."""
        self._check()
        return await self._writers.write(data)

    def finalize(self) -> float:
        """See LiveSession.finalize()."""
        self.keep_alive()
        return self._session.finalize()

    def keep_alive(self) -> None:
        """Note that the writer is still connected."""
        self._check()
        self._writers.note_sign_of_life()

    @property
    def pausing(self) -> bool:
        """Whether no audio has come for LiveRules.pause_s."""
        return self._writers.pausing

    def finish(self) -> None:
        self._check()
        self._session.finish()

    def _check(self) -> None:
        if self.lost.is_set():
            raise Refused("ingest_busy", "another writer has taken over")


class Writers:
    """The writers of one session, one after the other."""

    def __init__(
        self, session: WritableSession, intake: Intake, rules: LiveRules, metrics: Metrics, *, max_bytes: int
    ) -> None:
        """The session ends once it has *max_bytes* of audio."""
        self._session = session
        self._intake = intake
        self._max_bytes = max_bytes
        self._rules = rules
        self._metrics = metrics
        self._seat: Seat | None = None
        self._vacant = asyncio.Event()
        self._taking = False
        self._sign_of_life = self._audio_at = time.monotonic()

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[Seat]:
        """The right to write to the session while the block lasts. Raises Refused ingest_finished, ingest_busy."""
        await self._vacate_seat()
        seat = self._seat = Seat(self._session, self)
        self._vacant.clear()
        self.note_sign_of_life()
        try:
            yield seat
        finally:
            if self._seat is seat:
                self._seat = None
                self._vacant.set()
                self.note_sign_of_life()

    async def _vacate_seat(self) -> None:
        """Wait until the present writer leaves, and take its seat if its connection is probably dead."""
        if self._seat is not None:  # it may be the same writer, whose broken connection is still being read
            await set_within(self._vacant, self._rules.seat_s)
        if self._session.ending:
            raise finished_refusal()
        if self._seat is not None:
            if not self.gone:
                raise Refused("ingest_busy", "another writer is connected to this session")
            self._seat.lost.set()
            self._metrics.live_takeovers.inc()

    async def write(self, data: bytes) -> bool:
        """See Seat.write(). While a writer waits here, it does not count as silent."""
        if self._session.ending:
            return False
        self._taking = True
        try:
            await self._intake.write(data)
        finally:
            self._taking = False
            self.note_sign_of_life()
            if data:
                self._audio_at = self._sign_of_life
        if self._intake.received_bytes > self._max_bytes:
            self._session.finish(Refused("payload_too_large", f"the plan takes {self._max_bytes} bytes"))
        return not self._session.ending

    def note_sign_of_life(self) -> None:
        """Begin to count the writer's silence now."""
        self._sign_of_life = time.monotonic()

    @property
    def pausing(self) -> bool:
        """See Seat.pausing. Audio that waits for recognition has come."""
        return not self._taking and time.monotonic() - self._audio_at >= self._rules.pause_s

    @property
    def gone(self) -> bool:
        """Whether there is no writer, or one whose connection is probably dead."""
        return self._seat is None or (not self._taking and self._silent_s >= self._rules.takeover_s)

    @property
    def patience_s(self) -> float:
        """How much longer the session waits for its writer: for ever while audio waits for recognition."""
        if self._taking:
            return math.inf
        return (self._rules.writerless_s if self._seat is None else self._rules.idle_s) - self._silent_s

    @property
    def overdue(self) -> Refused | None:
        """Why the session must end, if it has waited for too long."""
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
