"""Tests of the Python client with a real server, over a connection that breaks again and again."""

import asyncio
import contextlib
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile

from server import client as client_module
from server.client import Client, LiveStream, ServiceError
from tests.processes import ROOT, free_port
from tests.server.running import CLIP, SPEECH, Server, run_server
from tests.waiting import eventually

FRAME = 3200  # bytes: 0.1 s


class Wire:
    """A port that leads to the server. cut() breaks all connections; new ones work again.

    The next *away* connections get the answer of a proxy whose server is away.
    """

    def __init__(self, target: str) -> None:
        self._host, self._port = urlsplit(target).hostname, urlsplit(target).port
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.cuts = 0
        self.away = 0

    @contextlib.asynccontextmanager
    async def lay(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        self.cuts += bool(self._open)
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            self.away -= 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        self._open |= {writer, back}
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()


async def speak(
    stream: LiveStream, wire: Wire | None, *, heard: list[dict[str, object]] | None = None
) -> list[dict[str, object]]:
    """Send the clip four times as fast as it is spoken, cut the wire now and then, and return all events in *heard*."""
    samples, _ = soundfile.read(CLIP, dtype="int16")
    data = np.asarray(samples).astype("<i2").tobytes()
    heard = [] if heard is None else heard

    async def listen() -> None:
        heard.extend([event async for event in stream.events()])

    listening = asyncio.create_task(listen())
    for at in range(0, len(data), FRAME):
        await stream.send(data[at : at + FRAME])
        await asyncio.sleep(0.025)
        if wire is not None and at % (30 * FRAME) == 20 * FRAME:
            wire.cut()
    stream.close()
    await listening
    return heard


def words(heard: list[dict[str, object]]) -> list[object]:
    return [event["word"] for event in heard if event["type"] == "word"]


async def test_a_cut_wire_loses_no_word_and_repeats_none(small_server):
    server, key = small_server, small_server.new_key("pro")
    async with Wire(server.base).lay() as wire, Client(wire.url, key) as client:
        async with client.live(sample_rate=16_000, language="en") as stream:
            plain = await speak(stream, None)
        async with client.live(sample_rate=16_000, language="en") as stream:
            stream._address = stream._address.replace(server.base.replace("http", "ws"), wire.url.replace("http", "ws"))
            cut = await speak(stream, wire)
        sequence = [event["seq"] for event in cut if "seq" in event]
        assert sequence == sorted(set(sequence))
        assert words(cut) == words(plain)
        assert len(words(cut)) > 10
        assert wire.cuts >= 2
        assert cut[-1]["type"] == "job.completed"


async def test_a_killed_server_is_awaited_and_told_again_what_it_forgot(tmp_path, monkeypatch):
    monkeypatch.setattr("server.client.MAX_PAUSE_S", 0.02)  # so it is tried more often than in 60 s

    port = free_port()
    server = Server(tmp_path, {"ENGINE": "scripted", "PORT": str(port)}).start()
    try:
        key = server.new_key("pro")
        async with Client(server.base, key) as client, client.live(sample_rate=16_000) as stream:
            heard: list[dict[str, object]] = []
            speaking = asyncio.create_task(speak(stream, None, heard=heard))
            await eventually(lambda: len(words(heard)) > 5)
            server.kill()
            await asyncio.to_thread(server.start)
            await speaking
    finally:
        server.stop()
    indices = [event["index"] for event in heard if event["type"] == "word"]
    assert indices == list(range(len(indices)))
    assert len(indices) > 20
    assert heard[-1]["type"] == "job.completed"


async def test_events_go_on_where_the_stream_broke(server, monkeypatch):
    monkeypatch.setattr("server.client.FIRST_PAUSE_S", 0.05)

    key = server.new_key("pro")
    async with Wire(server.base).lay() as wire, Client(wire.url, key) as client:
        job = await client.submit(SPEECH / "espeak" / "en_long.flac", word_timestamps=True)
        seen = []
        async for event in client.events(job["job_id"]):
            seen.append(event["seq"])
            if len(seen) % 25 == 0:
                wire.away = len(seen) // 25 % 3
                wire.cut()
        assert seen == list(range(1, len(seen) + 1))
        assert wire.cuts
        wire.cut()
        wire.away = 100
        with pytest.raises(ServiceError, match="502"):
            _ = [event async for event in client.events(job["job_id"])]


async def test_a_file_becomes_a_record_and_its_outputs(server):
    async with Client(server.base, server.new_key("pro")) as client:
        record = await client.transcribe(CLIP, output_formats=["srt", "txt"], metadata={"a": "b"})
        assert (record["status"], record["metadata"]) == ("completed", {"a": "b"})
        assert (await client.output(record, "txt")).decode() == record["text"] + "\n"
        with pytest.raises(ServiceError, match="job_not_found"):
            await client.job("job_00000000000000000000000000")


async def test_what_the_service_refuses_is_said_once_and_clearly(server, tmp_path):
    async with Client(server.base, "sw_live_nonsense") as client:
        with pytest.raises(ServiceError, match="invalid_key"):
            await client.transcribe(CLIP)
    (tmp_path / "text.mp3").write_text("no audio " * 100)
    async with Client(server.base, server.new_key("pro")) as client:
        with pytest.raises(ServiceError, match="unsupported_audio_format"):
            await client.transcribe(tmp_path / "text.mp3")
        with pytest.raises(ServiceError, match="invalid_parameter"):
            async with client.live(sample_rate=7):
                pass


async def test_a_server_that_does_not_come_back_is_said_in_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr("server.client.FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("server.client.RECONNECT_S", 1)

    async def speak(server: Server) -> None:
        async with Client(server.base, server.new_key("pro")) as client, client.live() as stream:
            await stream.send(bytes(3200))
            server.kill()
            await asyncio.sleep(30)  # at most: the error ends it

    with run_server(tmp_path, ENGINE="scripted") as server, pytest.raises(OSError, match="Connect"):
        await speak(server)


async def test_a_live_address_that_leads_nowhere_is_said_at_once(server):
    stream = LiveStream("job", server.base.replace("http", "ws") + "/nowhere?token=none")
    with pytest.raises(ServiceError, match=r"40[34]"):
        await asyncio.wait_for(stream.run(), 5)
    assert [event async for event in stream.events()] == []


def test_the_client_needs_nothing_of_the_server(tmp_path):
    """The distribution of ./client has this file alone."""
    (tmp_path / "scribewire_client.py").write_text(Path(client_module.__file__).read_text())
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import scribewire_client;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = {*done.stdout.split()}
    assert "scribewire_client" in loaded
    assert loaded.isdisjoint({"server", "pipeline", "estimator", "numpy", "av", "ctranslate2", "onnxruntime", "torch"})


def test_the_client_installs_by_itself(tmp_path):
    command = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path)]
    subprocess.run([sys.executable, *command, str(ROOT / "client")], check=True, capture_output=True)
    [wheel] = tmp_path.glob("scribewire_client-*.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert names == ["scribewire_client.py"]


async def test_a_path_may_be_a_text_and_jobs_are_listed_canceled_and_deleted(small_server):
    async with Client(small_server.base, small_server.new_key()) as client:
        record = await client.transcribe(str(CLIP), output_formats=["txt"])
        assert record["status"] == "completed"
        again = [await client.submit(str(CLIP), idempotency_key="the same") for _ in range(2)]
        assert len({one["job_id"] for one in again}) == 1
        await client.wait(again[0]["job_id"])
        assert [one["job_id"] async for one in client.jobs(limit=1)] == [again[0]["job_id"], record["job_id"]]
        await client.delete(record["job_id"])
        with pytest.raises(ServiceError, match="job_not_found"):
            await client.job(record["job_id"])
        with pytest.raises(ServiceError, match="job_not_cancelable"):
            await client.cancel(again[0]["job_id"])
        with pytest.raises(FileNotFoundError):
            await client.submit("nowhere.wav")


async def test_a_client_comes_again_when_the_server_has_room():
    answers = [
        b'429 Too Many Requests\r\nRetry-After: 0\r\n|{"code": "rate_limited", "detail": "later"}',
        b'429 Too Many Requests\r\nRetry-After: 0\r\n|{"code": "queue_full", "detail": "later"}',
        b'200 OK\r\n|{"plan": "free"}',
        b'429 Too Many Requests\r\nRetry-After: 99999\r\n|{"code": "quota_exceeded", "detail": "next month"}',
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, _, body = answers.pop(0).partition(b"|")
        writer.write(b"HTTP/1.1 %sConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "sw_live_any") as client:
        assert await client.usage() == {"plan": "free"}
        with pytest.raises(ServiceError, match="next month"):
            await client.usage()
