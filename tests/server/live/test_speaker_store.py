"""Tests of speaker_store.py: what a session cannot store of its voices does not end it."""

import errno
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.audio import Samples
from pipeline.speakers.frames import Piece, Window, turn_of_pieces
from pipeline.speakers.state import ChannelState, StateByChannel
from server.live.speaker_store import FULL, SpeakerStore
from server.model.errors import BlobsAway, DiskFull
from server.model.leases import LeaseLost
from server.storage.sqlite.files import FileBlobs
from tests.server.storing import in_a_loop

ERRORS = (OSError(errno.EIO, "broken"), OSError(errno.EMFILE, "too many"), DiskFull("full"), BlobsAway("away"))
LENGTH = 1600


def samples(begin: int) -> Samples:
    return np.sin(np.arange(begin, begin + LENGTH, dtype=np.float32)).astype(np.float16).astype(np.float32)


def new_state(place: int, *, step: int = LENGTH) -> StateByChannel:
    """Return one more window that stays, and a last one. The last samples begin *step* later than those before."""
    vector = np.eye(256, dtype=np.float32)[place]
    speech = np.tile(np.float16([0, 0.2, 1]), (9, 1))
    first, last = (Window(start, speech, (turn_of_pieces(2, 1, [Piece(9, 0.1, vector)]),)) for start in (place, 900))
    return {
        None: ChannelState(
            lasting=[first],
            newest=[last],
            begin=place * step,
            samples=samples(place * step),
            names={0: "S1"},
            first_labels=np.full(place, 1, np.uint16),
        )
    }


class LosableLease:
    """A lease that is good until *lost*."""

    def __init__(self) -> None:
        self.job = SimpleNamespace(id="job_1", blob="job_1/voices")
        self.lease = SimpleNamespace(epoch=1)
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
async def test_what_cannot_be_stored_is_stored_the_next_time(tmp_path, caplog, kind, error) -> None:
    held, blobs = LosableLease(), FailingBlobs(tmp_path)
    store = SpeakerStore(held, blobs)
    await store.write(new_state(0))
    blobs.broken = kind, error
    await store.write(new_state(1))
    assert "cannot be stored now" in caplog.text
    blobs.broken = None
    await store.write(new_state(2))
    assert await starts(held, blobs) == [0, 1, 2, 900]
    await blobs.close()


@in_a_loop
async def test_what_a_session_of_minutes_heard_is_read_whole_by_each_that_takes_it_over(tmp_path) -> None:
    held, blobs = LosableLease(), FileBlobs(tmp_path)
    store = SpeakerStore(held, blobs)
    for place in range(FULL):
        await store.write(new_state(place, step=300))
    assert await starts(held, blobs) == [*range(FULL), 900]
    store = SpeakerStore(make_lease(held.named[-1], epoch=2), blobs)
    assert len((await store.read())[None].lasting) == FULL
    held = store._held
    for place in range(FULL, 2 * FULL):
        await store.write(new_state(place, step=300))
    assert sorted(await starts(held, blobs)) == [*range(2 * FULL), 900]
    again = (await SpeakerStore(make_lease(held.named[-1]), blobs).read())[None]
    window = again.lasting[3]
    assert (window.start, window.turns[0].voice, window.turns[0].pieces[0].after) == (3, 2, 9)
    assert window.turns[0].embedding.argmax() == 3
    np.testing.assert_array_equal(window.speech[0], np.float16([0, 0.2, 1]))
    assert again.begin == (2 * FULL - 1) * 300
    np.testing.assert_array_equal(again.samples, samples(again.begin))
    assert len([*(tmp_path / "blobs").rglob("state-*")]) == 2 + 6, "two of a minute, six with the last samples"
    await blobs.close()


@in_a_loop
async def test_samples_that_came_while_nothing_could_be_stored_are_stored_with_the_next(tmp_path) -> None:
    held, blobs = LosableLease(), FailingBlobs(tmp_path)
    store = SpeakerStore(held, blobs)
    for place, broken in enumerate([False, False, True, True, False, True, False]):
        blobs.broken = ("create", DiskFull("full")) if broken else None
        await store.write(new_state(place, step=600))
        if not broken:
            [last] = (await SpeakerStore(make_lease(held.named[-1]), blobs).read()).values()
            assert last.begin == place * 600
            np.testing.assert_array_equal(last.samples, samples(last.begin))
    await blobs.close()


@in_a_loop
async def test_the_last_free_space_of_the_disk_is_left_to_the_database_and_the_log_says_so_once(
    tmp_path, caplog
) -> None:
    held, blobs = LosableLease(), FileBlobs(tmp_path, reserve_bytes=1 << 60)
    store = SpeakerStore(held, blobs)
    for place in range(3):
        await store.write(new_state(place))
    assert held.named == []
    assert caplog.text.count("cannot be stored now") == 1
    await blobs.close()


@in_a_loop
async def test_what_an_earlier_version_stored_is_left_alone(tmp_path) -> None:
    blobs = FileBlobs(tmp_path)
    assert await SpeakerStore(make_lease("job_1/voices/1-1"), blobs).read() == {}
    await blobs.close()


async def starts(held: LosableLease, blobs: FileBlobs) -> list[int]:
    """Return the starts of the windows that a server finds when it takes over the session."""
    found = await SpeakerStore(make_lease(held.named[-1]), blobs).read()
    return [window.start for window in [*found[None].lasting, *found[None].newest]]


def make_lease(blob: str, epoch: int = 1) -> LosableLease:
    held = LosableLease()
    held.job.blob, held.lease.epoch = blob, epoch
    return held


@in_a_loop
async def test_who_lost_the_lease_keeps_nothing(tmp_path) -> None:
    held, blobs = LosableLease(), FileBlobs(tmp_path)
    held.lost = True
    with pytest.raises(LeaseLost):
        await SpeakerStore(held, blobs).write(new_state(0))
    assert not [*(tmp_path / "blobs").rglob("state-*")]
    await blobs.close()
