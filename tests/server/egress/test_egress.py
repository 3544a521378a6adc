"""Tests of guard.py: to which addresses the service connects, and what it sends. test_targets.py has the rules."""

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network

import httpx
import pytest

from server.config import Network
from server.egress import guard
from server.egress.guard import HEAD_BYTES, PIECE_BYTES, Egress, Unresolvable
from server.egress.targets import TargetNotAllowed
from tests.server.name_server import NameServer, name_server
from tests.server.peers import answer, answer_in_turn, peer, silence
from tests.waiting import eventually

TIMEOUTS = httpx.Timeout(2.0)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" * 40
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


async def get(egress: Egress, url: str, *, asker: str = "acct_1") -> httpx.Response:
    asked = egress.request("GET", egress.parse(url), asker=asker, headers={"User-Agent": "t"}, timeouts=TIMEOUTS)
    async with asked as response:
        await response.aread()
        return response


@asynccontextmanager
async def start_egress(
    allowed: tuple[Network, ...] = (), *, allow_http: bool = False, **names: list[str] | None
) -> AsyncIterator[tuple[Egress, NameServer]]:
    """An egress, and the name server that it asks."""
    async with name_server(**names) as server:
        egress = Egress(allowed=allowed, allow_http=allow_http, names=server.resolver())
        try:
            yield egress, server
        finally:
            await egress.close()


async def test_the_connection_goes_to_the_judged_address_with_the_name_in_host():
    async with peer(answer_in_turn(answer(200, b"hi"))) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        response = await get(egress, target.url.replace("127.0.0.1", "localhost") + "/a?b=c")
        assert response.content == b"hi"
        [asked] = target.asked
        assert asked.target == "/a?b=c"
        assert asked.headers["host"] == target.url.replace("http://127.0.0.1", "localhost")
        assert asked.headers["accept-encoding"] == "identity"
        await egress.close()


async def test_a_name_is_resolved_once_for_judging_and_connecting():
    """A name server that answers otherwise the second time (DNS rebinding) is not asked a second time."""
    async with (
        peer(answer_in_turn(answer())) as inside,
        start_egress(LOOPBACK, allow_http=True, rebind_test=["127.0.0.2"]) as (egress, server),
    ):
        server.afterwards["rebind.test"] = ["127.0.0.1"]
        with pytest.raises(httpx.ConnectError):
            await get(egress, f"http://rebind.test:{inside.url.rpartition(':')[2]}/")
        assert server.asked == ["rebind.test"]
        assert inside.asked == []


async def test_one_private_address_among_public_ones_is_enough_to_refuse():
    async with start_egress(mixed_test=["93.184.216.34", "10.0.0.1"]) as (egress, _):
        with pytest.raises(TargetNotAllowed):
            await egress.check("https://mixed.test/", asker="acct_1")
        with pytest.raises(TargetNotAllowed):
            await get(egress, "https://mixed.test/")


async def test_a_name_without_an_address_may_be_named_but_not_called():
    async with start_egress(empty_test=[]) as (egress, _):
        for url in ("https://later.test/", "https://empty.test/"):
            await egress.check(url, asker="acct_1")
            with pytest.raises(Unresolvable, match=r"test has no public address"):
                await get(egress, url)


async def test_names_inside_and_unknown_names_are_refused_with_one_text():
    async with start_egress(db_test=["10.0.0.5"]) as (egress, _):
        texts = set()
        for name in ("db.test", "unknown.test"):
            with pytest.raises(TargetNotAllowed) as refused:
                await egress.check(f"https://{name}/", asker="acct_1", known=True)
            texts.add(str(refused.value).replace(name, "NAME"))
        assert texts == {"NAME has no public address"}


async def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "SERVER_S", 0.05)
    async with start_egress(slow_test=None) as (egress, server):
        with pytest.raises(Unresolvable, match=r"slow\.test has no public address"):
            await get(egress, "https://slow.test/")
        await egress.check("https://slow.test/", asker="acct_1")
        assert server.asked == ["slow.test"] * 2


async def test_a_silent_name_server_holds_up_nobody_but_the_account_that_named_it():
    """Forty accounts ask a silent server for ten names each, and somebody else is answered at once."""
    silent = {f"n{number}_test": None for number in range(10)}
    async with start_egress(LOOPBACK, allow_http=True, fine_test=["127.0.0.1"], **silent) as (egress, server):
        threads = threading.active_count()
        async with asyncio.TaskGroup() as tasks:
            waiting = [
                tasks.create_task(egress.check(f"https://n{number}.test/", asker=f"acct_{account}"))
                for account in range(40)
                for number in range(10)
            ]
            await eventually(lambda: len(server.asked) >= 40 * guard.MAX_PER_ASKER)
            began = time.monotonic()
            await egress.check("http://fine.test/", asker="somebody else")
            assert time.monotonic() - began < 1
            assert not any(task.done() for task in waiting)
            assert threading.active_count() <= threads + 1
            assert len(server.asked) == 40 * guard.MAX_PER_ASKER + 1
            for task in waiting:
                task.cancel()


async def test_the_next_address_is_tried_when_nobody_listens_at_the_first():
    async with (
        peer(answer_in_turn(answer(200, b"second"))) as target,
        start_egress(
            LOOPBACK, allow_http=True, two_test=["127.0.0.2", "127.0.0.1"], none_test=["127.0.0.2", "127.0.0.3"]
        ) as (egress, _),
    ):
        port = target.url.rpartition(":")[2]
        assert (await get(egress, f"http://two.test:{port}/")).content == b"second"
        with pytest.raises(httpx.ConnectError):
            await get(egress, f"http://none.test:{port}/")


async def test_redirects_are_answers_and_cookies_are_forgotten():
    async with peer(answer_in_turn(answer(302, Location="/x", Set_Cookie="a=b; Path=/"))) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        assert (await get(egress, target.url)).status_code == 302
        assert (await get(egress, target.url)).status_code == 302
        assert [asked.target for asked in target.asked] == ["/", "/"]
        assert all("cookie" not in asked.headers for asked in target.asked)


async def test_no_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with peer(answer_in_turn(answer(200, b"direct"))) as target:
        assert (await get(Egress(allowed=LOOPBACK, allow_http=True), target.url)).content == b"direct"


async def test_an_answer_that_does_not_come_is_a_timeout():
    async with peer(silence) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        with pytest.raises(httpx.TimeoutException):
            async with egress.request(
                "GET", egress.parse(target.url), asker="acct_1", headers={}, timeouts=httpx.Timeout(0.05, connect=1)
            ):
                pass


async def test_tls_is_asked_for_by_name_although_the_address_is_pinned():
    hello: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: hello.append(name)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with start_egress(LOOPBACK, secure_test=["127.0.0.1"]) as (egress, _):
        with pytest.raises(httpx.ConnectError):
            await get(egress, f"https://secure.test:{port}/")
    server.close()
    assert hello == ["secure.test"]


async def test_a_server_that_never_comes_to_its_answer_is_left():
    """It sends interim answers for ever. Each costs as much work as a whole one."""
    sent = 0

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(INTERIM)
                sent += len(INTERIM)
                await writer.drain()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        with pytest.raises(httpx.RemoteProtocolError, match="head of the answer"):
            await get(egress, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        counting.cancel()
        assert turns > HEAD_BYTES / PIECE_BYTES
        await egress.close()


async def test_the_body_behind_a_head_may_be_longer_than_a_head():
    body = bytes(3 * HEAD_BYTES)
    async with peer(answer_in_turn(INTERIM + answer(200, body))) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        assert (await get(egress, target.url)).content == body
        await egress.close()
