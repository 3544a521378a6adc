"""Stores what a live session's speakers sound like, so that a server that takes it over gives them the same labels.

It is one small blob, without audio. Blobs never change, so each version is a blob of its own, whose key is the job's
`blob`. The version before it is deleted, and the last one when the job has ended.
"""

from pipeline.audio import RATE
from pipeline.speakers.state import SpeakerState, read_state
from server.jobs.leases import HeldLease
from server.jobs.voices import voices_key
from server.logs import log
from server.model.errors import BlobsAway, DiskFull
from server.model.leases import LeaseLost
from server.storage.ports import BlobStore

REFRESHED = 10 * RATE
"""The audio after which voices are stored again. A new label is stored at once."""


class SpeakerStore:
    """The stored voices of one session, which only the holder of its lease writes."""

    def __init__(self, held: HeldLease, blobs: BlobStore) -> None:
        self._held = held
        self._blobs = blobs
        self._prefix = f"{voices_key(held.job.id)}/labels-"
        named = held.job.blob or ""
        self._newest = named if named.startswith(self._prefix) else None
        self._written = 0
        self._labels: set[str] = set()  # that are stored
        self._position = 0  # of the last attempt to store
        self._failing = False

    async def read(self) -> SpeakerState:
        """Return what was stored last, nothing if nothing was. Raises BlobsAway."""
        if self._newest is None:
            return SpeakerState()
        state = read_state(b"".join([piece async for piece in self._blobs.read(self._newest)]))
        self._labels = state.labels()
        return state

    async def write(self, state: SpeakerState, position: int) -> None:
        """Store the newest state if it has a new label, or if *position* is REFRESHED after the last one.

        Raises LeaseLost. No error of the storage may end the session, whose words do not need it: the next call tries
        again.
        """
        labels = state.labels()
        if labels <= self._labels and (not labels or position < self._position + REFRESHED):
            return
        try:
            await self._write(state)
        except (BlobsAway, DiskFull, OSError) as error:
            if not self._failing:
                log.warning("speakers cannot be stored now: %s", error, extra={"job": self._held.job.id})
            self._failing = True
        else:
            self._failing = False
            self._labels, self._position = labels, position

    async def _write(self, state: SpeakerState) -> None:
        before = self._newest
        self._written += 1
        key = f"{self._prefix}{self._held.lease.epoch}-{self._written}"
        async with self._blobs.create(key, leave_reserve=True) as sink:
            await sink.write(state.to_bytes())
        try:
            await self._held.note(blob=key)
        except LeaseLost:
            await self._blobs.delete(key)
            raise
        self._newest = key
        if before is not None:
            await self._blobs.delete(before)  # if this fails, it is deleted with the others when the job has ended
