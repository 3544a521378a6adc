"""Tests of the HTTP protocol: bytes that are no HTTP, heads without end, and requests behind one another."""

import asyncio
import json
import os
import re
from contextlib import suppress
from dataclasses import replace

import pytest

from server.transport import http_server
from tests.server.sockets import HANDSHAKE, open_wire, serve_url, start_server, wire_to
from tests.waiting import eventually

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


async def answer_to(url: str, *pieces: bytes) -> bytes:
    """Send the pieces with pauses between them, and return what comes until the server hangs up."""
    reader, writer = await open_wire(url)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.1)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_whose_body_breaks_is_over_and_no_error_in_the_log(caplog, begun):
    seen = []

    async def app(_scope, receive, send):
        if begun:
            await send(START)
            await send({"type": "http.response.body", "body": b"no", "more_body": True})
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        seen.append(message["type"])
        if not begun:
            await send(START)
        await send({"type": "http.response.body", "body": b"no"})

    async with serve_url(app) as url:
        answer = await answer_to(url, REQUEST + b"5\r\nhello\r\n", b"no length\r\n")
    assert answer.startswith(b"HTTP/1.1 200 " if begun else b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert seen == ["http.disconnect"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_bytes_that_are_no_http_are_told_so():
    async def app(_scope, _receive, _send):
        raise AssertionError("there is no request")

    async with serve_url(app) as url:
        assert (await answer_to(url, b"\x16\x03\x01\x02\x00\x01")).startswith(b"HTTP/1.1 400 ")


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
LONG_HANDSHAKE = HANDSHAKE[:-2] + b"X: " + b"y" * 9000 + b"\r\n\r\n"


async def fine(_scope, _receive, send):
    await send(START)
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(HEAD + b"X: " + b"y" * 40_000 + b"\r\n\r\n", 431, id="a long header"),
        pytest.param(HEAD + b"X: y\r\n" * 100 + b"\r\n", 431, id="many headers"),
        pytest.param(b"GET /" + b"y" * 4096 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="a long target"),
        pytest.param(b"GET /" + b"y" * 1024 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="a long path"),
        pytest.param(b"GET /?" + b"&" * 4096 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="a long query"),
        pytest.param(LONG_HANDSHAKE, 431, id="a long header of a WebSocket"),
        pytest.param(HEAD + b"X: " + b"y" * 100_000, 400, id="a header without end"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(HEAD + b"Host: y\r\n\r\n", 400, id="two hosts"),
        pytest.param(REQUEST[:-2] + b"Content-Length: 5\r\n\r\nhello", 400, id="two lengths"),
        pytest.param(REQUEST.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 400, id="a packed body"),
        pytest.param(HEAD + b"X: a\r\n b\r\n\r\n", 400, id="a folded header"),
        pytest.param(HEAD + b"X : a\r\n\r\n", 400, id="a space before the colon"),
        pytest.param(HEAD.replace(b"\r\n", b"\n") + b"\n", 400, id="bare line feeds"),
    ],
)
async def test_a_head_that_is_too_long_or_can_be_read_in_two_ways_is_refused(request_, status):
    asked = []

    async def app(scope, receive, send):
        asked.append(scope)
        await fine(scope, receive, send)

    async with serve_url(app) as url:
        answer = await asyncio.wait_for(answer_to(url, request_), 10)
    head, _, body = answer.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert problem["status"] == status
    assert f"X-Request-Id: {problem['request_id']}".encode() in head.split(b"\r\n")
    assert not asked


@pytest.mark.parametrize(("request_", "status"), [(b"no HTTP\r\n\r\n", 400), (LONG_HANDSHAKE, 431)])
async def test_an_address_that_sends_too_much_that_is_no_request_gets_429(request_, status):
    async with start_server(fine) as (server, url):
        server.connections.rules = replace(server.connections.rules, refusals_of_address=3)
        answers = [await answer_to(url, request_) for _ in range(5)]
        assert [int(answer.split()[1]) for answer in answers] == [status, status, status, 429, 429]
        assert b"Retry-After: " in answers[-1]
        assert (await answer_to(url, HEAD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("endless", [b"5;" + b"x" * 200_000, b"0\r\nX: " + b"y" * 200_000])
async def test_chunk_extensions_and_trailers_without_end_are_cut(endless):
    over = asyncio.Event()

    async def app(_scope, receive, _send):
        while (await receive())["type"] != "http.disconnect":
            pass
        over.set()

    async with serve_url(app) as url:
        with suppress(ConnectionResetError):  # what was sent after the limit is not read
            await answer_to(url, REQUEST, endless)
        await asyncio.wait_for(over.wait(), 5)


async def swallow(_scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await fine(_scope, receive, send)


@pytest.mark.parametrize(("size", "answer"), [(1, b"HTTP/1.1 400 "), (400, b"HTTP/1.1 200 ")])
async def test_a_body_of_many_tiny_chunks_is_refused(size, answer):
    chunks = (b"%x\r\n" % size + b"a" * size + b"\r\n") * 3000
    async with serve_url(swallow) as url:
        assert (await answer_to(url, REQUEST + chunks + b"0\r\n\r\n", b"no HTTP\r\n\r\n")).startswith(answer)


async def test_chunks_that_arrive_in_pieces_are_charged_as_a_whole():
    chunks = (b"%x\r\n" % 300 + b"a" * 300 + b"\r\n") * 24_000 + b"0\r\n\r\n"
    async with wire_to(swallow) as (reader, writer):
        writer.write(REQUEST)
        for at in range(0, len(chunks), 14_480):  # ten segments of Ethernet, which divide chunks
            writer.write(chunks[at : at + 14_480])
            await asyncio.sleep(0.0003)
        assert (await reader.readuntil(b"fine")).startswith(b"HTTP/1.1 200 ")


async def test_small_bodies_of_many_requests_are_no_tiny_chunks(monkeypatch):
    monkeypatch.setattr(http_server, "CHUNKS", 10)
    monkeypatch.setattr(http_server, "CHUNKS_PER_S", 1)
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    async with wire_to(swallow) as (reader, writer):
        for _ in range(40):
            writer.write(post)
            assert (await reader.readuntil(b"fine")).startswith(b"HTTP/1.1 200 ")


async def test_a_trailer_is_no_header():
    seen = []

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        seen.extend(name for name, _ in scope["headers"])
        await fine(scope, receive, send)

    async with serve_url(app) as url:
        await answer_to(url, REQUEST.replace(b"Host", b"Connection: close\r\nHost") + b"0\r\nAuthorization: x\r\n\r\n")
    assert b"transfer-encoding" in seen
    assert b"authorization" not in seen


async def test_requests_sent_together_are_answered_in_order_but_not_any_number_of_them():
    async def app(scope, _receive, send):
        await send(START)
        await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    asked = [b"GET /%03d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(100)]
    last = b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serve_url(app) as url:
        few = await answer_to(url, b"".join([*asked[:10], last]))
        many = await answer_to(url, b"".join(asked))
    assert re.findall(rb"\n/(...)", few) == [b"%03d" % number for number in range(10)] + [b"end"]
    assert many.startswith(b"HTTP/1.1 400 ")
    assert many.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("chunk", [None, 1000, 300_000])
async def test_large_bodies_sent_together_arrive_as_they_were_sent(chunk):
    bodies, seen = [os.urandom(size) for size in (3_000_001, 10, 131_072)], []

    async def app(scope, receive, send):
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        seen.append(bytes(body))
        await fine(scope, receive, send)

    def whole(body: bytes) -> bytes:
        if chunk is None:
            return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        pieces = (body[at : at + chunk] for at in range(0, len(body), chunk))
        return REQUEST + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    last = HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
    async with serve_url(app) as url:
        answer = await asyncio.wait_for(answer_to(url, b"".join([*map(whole, bodies), last])), 20)
    assert seen == [*bodies, b""]
    assert answer.count(b"HTTP/1.1 200 ") == 4


@pytest.mark.parametrize("size", [3, 5000, 300_000])
async def test_a_wish_for_http_2_is_ignored_and_the_body_is_kept(size):
    """As Java's client sends it with its first request."""
    seen = []

    async def app(scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        seen.append((scope["path"], body))
        await fine(scope, receive, send)

    body = (b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n" * (size // 20 + 1))[:size]
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\nHost: x\r\n"
    first = b"POST /first HTTP/1.1\r\n" + wish + b"Content-Length: %d\r\n\r\n" % size + body
    second = b"GET /second HTTP/1.1\r\n" + wish + b"\r\n"
    last = b"GET /last HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n"
    async with serve_url(app) as url:
        answer = await answer_to(url, first + second + second + last)
    assert seen == [("/first", body), ("/second", b""), ("/second", b""), ("/last", b"")]
    assert answer.count(b"HTTP/1.1 200 ") == 4


async def test_a_request_is_told_that_its_client_left_also_when_another_one_waits_behind_it():
    over = asyncio.Event()

    async def app(scope, receive, _send):
        assert scope["path"] == "/1"
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        over.set()

    async with wire_to(app) as (_, writer):
        writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.2)
        writer.close()
        await asyncio.wait_for(over.wait(), 5)


async def test_a_websocket_is_not_opened_behind_a_request_that_is_not_answered(caplog):
    kinds = []

    async def app(scope, receive, _send):
        kinds.append(scope["type"])
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serve_url(app) as url:
        answer = await answer_to(url, HEAD + b"\r\n" + HANDSHAKE)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert kinds == ["http"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


NONCE = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("part", "other"),
    [
        pytest.param(b"GET", b"POST", id="another method"),
        pytest.param(NONCE, b"X: y", id="no key"),
        pytest.param(NONCE, NONCE + b"\r\n" + NONCE, id="two keys"),
        pytest.param(NONCE, b"Sec-WebSocket-Key: dGhl", id="a short key"),
        pytest.param(NONCE, b"Sec-WebSocket-Key: *", id="a key that is not base64"),
        pytest.param(b"Version: 13", b"Version: 12", id="another version"),
        pytest.param(NONCE, NONCE + b"\r\nOrigin: x\r\nOrigin: y", id="two origins"),
        pytest.param(NONCE, NONCE + b"\r\nUpgrade: websocket", id="two upgrades"),
        pytest.param(NONCE, NONCE + b"\r\nContent-Length: 4", id="a body"),
        pytest.param(NONCE, NONCE + b"\r\nTransfer-Encoding: chunked", id="a body in chunks"),
    ],
)
async def test_a_websocket_is_not_opened_by_what_is_no_handshake(part, other):
    async def app(_scope, _receive, _send):
        raise AssertionError("there is no WebSocket")

    body = b"fine" if b"Length" in other else b"0\r\n\r\n" if b"chunked" in other else b""
    async with serve_url(app) as url:
        answer = await asyncio.wait_for(answer_to(url, HANDSHAKE.replace(part, other) + body), 10)
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b'"code":"upgrade_required"' in answer


async def test_a_websocket_whose_head_has_several_pieces_reads_nothing_before_it_is_accepted():
    accepting, messages = asyncio.Event(), []

    async def app(_scope, receive, send):
        messages.append(await receive())
        await accepting.wait()
        await send({"type": "websocket.accept"})
        while messages[-1]["type"] != "websocket.disconnect":
            messages.append(await receive())

    def received():
        return b"".join(message.get("bytes") or b"" for message in messages)

    long = HANDSHAKE[:-2] + b"X: " + b"y" * 3000 + b"\r\n\r\n"
    async with wire_to(app) as (reader, writer):
        writer.write(long)
        await asyncio.sleep(0.2)
        writer.write(b"\x82\x81\0\0\0\0a" * 3)
        await asyncio.sleep(0.2)
        assert [message["type"] for message in messages] == ["websocket.connect"]
        accepting.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await eventually(lambda: received() == b"aaa", max_s=5)


async def test_the_head_of_an_answer_does_not_wait_for_its_body():
    go_on = asyncio.Event()

    async def app(_scope, _receive, send):
        await send(START)
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"fine"})

    async with wire_to(app) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        assert (await asyncio.wait_for(reader.read(10_000), 5)).endswith(b"\r\n\r\n")
        go_on.set()
        assert await reader.read(10_000) == b"fine"


@pytest.mark.parametrize("name", [b"x-name", b"x-other\r\ninjected"])
@pytest.mark.parametrize("value", [b"a\r\ninjected: yes", b"a\ninjected: yes", b"a\0", b"a"])
async def test_a_header_with_a_line_break_or_another_control_character_is_never_sent(caplog, name, value):
    async def app(_scope, _receive, send):
        await send({**START, "headers": [*START["headers"], (name, value)]})
        await send({"type": "http.response.body", "body": b"fine"})

    async with serve_url(app) as url:
        answer = await answer_to(url, HEAD + b"Connection: close\r\n\r\n")
    good = (name, value) == (b"x-name", b"a")
    assert answer.startswith(b"HTTP/1.1 200 ") if good else answer == b""
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ([] if good else ["ERROR"])
