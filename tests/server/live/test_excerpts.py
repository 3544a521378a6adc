"""Tests of excerpts.py: what a session cannot store of its voices does not end it."""

import errno
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.speakers.excerpts import Excerpts
from server.live.excerpts import ExcerptStore
from server.model.errors import BlobsAway, DiskFull
from server.model.leases import LeaseLost
from server.storage.sqlite.files import FileBlobs
from tests.server.storing import in_a_loop

ERRORS = (OSError(errno.EIO, "broken"), OSError(errno.EMFILE, "too many"), DiskFull("full"), BlobsAway("away"))
EXCERPTS: Excerpts = {None: {"S1": np.ones(16_000, np.float32)}}


class LosableLease:
    """A lease that is good until *lost*."""

    def __init__(self) -> None:
        self.job = SimpleNamespace(id="job_1")
        self.lease = SimpleNamespace(epoch=1, blob="job_1/voices")
        self.lost = False
        self.named: list[str] = []

    async def note(self, *, blob: str) -> None:
        if self.lost:
            raise LeaseLost("another has it")
        self.named.append(blob)


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


@in_a_loop
@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("kind", ["create", "publish", "delete"])
async def test_excerpts_that_cannot_be_stored_are_stored_the_next_time(tmp_path, caplog, kind, error) -> None:
    held, blobs = LosableLease(), FailingBlobs(tmp_path)
    kept = ExcerptStore(held, blobs)
    await kept.write(EXCERPTS)
    blobs.broken = kind, error
    await kept.write(EXCERPTS)
    assert "cannot be kept now" in caplog.text
    blobs.broken = None
    await kept.write(EXCERPTS)
    assert held.named[-1] == "job_1/voices/1-3"
    again = await ExcerptStore(make_lease(held.named[-1]), blobs).read()
    assert list(again[None]) == ["S1"]
    await blobs.close()


def make_lease(blob: str) -> LosableLease:
    held = LosableLease()
    held.lease.blob = blob
    return held


@in_a_loop
async def test_who_lost_the_lease_keeps_nothing(tmp_path) -> None:
    held, blobs = LosableLease(), FileBlobs(tmp_path)
    held.lost = True
    with pytest.raises(LeaseLost):
        await ExcerptStore(held, blobs).write(EXCERPTS)
    assert not [*(tmp_path / "blobs").rglob("*-1")]
    await blobs.close()
