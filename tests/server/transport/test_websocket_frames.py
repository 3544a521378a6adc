"""Tests of websocket.py: how many frames a peer may send, and how fast."""

import asyncio
from contextlib import suppress
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from server.transport.websocket import MAX_FRAGMENTS, PricedFrames
from tests.server.sockets import HANDSHAKE, keep, serve_url, start_server, stranger
from tests.waiting import eventually

PING = b"\x89\x80\0\0\0\0"
EMPTY = b"\x82\x80\0\0\0\0"


async def listen_on(_scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        pass


@given(
    frames=st.lists(
        st.builds(
            Frame,
            st.sampled_from((Opcode.BINARY, Opcode.BINARY, Opcode.TEXT, Opcode.CONT, Opcode.PING)),
            st.sampled_from((0, 1, 125, 126, 6400, 65_535, 65_536)).map(bytes),
            st.booleans(),
        ).filter(lambda frame: frame.opcode is not Opcode.PING or (frame.fin and len(frame.data) <= 125)),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 200_000), max_size=4),
)
def test_frames_are_parsed_alike_however_they_are_cut_into_packets(frames, cuts):
    """The parser of websockets says what is right: also which frames must not follow each other."""
    ours, theirs = PricedFrames(max_size=2**20), ServerProtocol(max_size=2**20)
    sent = [frame.serialize(mask=True) for frame in frames]
    ends = {*accumulate(map(len, sent)), *(cut for cut in cuts if cut < sum(map(len, sent)))}
    packets = [HANDSHAKE, *(b"".join(sent)[start:end] for start, end in pairwise(sorted({0, *ends})))]
    for packet in packets:
        theirs.receive_data(packet)
        if not ours.parse_message(packet):
            ours.hold(packet)
        while ours.held:
            ours.parse_more()
        if packet is HANDSHAKE:
            for one in (ours, theirs):
                one.send_response(one.accept(one.events_received()[0]))
    assert ours.events_received() == theirs.events_received()
    assert ours.state == theirs.state
    assert type(ours.parser_exc) is type(theirs.parser_exc)


@pytest.mark.parametrize("part", [b"", b"x"])
async def test_a_message_has_a_bounded_number_of_frames(part):
    async with serve_url(keep) as url, connect(url, proxy=None) as writer:
        await writer.send([part] * (MAX_FRAGMENTS - 1))  # and an empty one for its end
        await writer.send([part] * (MAX_FRAGMENTS + 1))
        await writer.wait_closed()
        assert writer.close_code == 1009


async def test_a_peer_that_reads_no_answer_to_its_pings_is_cut():
    over = asyncio.Event()

    async def app(scope, receive, send):
        await keep(scope, receive, send)
        over.set()

    async with serve_url(app) as url:
        host, port = url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(HANDSHAKE)
        await reader.readexactly(12)
        ping = b"\x89\xfd" + bytes(4) + bytes(125)  # with a mask of zeros
        async with asyncio.timeout(20):
            while not over.is_set():
                writer.write(ping * 1000)
                with suppress(ConnectionError):
                    await writer.drain()
                await asyncio.sleep(0)
        writer.transport.abort()


async def test_a_peer_that_sends_hundreds_of_pings_is_cut():
    async with serve_url(listen_on) as url, stranger(url) as (reader, writer):
        writer.write(PING * 1000)
        said = await asyncio.wait_for(reader.read(), 10)
    assert said.count(b"\x8a\x00") == 64
    assert b"\x88\x11\x03\xf0too many frames" in said  # 1008


async def test_a_peer_that_pings_every_now_and_then_is_not():
    async with start_server(listen_on, ping_s=60) as (_, url), stranger(url) as (reader, writer):
        for _ in range(80):
            writer.write(PING)
            await asyncio.sleep(0.02)
        assert (await reader.readexactly(160)).count(b"\x8a\x00") == 80


async def test_frames_without_audio_are_taken_slowly_and_none_is_lost():
    taken = []

    async def app(scope, receive, send):
        await listen_on(scope, count_messages(receive), send)

    def count_messages(receive):
        async def count():
            message = await receive()
            taken.append(asyncio.get_running_loop().time())
            return message

        return count

    async with start_server(app, ping_s=60) as (_, url), stranger(url) as (_, writer):
        writer.write(EMPTY * 2000 + b"\x88\x80\0\0\0\0")
        await eventually(lambda: len(taken) >= 2002)
    assert 0.6 < taken[-1] - taken[0] < 5  # 1000 at once, and 1000 a second


async def test_audio_in_frames_of_64_samples_is_taken_at_the_pace_of_real_time():
    frame, sent, taken = b"\x82\xfe\0\x80\0\0\0\0" + bytes(128), [], []
    clock = asyncio.get_running_loop().time

    async def app(scope, receive, send):
        async def note():
            message = await receive()
            taken.extend([clock()] * (len(message.get("bytes") or b"") // 128))
            return message

        await listen_on(scope, note, send)

    async with start_server(app, ping_s=60) as (_, url), stranger(url) as (_, writer):
        began = clock()
        while len(sent) < 3 * 750:
            due = min(round((clock() - began) * 750), 3 * 750) - len(sent)
            writer.write(frame * due)
            sent += [clock()] * due
            await asyncio.sleep(0.005)
        await eventually(lambda: len(taken) == len(sent))
    assert max(got - gone for gone, got in zip(sent, taken, strict=True)) < 0.4


async def test_what_one_peer_sends_at_once_is_parsed_a_little_at_a_time():
    longest = 0.0

    async def watch():
        nonlocal longest
        while True:
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(0)
            longest = max(longest, asyncio.get_running_loop().time() - began)

    async with serve_url(listen_on) as url, stranger(url) as (reader, writer):
        watching = asyncio.create_task(watch())
        writer.write(EMPTY * 20_000)
        await asyncio.sleep(0.5)
        watching.cancel()
        assert not reader.at_eof()
    assert longest < 0.05  # parsing all of it takes 0.2 s


async def test_who_goes_on_sending_after_the_close_is_cut():
    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4401})

    async with serve_url(app) as url, stranger(url) as (reader, writer):
        assert b"\x88\x02\x11\x31" in await reader.readexactly(4)
        writer.write(EMPTY * 4000)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)  # who sends nothing is cut after 10 s


async def test_what_is_sent_before_the_socket_is_open_is_parsed_when_it_is():
    opened, seen = asyncio.Event(), []

    async def app(_scope, receive, send):
        await receive()
        await opened.wait()
        await send({"type": "websocket.accept"})
        seen.append((await receive())["bytes"])
        await send({"type": "websocket.close"})

    async with serve_url(app) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("ws://").split(":"))
        writer.write(HANDSHAKE)
        await asyncio.sleep(0.1)
        writer.write(b"\x82\x81\0\0\0\0a")
        await asyncio.sleep(0.1)
        opened.set()
        await reader.readuntil(b"\x88")
        writer.close()
    assert seen == [b"a"]
