"""Tests of the HTTP protocol: answers that end with the connection, and clients that send no more or have left."""

import asyncio

import pytest

from tests.server.sockets import serve_url, wire_to
from tests.server.transport.test_http_protocol import START, answer_to


async def test_an_answer_of_unknown_length_ends_with_the_connection_for_a_client_of_http_1_0():
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one ", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serve_url(app) as url:
        head, _, body = (await answer_to(url, b"GET / HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        chunked = await answer_to(url, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert body == b"one two"
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert chunked.endswith(b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_client_that_sends_no_more_gets_the_answers_to_its_requests(version):
    may_answer = asyncio.Event()
    ends = []

    async def app(_scope, receive, send):
        await receive()
        await may_answer.wait()
        await send(START)
        await send({"type": "http.response.body", "body": b"fine"})
        ends.append(await receive())

    async with wire_to(app) as (reader, writer):
        requests = 1 if version == b"1.0" else 2
        writer.write(b"POST / HTTP/%s\r\nHost: x\r\nContent-Length: 1\r\n\r\nx" % version * requests)
        writer.write_eof()
        await asyncio.sleep(0.2)  # the end has come to the server
        may_answer.set()
        answer = await reader.read()
    assert answer.count(b"\r\n\r\nfine") == requests
    assert len(ends) == requests


async def test_a_request_that_is_cut_off_is_over_at_once():
    seen = asyncio.Queue()

    async def app(_scope, receive, _send):
        while (message := await receive())["type"] == "http.request":
            assert message["more_body"]
        seen.put_nowait(message["type"])

    async with wire_to(app) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        writer.write_eof()
        assert await asyncio.wait_for(seen.get(), 5) == "http.disconnect"
        assert await reader.read() == b""


async def test_a_client_that_has_left_is_noticed_while_its_answer_is_made():
    seen = asyncio.Queue()

    async def app(_scope, receive, _send):
        await receive()
        seen.put_nowait("begun")
        seen.put_nowait((await receive())["type"])

    async with wire_to(app) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await asyncio.wait_for(seen.get(), 5) == "begun"
        writer.close()
        assert await asyncio.wait_for(seen.get(), 5) == "http.disconnect"
