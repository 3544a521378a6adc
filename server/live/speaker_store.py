"""Stores what is known of a live session's speakers, so that a server that takes it over labels them as it would have.

Blobs never change, so each version is a blob of its own, and the job names the newest. It has the lasting windows of
the last minute and the samples that no earlier blob has. It begins with the keys of earlier blobs, those FULL of
windows, which stay, and those with earlier samples, and with the position of the first needed sample of each channel.
All are deleted when the job has ended. Its key ends with the position up to which all is stored.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import orjson

from pipeline.speakers.frames import Window
from pipeline.speakers.state import ChannelState, StateByChannel, pack_states, unpack_states
from server.jobs.leases import HeldLease
from server.jobs.voices import voices_key
from server.logs import log
from server.model.errors import BlobsAway, DiskFull
from server.model.jobs import Job
from server.model.leases import LeaseLost
from server.storage.ports import BlobStore

FULL = 12
"""Lasting windows in a blob, those of a minute."""

_Head: TypeAlias = tuple[list[str], list[str], list[int]]
"""The keys of full blobs and of those with earlier samples, and where the needed samples of each channel begin."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A blob with samples, and by channel where these end."""

    key: str
    ends: Mapping[int | None, int]


def stored_to(job: Job) -> int | None:
    """Return the position up to which the speakers of a live job do not need the audio again; None: unknown."""
    blob, folder = job.blob or "", voices_key(job.id)
    number = blob.removeprefix(f"{folder}/state-").rpartition("-to-")[2]
    return 0 if blob == folder else int(number) if number.isdecimal() else None


class SpeakerStore:
    """The stored states of one session, which only the holder of its lease writes."""

    def __init__(self, held: HeldLease, blobs: BlobStore) -> None:
        self._held = held
        self._blobs = blobs
        self._written = 0
        self._prefix = f"{voices_key(held.job.id)}/state-"
        named = held.job.blob or ""
        self._named = named if named.startswith(self._prefix) else None  # else of an earlier version
        self._full: list[str] = []
        self._versions: list[_Version] = []  # from the first with samples that are still needed to the newest
        self._recent: dict[int | None, list[Window]] = {}  # in the newest blob, unless it could not be stored
        self._failing = False
        self.stored_to = stored_to(held.job) or 0
        """See stored_to()."""

    async def read(self) -> StateByChannel:
        """Return what was stored before, which write() goes on with. Raises BlobsAway."""
        if self._named is None:
            return {}
        (self._full, earlier, begins), newest = await self._read(self._named)
        self._recent = {channel: list(own.lasting) for channel, own in newest.items()}
        self._versions = [_Version(key, {}) for key in [*earlier, self._named]]  # write() stores all samples anew
        full = [(await self._read(key))[1] for key in self._full]
        sampled = [*[(await self._read(key))[1] for key in earlier], newest]
        return {
            channel: _after(
                replace(
                    _with_samples_of(own, [each[channel] for each in sampled]),
                    lasting=[window for each in [*full, newest] for window in each[channel].lasting],
                ),
                begin,
            )
            for (channel, own), begin in zip(newest.items(), begins, strict=True)
        }

    async def write(self, states: StateByChannel) -> None:
        """Store the newest states, whose lasting windows are new. If that fails, they are stored the next time.

        Raises LeaseLost. No error of the storage may end the session: its words do not need it.
        """
        for channel, state in states.items():
            self._recent.setdefault(channel, []).extend(state.lasting)
        try:
            await self._write(states)
        except (BlobsAway, DiskFull, OSError) as error:
            if not self._failing:
                log.warning("speakers cannot be stored now: %s", error, extra={"job": self._held.job.id})
            self._failing = True
        else:
            self._failing = False

    async def _write(self, states: StateByChannel) -> None:
        """Store a new version, and delete those that it makes superfluous. Raises BlobsAway, DiskFull, LeaseLost."""
        if sum(map(len, self._recent.values())) >= FULL:
            full = {channel: ChannelState(lasting=own) for channel, own in self._recent.items()}
            self._full.append(await self._store(self._next_key(), full, ([], [], [])))
            self._recent = {channel: [] for channel in self._recent}
        ends = self._versions[-1].ends if self._versions else {}
        needed = [
            version
            for version in self._versions
            if any(own.begin < version.ends.get(channel, 0) for channel, own in states.items())
        ]
        new = {
            channel: replace(_after(own, ends.get(channel, 0)), lasting=self._recent[channel])
            for channel, own in states.items()
        }
        begins = [own.begin for own in states.values()]
        end = min(own.end for own in states.values())
        head = self._full, [version.key for version in needed], begins
        key = await self._store(f"{self._next_key()}-to-{end}", new, head)
        await self._name(key)
        self.stored_to = end
        superfluous = [version for version in self._versions if version not in needed]
        self._versions = [*needed, _Version(key, {channel: own.end for channel, own in states.items()})]
        for version in superfluous:
            await self._blobs.delete(version.key)  # else with the others when the job has ended

    def _next_key(self) -> str:
        self._written += 1
        return f"{self._prefix}{self._held.lease.epoch}-{self._written}"

    async def _store(self, key: str, states: StateByChannel, head: _Head) -> str:
        body = orjson.dumps(head) + b"\n" + await asyncio.to_thread(pack_states, states)
        async with self._blobs.create(key, leave_reserve=True) as sink:
            await sink.write(body)
        return key

    async def _name(self, key: str) -> None:
        """Make the job name this blob. Raises LeaseLost."""
        try:
            await self._held.note(blob=key)
        except LeaseLost:
            await self._blobs.delete(key)
            raise

    async def _read(self, key: str) -> tuple[_Head, dict[int | None, ChannelState]]:
        body = b"".join([piece async for piece in self._blobs.read(key)])
        head, _, packed = body.partition(b"\n")
        return orjson.loads(head), await asyncio.to_thread(unpack_states, packed)


def _after(own: ChannelState, end: int) -> ChannelState:
    """Return it without the samples before position *end*."""
    skipped = min(max(0, end - own.begin), len(own.samples))
    return replace(own, begin=own.begin + skipped, samples=own.samples[skipped:])


def _with_samples_of(newest: ChannelState, parts: Iterable[ChannelState]) -> ChannelState:
    """Return the newest state with the samples of all parts that follow one on another up to the last one."""
    begin, pieces, reached = 0, [np.zeros(0, np.float32)], 0
    for own in parts:
        if own.begin != reached:
            begin, pieces = own.begin, []
        pieces.append(own.samples)
        reached = own.end
    return replace(newest, begin=begin, samples=np.concatenate(pieces))
