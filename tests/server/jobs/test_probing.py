"""The first look at uploaded files: how many of an account at once, and how many bad ones."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from pipeline.errors import DecoderUnavailable, EmptyAudio, UnusableReference
from pipeline.ingest.isolation import Isolation
from server.jobs.probing import MAX_AT_ONCE, MAX_LEARNING, REQUESTS_PER_BAD_FILE, Prober
from server.model.errors import Refused
from server.model.orders import Order
from tests.pipeline.sounds import one_byte_packets
from tests.server.serving import LIMITS, isolation, wav

FREE = LIMITS.plan("free", {}, sandbox=False)


class Folder:
    """A folder whose files are the blobs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @asynccontextmanager
    async def local(self, blob: str) -> AsyncIterator[Path]:
        yield self.path / blob


async def test_one_account_cannot_take_every_seat(tmp_path):
    endless = tmp_path / "endless"
    os.mkfifo(endless)
    writer = os.open(endless, os.O_RDWR)  # as long as it is open, reading waits for more
    (tmp_path / "short").write_bytes(wav())
    prober = Prober(isolation(), Folder(tmp_path))
    hostile = [
        asyncio.create_task(prober.probe("endless", Order(), account="hostile", plan=FREE))
        for _ in range(2 * MAX_AT_ONCE)
    ]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(25):
            for name in ("a", "b", "c"):
                assert (await prober.probe("short", Order(), account=name, plan=FREE)).duration_s == 1.0
        assert not any(task.done() for task in hostile)
    finally:
        endless.unlink()
        endless.touch()
        os.close(writer)
    ends = await asyncio.gather(*hostile, return_exceptions=True)
    assert {type(end) for end in ends} == {EmptyAudio}


def post(client: httpx.Client, content: bytes) -> httpx.Response:
    return client.post("/v1/transcribe", params={"wait": 0}, files={"file": ("sound", content)})


def test_files_that_cannot_be_decoded_count_more_than_requests(live_server):
    with live_server.new_client("free") as client, live_server.new_client("free") as neighbour:
        for content, status in ((one_byte_packets(2000), 422), (b"a letter", 415)):
            for _ in range(FREE.requests_per_minute // 6):
                assert post(client, content).status_code == status
        refused = post(client, wav())
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert "could not be decoded" in refused.json()["detail"]
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert client.get("/v1/jobs").status_code == 200
        assert post(neighbour, wav()).status_code == 202


def test_good_files_do_not_count_as_bad_ones(live_server):
    with live_server.new_client("pro", requests_per_minute=6) as client:
        for _ in range(4):
            assert post(client, wav()).status_code == 202
        for _ in range(2):
            assert post(client, b"a letter").status_code == 415


async def test_a_failure_of_the_server_is_not_counted_against_the_account(tmp_path):
    strict = LIMITS.plan("free", {"requests_per_minute": 3}, sandbox=False)
    os.mkfifo(tmp_path / "slow")
    (tmp_path / "empty").touch()
    with Isolation() as decoders:
        prober = Prober(decoders, Folder(tmp_path))
        looking = asyncio.create_task(prober.probe("slow", Order(), account="a", plan=strict))
        with await asyncio.to_thread((tmp_path / "slow").open, "wb"):
            await asyncio.sleep(0.2)
            decoders.close()  # as when the process that forks decoders dies
            with pytest.raises(DecoderUnavailable):
                await looking
        prober.admit("a", strict)
        with pytest.raises(EmptyAudio):
            await prober.probe("empty", Order(), account="a", plan=strict)
        with pytest.raises(Refused, match="rate_limited"):
            prober.admit("a", strict)


class Hearing:
    """Listens to recordings of people until it is let go, and finds no voice in them."""

    def __init__(self) -> None:
        self.at_work = 0
        self.done = asyncio.Event()

    async def learn_voices(self, _recordings: Mapping[str, bytes]) -> None:
        self.at_work += 1
        await self.done.wait()
        self.at_work -= 1
        raise UnusableReference("Ann", "it has no voice")


async def test_recordings_of_people_are_listened_to_a_few_at_a_time_and_count_when_they_are_bad(tmp_path):
    prober, hearing = Prober(isolation(), Folder(tmp_path)), Hearing()
    most = FREE.requests_per_minute // REQUESTS_PER_BAD_FILE
    works = [prober.learn_voices(hearing, {"Ann": b""}, account="hostile", plan=FREE) for _ in range(most)]
    works += [prober.learn_voices(hearing, {"Ann": b""}, account=name, plan=FREE) for name in ("a", "b", "c")]
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(0.01)
    assert hearing.at_work == MAX_LEARNING
    hearing.done.set()
    assert {type(end) for end in await asyncio.gather(*tasks, return_exceptions=True)} == {UnusableReference}
    with pytest.raises(Refused) as caught:
        await prober.learn_voices(hearing, {"Ann": b""}, account="hostile", plan=FREE)
    assert caught.value.code == "rate_limited"
