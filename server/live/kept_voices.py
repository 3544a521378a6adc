"""Stores what a live session hears of its speakers, so that a server that takes it over labels them as it would have.

Blobs never change, so each version is a blob of its own, and the job names the newest. One that is FULL stays, and the
next begin with the keys of all such. All are deleted when the job has ended.
"""

import asyncio
from dataclasses import replace

import orjson

from pipeline.speakers.frames import Window
from pipeline.speakers.stored import Heard, HeardByChannel, NewlyHeard, pack_heard, unpack_heard
from server.jobs.leases import HeldLease
from server.jobs.voices import voices_key
from server.logs import log
from server.model.errors import BlobsAway, DiskFull
from server.model.leases import LeaseLost
from server.storage.ports import BlobStore

FULL = 12
"""Windows in a blob, those of a minute."""


class KeptVoices:
    """What was heard of one session, which only the holder of its lease writes."""

    def __init__(self, held: HeldLease, blobs: BlobStore) -> None:
        self._held = held
        self._blobs = blobs
        self._written = 0
        self._prefix = f"{voices_key(held.job.id)}/heard-"
        named = held.lease.blob or ""
        self._newest = named if named.startswith(self._prefix) else None  # else of an earlier version
        self._full: list[str] = []
        self._recent: dict[int | None, list[Window]] = {}  # in the newest blob, unless it could not be stored

    async def read(self) -> HeardByChannel:
        """Return what was kept before, which write() goes on with. Raises BlobsAway."""
        if self._newest is None:
            return {}
        self._full, newest = await self._read(self._newest)
        self._recent = {channel: list(own.windows) for channel, own in newest.items()}
        earlier = [(await self._read(key))[1] for key in self._full]
        return {
            channel: replace(last, windows=[window for own in [*earlier, newest] for window in own[channel].windows])
            for channel, last in newest.items()
        }

    async def write(self, new: NewlyHeard) -> None:
        """Store this too. If that fails, it is stored the next time. Raises LeaseLost.

        No error of the storage may end the session: its words do not need it.
        """
        for channel, own in new.lasting.items():
            self._recent.setdefault(channel, []).extend(own)
        try:
            if sum(map(len, self._recent.values())) >= FULL:
                self._full.append(await self._store({channel: Heard(own) for channel, own in self._recent.items()}))
                self._recent = {channel: [] for channel in self._recent}
            key = await self._store(
                {
                    channel: replace(last, windows=[*self._recent[channel], *last.windows])
                    for channel, last in new.last.items()
                }
            )
            await self._name(key)
            earlier, self._newest = self._newest, key
            if earlier is not None:
                await self._blobs.delete(earlier)  # else with the others when the job has ended
        except (BlobsAway, DiskFull, OSError) as error:
            log.warning("voices cannot be kept now: %s", error, extra={"job": self._held.job.id})

    async def _store(self, heard: HeardByChannel) -> str:
        self._written += 1
        key = f"{self._prefix}{self._held.lease.epoch}-{self._written}"
        body = orjson.dumps(self._full) + b"\n" + await asyncio.to_thread(pack_heard, heard)
        async with self._blobs.create(key) as sink:
            await sink.write(body)
        return key

    async def _name(self, key: str) -> None:
        """Make the job name this blob. Raises LeaseLost."""
        try:
            await self._held.note(blob=key)
        except LeaseLost:
            await self._blobs.delete(key)
            raise

    async def _read(self, key: str) -> tuple[list[str], dict[int | None, Heard]]:
        body = b"".join([piece async for piece in self._blobs.read(key)])
        full, _, packed = body.partition(b"\n")
        return orjson.loads(full), await asyncio.to_thread(unpack_heard, packed)
