"""Connections of clients that do nothing, that read nothing, or that are too many; and those of everybody else."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.accounts.limits import Limits
from server.config import ConfigError
from server.transport.connections import MAX_CONNECTIONS, connection_limits
from tests.server.peers import RawClient
from tests.server.running import ROOT, Server, run_server
from tests.server.serving import LIMITS, AppServer, chunk, config, serve, wav
from tests.waiting import until

STRANGER = "127.0.0.2"
"""Another address of this machine."""


@contextmanager
def start_impatient_server(
    folder: Path,
    *,
    head_s: float = 15,
    unread_s: float = 60,
    limits: Limits = LIMITS,
    **variables: str,
) -> Iterator[AppServer]:
    """A server with less patience for connections."""
    with serve(folder, limits=limits, **variables) as server:
        connections = server.answering.connections
        connections.rules = replace(connections.rules, head_s=head_s, unread_s=unread_s)
        yield server


def connect(server: AppServer | Server, address: str = "127.0.0.1") -> socket.socket:
    host, port = server.base.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10, source_address=(address, 0))


def has_ended(connection: socket.socket) -> bool:
    """Whether the server has hung up, waiting for at most ten seconds."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def drip(client: RawClient, text: str) -> None:
    """Send *text* letter by letter, ten a second."""
    for letter in text:
        client.send(letter)
        time.sleep(0.1)


def open_connections(server: AppServer) -> int:
    page = server.service.parts.metrics.page().decode()
    found = re.search(r"^scribewire_connections (\S+)", page, re.MULTILINE)
    assert found
    return int(float(found[1]))


def health(server: AppServer | Server) -> int:
    return httpx.get(server.base + "/healthz", timeout=10).status_code


# --- requests that do not come ---------------------------------------------------------------------------------------


def test_a_connection_without_a_request_is_closed(tmp_path):
    with start_impatient_server(tmp_path, head_s=0.5) as server, connect(server) as silent:
        began = time.monotonic()
        assert has_ended(silent)
        assert 0.4 < time.monotonic() - began < 5


@pytest.mark.parametrize("before", ["", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_head_that_drips_is_cut_also_after_an_earlier_request(tmp_path, before):
    with start_impatient_server(tmp_path, head_s=1) as server, RawClient(server.base) as client:
        if before:
            client.send(before)
            assert client.answer()[0] == 200
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(client, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + "y" * 100)
        assert 0.9 < time.monotonic() - began < 5


def test_the_rest_of_a_body_that_was_answered_already_may_not_drip(tmp_path):
    with start_impatient_server(tmp_path, head_s=1) as server, RawClient(server.base) as client:
        client.send("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert client.answer()[0] == 200
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(client, "y" * 100)


def test_a_slow_answer_and_a_rest_between_two_requests_are_no_silence(tmp_path):
    async def slow(_path, _options, _done):
        await asyncio.sleep(1.5)
        yield chunk(0, "late")

    with start_impatient_server(tmp_path, head_s=0.5) as server, server.new_client() as client:
        server.batch.scripts["slow"] = slow
        files: dict[str, Any] = {"file": ("a.wav", wav())}
        answer = client.post("/v1/transcribe", files=files, data={"prompt": "slow"})
        assert answer.json()["text"] == "late"
        before = open_connections(server)
        time.sleep(1)
        assert open_connections(server) == before
        assert client.get("/v1/jobs").status_code == 200


def test_a_connection_that_rests_for_long_between_two_requests_is_closed(tmp_path):
    with serve(tmp_path) as server:
        server.answering.config.timeout_keep_alive = 1
        with RawClient(server.base) as resting:
            for _ in range(3):
                resting.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert resting.answer()[0] == 200
                time.sleep(0.5)
            began = time.monotonic()
            assert resting.is_closed()
            assert 0.4 < time.monotonic() - began < 5


# --- too many --------------------------------------------------------------------------------------------------------


def test_one_address_has_a_bound_and_others_do_not_feel_it(tmp_path):
    with serve(tmp_path, MAX_CONNECTIONS_PER_ADDRESS="5") as server, ExitStack() as stack:
        kept = [stack.enter_context(connect(server, STRANGER)) for _ in range(5)]
        until(lambda: open_connections(server) == 5)
        refused = stack.enter_context(connect(server, STRANGER))
        head, _, body = refused.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b'"code":"too_many_connections"' in body
        assert health(server) == 200
        kept.pop().close()
        until(lambda: open_connections(server) <= 4)
        again = stack.enter_context(connect(server, STRANGER))
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.recv(12) == b"HTTP/1.1 200"


def test_a_trusted_proxy_brings_any_number_of_connections(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS_PER_ADDRESS="5", TRUSTED_PROXIES=f"{STRANGER}/32") as server,
        ExitStack() as stack,
    ):
        for _ in range(20):
            stack.enter_context(connect(server, STRANGER))
        until(lambda: open_connections(server) == 20)


def test_an_address_behind_a_proxy_has_a_bound_while_its_requests_are_answered(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS_PER_ADDRESS="3", TRUSTED_PROXIES="127.0.0.0/8") as server,
        server.new_client() as owner,
        ExitStack() as stack,
    ):
        events = session(owner)
        streams = [stack.enter_context(follow(server, f"{events}\r\nX-Forwarded-For: 203.0.113.5")) for _ in range(3)]
        assert [stream.recv(12) for stream in streams] == [b"HTTP/1.1 200"] * 3
        assert first_line(server, f"{events}\r\nX-Forwarded-For: 203.0.113.5") == b"HTTP/1.1 429"
        assert first_line(server, f"{events}\r\nX-Forwarded-For: 203.0.113.6") == b"HTTP/1.1 200"
        streams[0].close()
        until(lambda: first_line(server, f"{events}\r\nX-Forwarded-For: 203.0.113.5") == b"HTTP/1.1 200")


def test_an_account_has_a_part_of_the_connections_over_all_its_sessions(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS="20", MAX_CONNECTIONS_PER_ADDRESS="20") as server,
        server.new_client() as owner,
        server.new_client() as other,
        ExitStack() as stack,
    ):
        sessions = [session(owner) for _ in range(2)]
        for number in range(12):  # 60 %
            assert owner.get("/v1/jobs").status_code == 200
            assert stack.enter_context(follow(server, sessions[number % 2])).recv(12) == b"HTTP/1.1 200"
        refused = owner.get("/v1/jobs")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_connections")
        assert other.get("/v1/jobs").status_code == 200


def test_readers_of_what_is_silent_make_room_for_others(tmp_path):
    quiet = replace(LIMITS, streams=replace(LIMITS.streams, keep_alive_s=0.3))
    with (
        serve(tmp_path, MAX_CONNECTIONS="20", MAX_CONNECTIONS_PER_ADDRESS="20", limits=quiet) as server,
        server.new_client() as owner,
        server.new_client() as other,
        ExitStack() as stack,
    ):
        readers = [stack.enter_context(follow(server, session(owner))) for _ in range(8)]
        readers += [stack.enter_context(follow(server, session(other))) for _ in range(6)]
        until(lambda: len(server.answering.connections.idle) == 14)
        assert [health(server) for _ in range(5)] == [200] * 5
        keys = [server.key("free") for _ in range(2)]
        for number in range(20):
            working = half_request("/v1/keys", f"Authorization: Bearer {keys[number % 2]}")
            stack.enter_context(connect(server, STRANGER)).sendall(working)
        until(lambda: len(server.answering.connections.idle) <= 6)
        assert all(ends_within(reader, 1) for reader in readers[:8])


def half_request(path: str, *more: str) -> bytes:
    """The head of a request with a JSON body of two bytes, and the first of them."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", "Content-Length: 2", *more]
    return "\r\n".join([*lines, "", "{"]).encode()


def session(owner: httpx.Client) -> str:
    """The request for the events of a new live session, up to its last header."""
    job, key = owner.post("/v1/live", json={}).json()["job_id"], owner.headers["Authorization"]
    return f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}"


def follow(server: AppServer, request: str) -> socket.socket:
    connection = connect(server)
    connection.sendall(f"{request}\r\n\r\n".encode())
    return connection


def first_line(server: AppServer, request: str) -> bytes:
    with follow(server, request) as connection:
        return connection.recv(12)


def ends_within(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_when_all_are_taken_the_oldest_silent_ones_make_room(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS="40", MAX_CONNECTIONS_PER_ADDRESS="40") as server,
        server.new_client() as client,
        ExitStack() as stack,
    ):
        assert client.get("/v1/jobs").status_code == 200
        silent = [stack.enter_context(connect(server, STRANGER)) for _ in range(100)]
        assert [health(server) for _ in range(5)] == [200] * 5
        assert open_connections(server) <= 40
        assert client.get("/v1/jobs").status_code == 200
        assert has_ended(silent[0])


def test_the_last_connection_takes_no_room_from_others_while_nobody_waits(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS="10", MAX_CONNECTIONS_PER_ADDRESS="10") as server,
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(connect(server)) for _ in range(9)]
        until(lambda: len(server.answering.connections.headless) == 9)
        silent.append(stack.enter_context(connect(server)))
        until(lambda: open_connections(server) == 10)
        time.sleep(0.2)
        assert open_connections(server) == 10
        for connection in silent:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_connections_at_work_are_not_closed_for_new_ones_which_are_refused_instead(tmp_path):
    with (
        serve(tmp_path, MAX_CONNECTIONS="10", MAX_CONNECTIONS_PER_ADDRESS="10") as server,
        ExitStack() as stack,
    ):
        keys = [server.key("free") for _ in range(2)]  # one account may have six
        working = [stack.enter_context(connect(server)) for _ in range(10)]
        for number, connection in enumerate(working):
            connection.sendall(half_request("/v1/keys", f"Authorization: Bearer {keys[number % 2]}"))
        until(lambda: open_connections(server) == 10)
        late = stack.enter_context(connect(server, STRANGER))
        assert late.recv(12) == b"HTTP/1.1 429"
        for connection in working:
            connection.sendall(b"}")
            assert connection.recv(12) == b"HTTP/1.1 201"
        again = stack.enter_context(connect(server, STRANGER))
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.recv(12) == b"HTTP/1.1 200"


LARGE_BODY = b"POST /v1/transcribe HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\nContent-Length: 50000000\r\n\r\nx"


@pytest.mark.parametrize("held", [half_request("/v1/keys"), LARGE_BODY], ids=["unfinished", "refused"])
def test_bodies_without_a_key_that_stand_still_make_room_for_others(tmp_path, held):
    with (
        serve(tmp_path, MAX_CONNECTIONS="10", MAX_CONNECTIONS_PER_ADDRESS="10") as server,
        ExitStack() as stack,
    ):
        holding = [stack.enter_context(connect(server, STRANGER)) for _ in range(10)]
        for connection in holding:
            connection.sendall(held)
        until(lambda: open_connections(server) == 10)
        began = time.monotonic()
        assert [health(server) for _ in range(5)] == [200] * 5
        assert time.monotonic() - began < 1.5  # a refused body is read for 2 s at least, an unfinished one for a minute
        assert ends_within(holding[0], 1)
        if held is not LARGE_BODY:
            holding[-1].sendall(b"}")
            assert holding[-1].recv(12) == b"HTTP/1.1 201"


# --- descriptors -----------------------------------------------------------------------------------------------------


def test_a_server_raises_its_limit_when_it_starts(server):
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    found = re.search(r"^Max open files +(\d+) +(\d+)", limits, re.MULTILINE)
    assert found
    assert found[1] == found[2]


def test_connections_leave_descriptors_for_files():
    rules = connection_limits(config(), 1024)
    assert (rules.max_open, rules.max_of_address) == (384, 192)
    assert connection_limits(config(), 1_000_000).max_open == 10_000
    assert connection_limits(config(MAX_CONNECTIONS="300"), 1024).max_of_address == 150
    with pytest.raises(ConfigError, match="MAX_CONNECTIONS must be at most 384"):
        connection_limits(config(MAX_CONNECTIONS="385"), 1024)


def test_the_systemd_unit_allows_as_many_files_as_the_connections_need():
    unit = (ROOT / "scripts" / "scribewire.service").read_text()
    found = re.search(r"^LimitNOFILE=(\d+)$", unit, re.MULTILINE)
    assert found
    assert connection_limits(config(), int(found[1])).max_open == MAX_CONNECTIONS


def test_a_flood_of_connections_leaves_the_server_able_to_read_files_and_its_log_short(tmp_path):
    few_files = ("sh", "-c", 'ulimit -n 500; exec "$@"', "sh")
    with run_server(tmp_path, *few_files, ENGINE="scripted") as server, ExitStack() as stack:
        client = server.client(server.new_key())
        for address in (STRANGER, "127.0.0.3", "127.0.0.4"):
            for _ in range(200):
                stack.enter_context(connect(server, address))
        for _ in range(3):
            answer = client.post("/v1/transcribe", files={"file": ("a.wav", wav())})
            assert (answer.status_code, answer.json()["status"]) == (200, "completed")
        assert not [line for line in server.log if "Too many open files" in line]
        assert len(server.log) < 50


# --- answers that are not read ---------------------------------------------------------------------------------------


def request_unread(server: AppServer, key: str, path: str, *, kept: int = 4096) -> socket.socket:
    """A connection that asks for *path* and does not read the answer. Its system keeps *kept* bytes of it."""
    host, port = server.base.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept)
    client.settimeout(10)
    client.connect((host, int(port)))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    return client


def long_job(server: AppServer, client: httpx.Client) -> str:
    """A finished job with some megabytes of text and of events, more than two systems keep for a connection."""

    async def talkative(_path, _options, done):
        for index in range(len(done), 40):
            yield chunk(index, *["word" * 500] * 40)

    server.batch.scripts["talkative"] = talkative
    files: dict[str, Any] = {"file": ("a.wav", wav())}
    data = {"prompt": "talkative", "word_timestamps": "true", "output_formats": "json"}
    record = client.post("/v1/transcribe", files=files, data=data).json()
    assert record["status"] == "completed"
    return str(record["job_id"])


@pytest.mark.parametrize(("place", "limits"), [("outputs/json", "downloads_per_job"), ("events", "per_job")])
def test_a_client_that_does_not_read_loses_its_seat_and_its_connection(tmp_path, place, limits):
    one_seat = replace(LIMITS, streams=replace(LIMITS.streams, **{limits: 1}))
    with start_impatient_server(tmp_path, unread_s=0.5, limits=one_seat) as server, server.new_client() as client:
        path = f"/v1/jobs/{long_job(server, client)}/{place}"
        key = client.headers["authorization"].removeprefix("Bearer ")
        with request_unread(server, key, path):
            until(lambda: client.head(path).status_code == 429, max_s=5)
            until(lambda: client.head(path).status_code == 200, max_s=10)
        assert client.get(path).status_code == 200


def test_a_slow_reader_keeps_its_connection(tmp_path):
    with start_impatient_server(tmp_path, unread_s=0.5) as server, server.new_client() as client:
        path = f"/v1/jobs/{long_job(server, client)}/outputs/json"
        expected = int(client.head(path).headers["content-length"])
        key = client.headers["authorization"].removeprefix("Bearer ")
        began = time.monotonic()
        with request_unread(server, key, path, kept=128 * 1024) as reader:
            seen = b""
            while len(seen.partition(b"\r\n\r\n")[2]) < expected:
                part = reader.recv(128 * 1024)
                assert part
                seen += part
                time.sleep(0.05)
        assert time.monotonic() - began > 1


def count_readers(server: AppServer) -> float:
    """Return how many follow the events of a job, as /metrics says."""
    [gauge] = server.service.parts.metrics.subscribers.collect()
    return gauge.samples[0].value


def test_a_websocket_that_is_not_read_ends(tmp_path):
    with start_impatient_server(tmp_path, unread_s=0.5) as server, server.new_client() as client:
        path = f"/v1/jobs/{long_job(server, client)}/stream"
        key = client.headers["authorization"].removeprefix("Bearer ")
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        with connect(server) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{upgrade}"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
            )
            assert reader.recv(12) == b"HTTP/1.1 101"
            until(lambda: count_readers(server) == 1, max_s=5)
            until(lambda: count_readers(server) == 0, max_s=10)
