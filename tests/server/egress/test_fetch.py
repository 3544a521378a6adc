"""Tests of fetch.py: which audio is downloaded, what is refused, and how the job fails."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from server.egress import fetch as fetch_module
from server.egress.fetch import Fetcher, FetchError
from server.egress.guard import Egress
from server.egress.targets import parse_target
from server.model.errors import DiskFull
from server.model.orders import Source
from server.storage.sql.storage import Storage
from tests.server.peers import ParsedRequest, answer, answer_in_turn, peer, silence
from tests.server.storing import storage_in

BLOB = "job_1/source/1"
LOOPBACK = (ip_network("127.0.0.0/8"),)
MOST = 100_000


@asynccontextmanager
async def start_fetcher(folder: Path, *, allow_http: bool = True) -> AsyncIterator[tuple[Fetcher, Storage]]:
    async with storage_in(folder) as storage:
        egress = Egress(allowed=LOOPBACK, allow_http=allow_http)
        yield Fetcher(egress, storage.blobs), storage
        await egress.close()


async def refusal(fetcher: Fetcher, url: str, *, most: int = MOST) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(Source(type="url", url=url), asker="acct_1", blob=BLOB, most=most)
    return caught.value


async def nothing_left(storage: Storage) -> bool:
    return await storage.blobs.size(BLOB) is None and await storage.blobs.prefixes() == []


async def test_the_bytes_are_stored_and_told_of(tmp_path):
    data = bytes(range(256)) * 300
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(answer_in_turn(answer(200, data))) as source:
        asked = Source(type="url", url=source.url + "/a/talk%20one.mp3?sig=x")
        found = await fetcher.fetch(asked, asker="acct_1", blob=BLOB, most=MOST)
        assert (found.bytes, found.filename, found.url) == (len(data), "talk one.mp3", asked.url)
        assert b"".join([piece async for piece in storage.blobs.read(BLOB)]) == data
        assert source.asked[0].headers["accept-encoding"] == "identity"


async def test_ten_redirects_are_followed_and_an_eleventh_is_not(tmp_path):
    async def around(asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        left = int(asked.target[1:])
        writer.write(answer(302, Location=f"/{left - 1}") if left else answer(200, b"here"))

    async with start_fetcher(tmp_path) as (fetcher, storage), peer(around) as source:
        found = await fetcher.fetch(Source(type="url", url=f"{source.url}/10"), asker="acct_1", blob=BLOB, most=MOST)
        assert (found.bytes, found.filename) == (4, "0")
        await storage.blobs.delete("job_1")
        error = await refusal(fetcher, f"{source.url}/11")
        assert (error.code, error.retryable) == ("source_http_error", False)


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://10.0.0.1/", "source_not_allowed"),
        ("http://169.254.169.254/latest/meta-data", "source_not_allowed"),
        ("http://[64:ff9b::7f00:1]/", "source_not_allowed"),
        ("file:///etc/passwd", "source_not_allowed"),
        ("ftp://127.0.0.1/", "source_not_allowed"),
        ("https://u:p@127.0.0.1/", "source_not_allowed"),
        ("http://1]/", "source_http_error"),
        ("", "source_http_error"),
    ],
)
async def test_a_redirect_is_judged_like_the_address_itself(tmp_path, location, code):
    async with (
        start_fetcher(tmp_path) as (fetcher, storage),
        peer(answer_in_turn(answer(302, Location=location))) as source,
    ):
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable) == (code, False)
        assert await nothing_left(storage)


@pytest.mark.parametrize(
    "location",
    [
        "javascript:x",
        "http://xn--a/",
        "http://[",
        "http://[::1",
        "http://\xe2\x91\xa0.la/",
        "http:",
        "//",
        "",
        "x" * 9000,
        "\xff",
    ],
)
async def test_wherever_a_redirect_leads_it_is_the_sources_fault(tmp_path, location):
    redirect = answer_in_turn(*[answer(302, Location=location)] * 4)
    async with start_fetcher(tmp_path) as (fetcher, _), peer(redirect) as source:
        error = await refusal(fetcher, source.url + "/a")
        assert error.code in ("source_not_allowed", "source_http_error", "source_unreachable")


async def test_a_space_in_a_redirect_is_read_as_browsers_read_it(tmp_path):
    script = answer_in_turn(answer(302, Location="/my talk 1.mp3?a b"), answer(200, b"here"))
    async with start_fetcher(tmp_path) as (fetcher, _), peer(script) as source:
        found = await fetcher.fetch(Source(type="url", url=source.url), asker="acct_1", blob=BLOB, most=MOST)
        assert (found.filename, source.asked[1].target) == ("my talk 1.mp3", "/my%20talk%201.mp3?a%20b")


async def test_every_redirect_of_many_is_judged(tmp_path):
    script = answer_in_turn(*[answer(302, Location="/on")] * 7, answer(302, Location="http://10.0.0.1/"))
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(script) as source:
        error = await refusal(fetcher, source.url)
        assert (error.code, len(source.asked)) == ("source_not_allowed", 8)
        assert await nothing_left(storage)


@pytest.mark.parametrize("resource", ["/a/../b/./c.mp3?", "/?", "/a//b?sig=%2F%2f&x=[1]&&y", "/{a}|b^.mp3?x=\"'"])
async def test_what_an_address_says_is_fetched_byte_for_byte_because_a_signature_may_be_made_of_it(tmp_path, resource):
    async def lead(asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        known = {"/full": f"{source.url}{resource}", "/path": resource}
        to = known.get(asked.target)
        writer.write(answer(200, b"here") if to is None else answer(302, Location=to))

    async with start_fetcher(tmp_path) as (fetcher, storage), peer(lead) as source:
        for address in (resource, "/full", "/path"):
            await fetcher.fetch(Source(type="url", url=source.url + address), asker="acct_1", blob=BLOB, most=MOST)
            await storage.blobs.delete("job_1")
        assert [asked.target for asked in source.asked] == [resource, "/full", resource, "/path", resource]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="my talk.m4a"', "my talk.m4a"),
        ("attachment; filename=talk.m4a", "talk.m4a"),
        ("inline; filename=\"x.m4a\"; filename*=UTF-8''%D1%80%D0%B5%D1%87%D1%8C.m4a", "речь.m4a"),
        ('attachment; filename="../../etc/talk.m4a"', "talk.m4a"),
        ('attachment; filename=""', "9c1f"),
        ("attachment", "9c1f"),
        ("\xff; filename", "9c1f"),
    ],
)
async def test_a_source_may_name_its_recording(tmp_path, disposition, name):
    script = answer_in_turn(answer(200, b"here", Content_Disposition=disposition))
    async with start_fetcher(tmp_path) as (fetcher, _), peer(script) as source:
        asked = Source(type="url", url=source.url + "/download/9c1f?sig=a/b")
        assert (await fetcher.fetch(asked, asker="acct_1", blob=BLOB, most=MOST)).filename == name


AUDIO = bytes(range(256)) * 300


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(AUDIO)),
        ("X-Gzip", gzip.compress(AUDIO[:999]) + gzip.compress(AUDIO[999:])),
        ("deflate", zlib.compress(AUDIO)),
        ("deflate", zlib.compress(AUDIO)[2:-4]),
        ("identity", AUDIO),
    ],
)
async def test_a_source_that_compresses_unasked_is_unpacked(tmp_path, coding, packed):
    script = answer_in_turn(answer(200, packed, Content_Encoding=coding))
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(script) as source:
        found = await fetcher.fetch(Source(type="url", url=source.url), asker="acct_1", blob=BLOB, most=MOST)
        assert found.bytes == len(AUDIO)
        assert b"".join([piece async for piece in storage.blobs.read(BLOB)]) == AUDIO


@pytest.mark.parametrize(
    ("coding", "packed", "code", "says"),
    [
        ("gzip", gzip.compress(bytes(50_000_000)), "source_too_large", "more than 100000 bytes"),
        ("gzip", AUDIO, "source_http_error", "which they are not"),
        ("gzip", gzip.compress(AUDIO)[:-50], "source_http_error", "breaks off"),
        ("deflate", AUDIO, "source_http_error", "which they are not"),
        ("br", AUDIO, "source_http_error", "'br'"),
    ],
)
async def test_what_cannot_be_unpacked_within_the_limits_is_refused(tmp_path, coding, packed, code, says):
    script = answer_in_turn(answer(200, packed, Content_Encoding=coding))
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(script) as source:
        error = await refusal(fetcher, source.url)
        assert error.code == code
        assert says in str(error)
        assert await nothing_left(storage)


async def test_a_path_that_looks_like_a_host_gives_a_name_or_none(tmp_path):
    async with start_fetcher(tmp_path) as (fetcher, _), peer(answer_in_turn(answer(200, b"here"))) as source:
        asked = Source(type="url", url=source.url + "//[a/b.mp3")
        assert (await fetcher.fetch(asked, asker="acct_1", blob=BLOB, most=MOST)).filename == "b.mp3"


async def test_a_redirect_never_leads_from_https_to_http(tmp_path):
    async with start_fetcher(tmp_path) as (fetcher, _):
        secure = parse_target("https://127.0.0.1/", allow_http=True, allowed=LOOPBACK)
        response = fetch_module.httpx.Response(302, headers={"location": "http://127.0.0.1/"})
        with pytest.raises(FetchError) as caught:
            fetcher._redirect_target(secure, response)
        assert caught.value.code == "source_not_allowed"


async def test_an_address_that_may_not_be_called_is_not_called(tmp_path):
    async with start_fetcher(tmp_path, allow_http=False) as (fetcher, _), peer(answer_in_turn(answer())) as source:
        assert (await refusal(fetcher, source.url)).code == "source_not_allowed"
        assert source.asked == []


@pytest.mark.parametrize(("status", "retryable"), [(404, False), (403, False), (204, False), (500, True), (429, True)])
async def test_a_status_other_than_200_is_the_sources_error(tmp_path, status, retryable):
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(answer_in_turn(answer(status))) as source:
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable) == ("source_http_error", retryable)
        assert str(status) in str(error)
        assert await nothing_left(storage)


async def test_too_many_bytes_declared_are_not_even_begun(tmp_path):
    async def declare_too_much(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n")
        await writer.drain()
        await silence(_asked, writer)

    async with start_fetcher(tmp_path) as (fetcher, storage), peer(declare_too_much) as source:
        assert (await refusal(fetcher, source.url)).code == "source_too_large"
        assert await nothing_left(storage)


async def test_an_endless_body_is_cut_off_at_the_cap(tmp_path):
    async def endless(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
            await writer.drain()

    async with start_fetcher(tmp_path) as (fetcher, storage), peer(endless) as source:
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable) == ("source_too_large", False)
        assert await nothing_left(storage)


async def test_a_source_that_dribbles_is_given_up_after_the_total_time(tmp_path, monkeypatch):
    async def dribble(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    monkeypatch.setattr(fetch_module, "TOTAL_S", 0.2)
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(dribble) as source:
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable) == ("source_timeout", True)
        assert await nothing_left(storage)


def at_a_rate(
    pieces: int, size: int, pause_s: float
) -> Callable[[ParsedRequest, asyncio.StreamWriter], Awaitable[None]]:
    """An answer in *pieces* of *size* bytes, with a pause before each."""

    async def send(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (pieces * size))
        for _ in range(pieces):
            await asyncio.sleep(pause_s)
            if not writer.is_closing():
                writer.write(bytes(size))
            await writer.drain()

    return send


async def test_a_source_that_sends_less_than_the_least_rate_is_given_up_long_before_the_total_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(fetch_module, "PACE_WINDOW_S", 0.2)
    async with (
        asyncio.timeout(10),
        start_fetcher(tmp_path) as (fetcher, storage),
        peer(at_a_rate(1000, 1, 0.05)) as source,
    ):
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable, str(error)) == (
            "source_timeout",
            True,
            "the source sends less than 10 kB/s",
        )
        assert await nothing_left(storage)


async def test_a_source_that_pauses_but_sends_enough_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "PACE_WINDOW_S", 0.5)
    async with start_fetcher(tmp_path) as (fetcher, _), peer(at_a_rate(6, 6000, 0.2)) as source:
        found = await fetcher.fetch(Source(type="url", url=source.url), asker="acct_1", blob=BLOB, most=MOST)
        assert found.bytes == 36_000


async def test_a_connection_that_breaks_off_leaves_nothing_and_may_be_tried_again(tmp_path):
    async def half(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

    async with start_fetcher(tmp_path) as (fetcher, storage), peer(half) as source:
        error = await refusal(fetcher, source.url)
        assert (error.code, error.retryable) == ("source_unreachable", True)
        assert await nothing_left(storage)


async def test_nobody_listening_may_be_tried_again(tmp_path):
    async with start_fetcher(tmp_path) as (fetcher, _):
        async with peer(answer_in_turn(answer())) as gone:
            url = gone.url
        error = await refusal(fetcher, url)
        assert (error.code, error.retryable) == ("source_unreachable", True)


async def test_what_is_no_http_is_unreachable(tmp_path):
    async with start_fetcher(tmp_path) as (fetcher, _), peer(answer_in_turn(b"SSH-2.0-OpenSSH_9.6\r\n")) as source:
        assert (await refusal(fetcher, source.url)).code == "source_unreachable"


async def test_a_full_disk_is_not_the_sources_fault(tmp_path):
    async with start_fetcher(tmp_path) as (fetcher, storage), peer(answer_in_turn(answer(200, b"x" * 10))) as source:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(storage.blobs), "create", _no_room)
            with pytest.raises(DiskFull):
                await fetcher.fetch(Source(type="url", url=source.url), asker="acct_1", blob=BLOB, most=MOST)


@asynccontextmanager
async def _no_room(_self: object, _key: str, **_: object) -> AsyncIterator[None]:
    raise DiskFull("no space left")
    yield
