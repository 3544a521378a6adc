"""Tests of guard.py: to which addresses the service connects, and what it sends. test_targets.py has the rules."""

import asyncio
import socket
import ssl
from ipaddress import ip_network

import httpx
import pytest

from server.egress import guard as egress_module
from server.egress.guard import Egress, Patience, Unresolvable
from server.egress.targets import TargetNotAllowed
from tests.server.peers import answer, peer, saying, silence
from tests.server.storing import in_a_loop

PATIENCE = Patience(connect_s=2.0, read_s=2.0)
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


async def get(egress: Egress, url: str) -> httpx.Response:
    async with egress.request("GET", egress.parse(url), headers={"User-Agent": "t"}, patience=PATIENCE) as response:
        await response.aread()
        return response


class Names(dict[str, list[str]]):
    """A resolver with fixed names and addresses. *looked_up* has the names that it was asked for."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.afterwards: dict[str, list[str]] = {}  # the addresses from the second lookup on

    def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        addresses = self[host] if host not in self.looked_up else self.afterwards.get(host, self[host])
        self.looked_up.append(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


@pytest.fixture
def names(monkeypatch):
    """Replace the resolver of the egress in a test."""
    names = Names()
    monkeypatch.setattr(egress_module.socket, "getaddrinfo", names.getaddrinfo)
    return names


@in_a_loop
async def test_the_connection_goes_to_the_judged_address_with_the_name_in_host():
    async with peer(saying(answer(200, b"hi"))) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        response = await get(egress, target.url.replace("127.0.0.1", "localhost") + "/a?b=c")
        assert response.content == b"hi"
        [asked] = target.asked
        assert asked.target == "/a?b=c"
        assert asked.headers["host"] == target.url.replace("http://127.0.0.1", "localhost")
        assert asked.headers["accept-encoding"] == "identity"
        await egress.close()


def test_a_name_is_resolved_once_for_judging_and_connecting(names):
    """A name server that gives another answer the second time (DNS rebinding) is asked only once."""

    async def main() -> None:
        async with peer(saying(answer())) as inside:
            names["rebind.test"], names.afterwards["rebind.test"] = ["127.0.0.2"], ["127.0.0.1"]
            egress = Egress(allowed=LOOPBACK, allow_http=True)
            with pytest.raises(httpx.ConnectError):
                await get(egress, f"http://rebind.test:{inside.url.rpartition(':')[2]}/")
            assert names.looked_up == ["rebind.test"]
            assert inside.asked == []

    asyncio.run(main())


def test_one_private_address_among_public_ones_is_enough_to_refuse(names):
    names["mixed.test"] = ["93.184.216.34", "10.0.0.1"]

    async def main() -> None:
        egress = Egress(allowed=(), allow_http=False)
        with pytest.raises(TargetNotAllowed):
            await egress.check("https://mixed.test/")
        with pytest.raises(TargetNotAllowed):
            await get(egress, "https://mixed.test/")

    asyncio.run(main())


def test_a_name_without_an_address_may_be_named_but_not_called(names):
    names["later.test"] = []

    async def main() -> None:
        egress = Egress(allowed=(), allow_http=False)
        await egress.check("https://later.test/")
        with pytest.raises(Unresolvable, match=r"later\.test has no address"):
            await get(egress, "https://later.test/")

    asyncio.run(main())


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    released = asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(egress_module, "LOOKUP_S", 0.05)
        monkeypatch.setattr(
            egress_module.socket,
            "getaddrinfo",
            lambda *_, **__: asyncio.run_coroutine_threadsafe(released.wait(), loop).result(),
        )
        egress = Egress(allowed=(), allow_http=False)
        with pytest.raises(Unresolvable, match="could not be looked up"):
            await get(egress, "https://slow.test/")
        await egress.check("https://slow.test/")
        released.set()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_the_next_address_is_tried_when_nobody_listens_at_the_first(names):
    async def main() -> None:
        async with peer(saying(answer(200, b"second"))) as target:
            names["two.test"] = ["127.0.0.2", "127.0.0.1"]
            port = target.url.rpartition(":")[2]
            egress = Egress(allowed=LOOPBACK, allow_http=True)
            assert (await get(egress, f"http://two.test:{port}/")).content == b"second"
            names["none.test"] = ["127.0.0.2", "127.0.0.3"]
            with pytest.raises(httpx.ConnectError):
                await get(egress, f"http://none.test:{port}/")

    asyncio.run(main())


@in_a_loop
async def test_redirects_are_answers_and_cookies_are_forgotten():
    async with peer(saying(answer(302, Location="/x", Set_Cookie="a=b; Path=/"))) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        assert (await get(egress, target.url)).status_code == 302
        assert (await get(egress, target.url)).status_code == 302
        assert [asked.target for asked in target.asked] == ["/", "/"]
        assert all("cookie" not in asked.headers for asked in target.asked)


@in_a_loop
async def test_no_proxy_of_the_environment_is_used():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        patch.setenv("ALL_PROXY", "http://127.0.0.1:1")
        async with peer(saying(answer(200, b"direct"))) as target:
            assert (await get(Egress(allowed=LOOPBACK, allow_http=True), target.url)).content == b"direct"


@in_a_loop
async def test_an_answer_that_does_not_come_is_a_timeout():
    async with peer(silence) as target:
        egress = Egress(allowed=LOOPBACK, allow_http=True)
        with pytest.raises(httpx.TimeoutException):
            async with egress.request(
                "GET", egress.parse(target.url), headers={}, patience=Patience(connect_s=1, read_s=0.05)
            ):
                pass


def test_tls_is_asked_for_by_name_although_the_address_is_pinned(names):
    hello: list[str | None] = []

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = lambda _socket, name, _context: hello.append(name)
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", ssl=context)
        port = server.sockets[0].getsockname()[1]
        names["secure.test"] = ["127.0.0.1"]
        with pytest.raises(httpx.ConnectError):
            await get(Egress(allowed=LOOPBACK, allow_http=False), f"https://secure.test:{port}/")
        server.close()

    asyncio.run(main())
    assert hello == ["secure.test"]
