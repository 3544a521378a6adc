"""Decoders have a memory together: who comes when it is in use is told to come again, and files get their turn."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.measure import process_tree
from pipeline.ingest.memory import DECODER_BYTES
from tests.pipeline.boxes import mp4_of_samples
from tests.pipeline.sounds import encode_audio, tone
from tests.server.running import Server, run_server
from tests.server.serving import wav

ROOM_MIB = 512  # for four decoders: two of the sandbox's writers, three writers, four files
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CONTAINER = {"encoding": "container"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("room")
    with run_server(folder, ENGINE="scripted", DECODER_MEMORY_MIB=str(ROOM_MIB)) as started:
        yield started


def writers(client: httpx.Client, count: int) -> list[dict[str, object]]:
    return [client.post("/v1/live", json=CONTAINER).raise_for_status().json() for _ in range(count)]


async def welcome(stack: AsyncExitStack, record: dict[str, object]) -> ClientConnection | int:
    """The socket of a writer, or the code with which it was closed."""
    live = record["live"]
    assert isinstance(live, dict)
    socket = await stack.enter_async_context(connect(live["ingest_ws"], proxy=None))
    if json.loads(await socket.recv())["type"] == "error":
        await socket.wait_closed()
        assert socket.close_code is not None
        return socket.close_code
    return socket


def decoders_bytes(server: Server) -> int:
    """What all processes below the server hold for themselves alone."""
    held = 0
    with suppress(OSError):  # one has ended meanwhile
        for pid in process_tree(server.process.pid):
            figures = Path(f"/proc/{pid}/statm").read_text().split()
            held += (int(figures[1]) - int(figures[2])) * PAGE_BYTES if pid != server.process.pid else 0
    return held


async def attack(server: Server, rehearsing: httpx.Client, paying: httpx.Client) -> tuple[list[object], int]:
    """Let writers send an index of 20 million samples each. Returns how they were received, and the most memory."""
    hostile, most = mp4_of_samples(20_000_000), 0
    async with AsyncExitStack() as stack:
        sockets = [await welcome(stack, record) for record in [*writers(rehearsing, 3), *writers(paying, 2)]]
        welcomed = [socket if isinstance(socket, int) else "in" for socket in sockets]
        for socket in sockets:
            if not isinstance(socket, int):
                await socket.send(hostile)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            most = max(most, await asyncio.to_thread(decoders_bytes, server))
    for client in (rehearsing, paying):
        for job in client.get("/v1/jobs").json()["data"]:
            client.delete(f"/v1/jobs/{job['job_id']}", params={"force": "true"})
    return welcomed, most


def test_the_memory_of_all_decoders_is_bounded_and_files_are_heard_beside_full_live_room(server):
    rehearsing = server.client(server.new_key(environment="sandbox"), sandbox=True)
    paying = server.client(server.new_key())
    welcomed, most = asyncio.run(attack(server, rehearsing, paying))
    assert welcomed == ["in", "in", 1013, "in", 1013]
    assert 0 < most <= 4 * DECODER_BYTES
    assert server.client(None).get("/healthz").status_code == 200


async def test_files_and_raw_audio_go_on_while_containers_have_all_of_their_room(server):
    client = server.client(server.new_key())

    def post_audio(record: dict[str, object]) -> httpx.Response:
        return client.post(f"/v1/jobs/{record['job_id']}/audio", content=encode_audio(tone(1.0), "webm", "libopus"))

    async with AsyncExitStack() as stack:
        kept = [await welcome(stack, record) for record in writers(client, 3)]
        assert not any(isinstance(one, int) for one in kept)
        answers = [await asyncio.to_thread(post_audio, record) for record in writers(client, 1)]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "queue_full")]
        assert "Retry-After" in answers[0].headers
        job = await asyncio.to_thread(client.post, "/v1/transcribe", files={"file": wav()})
        assert (job.status_code, job.json()["status"]) == (200, "completed")
        raw = client.post("/v1/live", json={}).json()
        assert isinstance(await welcome(stack, raw), ClientConnection)
