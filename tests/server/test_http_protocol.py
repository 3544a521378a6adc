"""Tests of http_protocol.py: bytes that are no HTTP, sent while a request of the same client is being answered."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.server.storing import in_a_loop
from tests.server.test_patient_websocket import serving

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


async def answer_to(url: str, *pieces: bytes) -> bytes:
    """Send the pieces with pauses between them, and return what comes until the server hangs up."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.1)
    answer = await reader.read()
    writer.close()
    return answer


@in_a_loop
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

    async with serving(app) as url:
        answer = await answer_to(url, REQUEST + b"5\r\nhello\r\n", b"no length\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK" if begun else b"HTTP/1.1 400 Bad Request")
    assert answer.count(b"HTTP/1.1") == 1
    assert seen == ["http.disconnect"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@in_a_loop
async def test_bytes_that_are_no_http_are_told_so():
    async def app(_scope, _receive, _send):
        raise AssertionError("there is no request")

    async with serving(app) as url:
        assert (await answer_to(url, b"\x16\x03\x01\x02\x00\x01")).startswith(b"HTTP/1.1 400 Bad Request")
