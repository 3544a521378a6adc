"""Tests of live sessions that recognise the channels of their audio separately."""

import asyncio

import orjson

from pipeline.audio import RATE, WINDOW
from pipeline.words import Word
from server.live.reporting import MARGIN
from server.model.jobs import State
from server.storage.sql.storage import Storage
from tests.server.session_registries import committed, ended, is_over, order, session_registry
from tests.server.storing import LEASE_S, submit
from tests.waiting import eventually

BEGIN = -(-(RATE - MARGIN) // WINDOW) * WINDOW  # whole windows


async def begin_on_two_channels(storage: Storage, job_id: str) -> None:
    """Make a session as a dead server leaves it: a side closed a segment and went on to 4 s, the other is at 2 s."""
    lease = await storage.jobs.claim_live(job_id, "dead", lease_s=LEASE_S)
    words = {
        0: [Word(f"left{n}", RATE * n, RATE * n + RATE // 2, 0.9) for n in range(4)],
        1: [Word("right0", RATE, 2 * RATE, 0.9)],
    }
    entries = [
        committed(0, 0, words[0][0], channel=0),
        ended(0, words[0][0], channel=0),
        committed(1, 1, words[1][0], channel=1),
        *(committed(1 + n, 2, word, channel=0) for n, word in enumerate(words[0][1:], 1)),
    ]
    assert await storage.jobs.append(lease, entries) is not None


async def test_each_channel_goes_on_behind_its_own_last_word(sqlite, clock):
    job = await sqlite.jobs.get(await submit(sqlite, order=order(separate=True, channels=2)))
    await begin_on_two_channels(sqlite, job.id)
    clock.advance(s=LEASE_S)
    async with session_registry(sqlite) as made:
        live = await made.open(job)
        begin = live.progress().received_bytes
        assert begin == 4 * BEGIN, "where the side that is behind goes on"
        async with live.seat() as seat:
            assert await seat.write(bytes(4 * 6 * RATE - begin))
            seat.finish()
        assert await is_over(sqlite, job.id) is State.COMPLETED
    log = [(one.type, orjson.loads(one.body)) for one in await sqlite.timelines.read(job.id, after=0, limit=99)]
    told = [body for kind, body in log if kind == "word"]
    assert [word["index"] for word in told] == list(range(len(told)))
    starts = [[word["start"] for word in told if word["channel"] == channel] for channel in (0, 1)]
    assert all(one == sorted(one) for one in starts)
    assert [min(start for start in one[before:]) >= end for one, before, end in
            zip(starts, (4, 1), (3.5, 2.0), strict=True)] == [True, True]  # fmt: skip
    assert min(starts[1][1:]) < 3, "what the other side had heard already was heard on this one"
    segments = {body["id"]: body for kind, body in log if kind == "segment"}
    assert (segments[1]["channel"], segments[2]["text"]) == (1, "left1 left2 left3")
    assert min(segments.keys() - {0, 1, 2}) == 3


async def test_silence_of_one_side_is_settled_when_the_other_speaks(sqlite):
    """The scripted engine speaks on both sides, so the silent one is muted by its detector."""
    async with session_registry(sqlite) as made:
        job = await sqlite.jobs.get(await submit(sqlite, order=order(separate=True, channels=2, max_utterance_s=3)))
        live = await made.open(job)
        live._session._streams[1]._vad = lambda windows: [0.0] * len(windows)  # type: ignore[attr-defined]  # two
        async with live.seat() as seat, asyncio.timeout(20):
            await seat.write(bytes(4 * 20 * RATE))
            await eventually(lambda: (live.progress().settled_bytes or 0) >= 4 * 12 * RATE)
            seat.finish()
        assert await is_over(sqlite, job.id) is State.COMPLETED
