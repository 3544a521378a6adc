"""A stop by signal: it is heard however busy the server is, and everybody connected is told in good order."""

import asyncio
import json
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from server.http.operation import json_response
from server.http.streamed import Streamed
from tests.processes import output_of
from tests.server.http.test_operation import app_of, at
from tests.server.running import run_server
from tests.server.sockets import open_wire, start_server
from tests.waiting import eventually, until

BUSY = """
import asyncio, os, signal, threading, time
from server.worker_process import stop_signals

async def main():
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    with stop_signals(stopped.set):
        def wake():  # as the threads of a database do, once for each of thousands of readers
            for _ in range(20_000):
                loop.call_soon_threadsafe(int)
            os.kill(os.getpid(), signal.SIGTERM)
        other = threading.Thread(target=wake)
        other.start()
        time.sleep(2)  # the loop is busy
        other.join()
        async with asyncio.timeout(5):
            await stopped.wait()
    print("heard", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

asyncio.run(main())
"""
READERS = 150


def test_a_signal_is_heard_by_a_busy_loop_with_many_wake_ups():
    assert output_of(BUSY) == "heard True"


def read(sockets: list[socket.socket], *, max_s: float) -> dict[socket.socket, bytes]:
    """What each of *sockets* gets until the server hangs up; those still open then are missing."""
    seen, ended = dict.fromkeys(sockets, b""), set()
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        until = time.monotonic() + max_s
        while len(ended) < len(sockets) and time.monotonic() < until:
            for key, _ in selector.select(0.1):
                data = key.fileobj.recv(65_536)
                seen[key.fileobj] += data
                if not data:
                    selector.unregister(key.fileobj)
                    ended.add(key.fileobj)
    return {each: seen[each] for each in ended}


@pytest.mark.parametrize("kind", ["events", "stream"])
def test_readers_and_a_writer_are_told_when_the_server_stops(tmp_path, kind):
    closed: list[tuple[int | None, str | None]] = []
    with run_server(tmp_path, ENGINE="scripted") as server, ExitStack() as stack:
        key = server.new_key("enterprise")
        record = httpx.post(f"{server.base}/v1/live", headers={"Authorization": f"Bearer {key}"}, json={}).json()
        host, port = server.base.removeprefix("http://").split(":")
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        head = f"GET /v1/jobs/{record['job_id']}/{kind} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        place = (host, int(port))
        readers = [stack.enter_context(socket.create_connection(place, timeout=30)) for _ in range(READERS)]
        for reader in readers:
            reader.sendall((head + (upgrade if kind == "stream" else "") + "\r\n").encode())
            assert reader.recv(9) == b"HTTP/1.1 "

        def write() -> None:
            with connect(record["live"]["ingest_ws"], proxy=None, max_queue=None) as writer:
                with suppress(ConnectionClosed):
                    while True:
                        writer.send(bytes(3200))
                        time.sleep(0.02)  # as fast as somebody speaks, and more
                closed.append((writer.close_code, writer.close_reason))

        writing = threading.Thread(target=write)
        writing.start()
        with server.client(key) as client:
            until(lambda: client.get(f"/v1/jobs/{record['job_id']}").json()["live"]["received_bytes"])
        began = time.monotonic()
        os.kill(server.process.pid, signal.SIGTERM)
        last = read(readers, max_s=30)
        assert server.process.wait(30) == 0
        assert time.monotonic() - began < 30
        writing.join()
    assert len(last) == READERS
    if kind == "events":
        assert all(data.endswith(b"\r\n0\r\n\r\n") for data in last.values())  # whole events, and an ended body
    else:
        assert all((1001).to_bytes(2) + b"shutting_down" in data for data in last.values())
    [(code, reason)] = closed
    assert code == 1001
    assert (reason or "").startswith("shutting_down")
    assert not [line for line in server.log if " error " in line or "Traceback" in line]


async def test_who_still_sends_a_body_when_the_time_is_over_is_told_why(caplog):
    reading = asyncio.Event()

    async def take(request: Request, _caller: object) -> Response:
        reading.set()
        return json_response({"bytes": len(await request.body())})

    app = app_of(at("POST", take))
    async with start_server(app) as (server, url):
        server.config.timeout_graceful_shutdown = 1
        reader, writer = await open_wire(url)
        writer.write(b"POST /things HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + bytes(2_000_000))
        await reading.wait()
        server.should_exit = True
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        body = json.loads(await reader.read(10_000))
        writer.close()
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 5\r\n" in head
    assert body["code"] == "shutting_down"
    assert [record for record in caplog.records if record.exc_info] == []


async def test_an_answer_that_is_still_being_sent_when_the_time_is_over_is_cut_off_without_a_traceback(caplog):
    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield bytes(65_536)

    async def give(_request: Request, _caller: object) -> Response:
        return Streamed(endless(), headers={})

    async with start_server(app_of(at("GET", give))) as (server, url):
        server.config.timeout_graceful_shutdown = 1
        reader, writer = await open_wire(url)
        writer.write(b"GET /things HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        server.should_exit = True
        await eventually(lambda: "an answer was cut off" in caplog.text)
        rest = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert not rest.endswith(b"\r\n0\r\n\r\n")  # the client sees that it is not whole
    assert [record for record in caplog.records if record.exc_info] == []
