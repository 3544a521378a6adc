"""Tests of speaker_store.py: what a session cannot store of its voices does not end it."""

import errno
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.speakers.live import SpeakerState
from server.live.speakers import REFRESHED, SpeakerStore
from server.model.errors import BlobsAway, DiskFull
from server.model.jobs import LeaseLost
from server.storage.sqlite.blobs import FileBlobs

ERRORS = (OSError(errno.EIO, "broken"), OSError(errno.EMFILE, "too many"), DiskFull("full"), BlobsAway("away"))


def state(count: int) -> SpeakerState:
    """Return what is known of this many voices."""
    voices = np.eye(256, dtype=np.float32)
    return SpeakerState(count + 1, {None: {f"S{number + 1}": voices[number] for number in range(count)}})


class LosableLease:
    """A lease that is good until *lost*."""

    def __init__(self, blob: str = "job_1/voices", epoch: int = 1) -> None:
        self.job = SimpleNamespace(id="job_1", blob=blob)
        self.lease = SimpleNamespace(epoch=epoch)
        self.lost = False

    async def note(self, *, blob: str) -> None:
        if self.lost:
            raise LeaseLost("another has it")
        self.job.blob = blob


class FailingBlobs(FileBlobs):
    """Blobs of which one kind of operation fails."""

    broken: tuple[str, Exception] | None = None

    def _check(self, kind: str) -> None:
        if self.broken is not None and self.broken[0] == kind:
            raise self.broken[1]

    @asynccontextmanager
    async def create(self, key, *, leave_reserve=False):
        self._check("create")
        async with super().create(key, leave_reserve=leave_reserve) as sink:
            yield sink
            self._check("publish")

    async def delete(self, prefix):
        self._check("delete")
        await super().delete(prefix)


async def stored(held: LosableLease, blobs: FileBlobs) -> set[str]:
    """Return the labels that a server finds when it takes over the session."""
    return (await SpeakerStore(LosableLease(held.job.blob, epoch=2), blobs).read()).labels()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("kind", ["create", "publish", "delete"])
async def test_what_cannot_be_stored_is_stored_the_next_time(tmp_path, caplog, kind, error):
    held, blobs = LosableLease(), FailingBlobs(tmp_path)
    store = SpeakerStore(held, blobs)
    await store.write(state(1), 1)
    blobs.broken = kind, error
    for position in (2, 3):
        await store.write(state(2), position)
    assert caplog.text.count("cannot be stored now") == 1
    blobs.broken = None
    await store.write(state(2), 4)
    assert await stored(held, blobs) == {"S1", "S2"}
    await blobs.close()


async def test_a_new_label_is_stored_at_once_and_a_better_known_voice_each_ten_seconds(tmp_path):
    held, blobs = LosableLease(), FileBlobs(tmp_path)
    store = SpeakerStore(held, blobs)
    keys = []
    for labels, position in [(0, 0), (1, 1), (1, 2), (2, 3), (2, REFRESHED), (2, REFRESHED + 3), (1, 2 * REFRESHED)]:
        await store.write(state(labels), position)
        keys.append(held.job.blob)
        assert len([*(tmp_path / "blobs").rglob("labels-*")]) == (labels > 0), "one version at a time"
    assert [one == before for before, one in pairwise(keys)] == [
        False, True, False, True, False, True,
    ]  # fmt: skip
    assert (await SpeakerStore(held, blobs).read()).next_label == 3
    await blobs.close()


async def test_the_last_free_space_of_the_disk_is_left_to_the_database_and_the_log_says_so_once(tmp_path, caplog):
    held, blobs = LosableLease(), FileBlobs(tmp_path, reserve_bytes=1 << 60)
    store = SpeakerStore(held, blobs)
    for count in (1, 2, 3):
        await store.write(state(count), count)
    assert held.job.blob == "job_1/voices"
    assert caplog.text.count("cannot be stored now") == 1
    await blobs.close()


async def test_what_an_earlier_version_stored_is_left_alone(tmp_path):
    blobs = FileBlobs(tmp_path)
    assert await SpeakerStore(LosableLease("job_1/voices/state-1-1-to-16000"), blobs).read() == SpeakerState()
    await blobs.close()


async def test_who_lost_the_lease_keeps_nothing(tmp_path):
    held, blobs = LosableLease(), FileBlobs(tmp_path)
    held.lost = True
    with pytest.raises(LeaseLost):
        await SpeakerStore(held, blobs).write(state(1), 1)
    assert not [*(tmp_path / "blobs").rglob("labels-*")]
    await blobs.close()
