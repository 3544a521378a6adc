"""Tests of bodies.py: a body in any pieces gives fields and one file; a refused one leaves nothing on the disk."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from server.http import bodies
from server.http.bodies import MAX_FIELD_BYTES, MAX_FIELDS, MAX_FORM_BYTES, Uploads
from server.model.errors import Refused
from server.model.jobs import Received
from server.storage.sqlite.blobs import FileBlobs

BOUNDARY = "c0ffee"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
MOST = 100_000
PREFIX = "job_1"


def part(name: str, content: bytes, *, filename: str | None = None, more: str = "") -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{more}\r\n'
    return head.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def request(
    pieces: Iterable[bytes], content_type: str, *, leaves: bool = False, silent: bool = False, pause_s: float = 0.0
) -> Request:
    """Return a request whose body comes in *pieces*. After them the client *leaves*, is *silent*, or has finished.

    *pause_s* seconds pass before each piece.
    """
    waiting = iter(pieces)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause_s)
        piece = next(waiting, None)
        if piece is None and silent:
            await asyncio.sleep(3600)
        if piece is None and leaves:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    headers = [(b"content-type", content_type.encode("latin-1"))]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@asynccontextmanager
async def receive(
    blobs: FileBlobs,
    body: bytes | Iterable[bytes],
    content_type: str = MULTIPART,
    *,
    most: int = MOST,
    keep: bool = True,
    hashed: bool = True,
) -> AsyncIterator[Received]:
    pieces = [body] if isinstance(body, bytes) else body
    async with Uploads(blobs).read_body(request(pieces, content_type), job_id=PREFIX, most=most, hashed=hashed) as it:
        it.keep = keep
        yield it


@asynccontextmanager
async def open_blobs(folder: Path) -> AsyncIterator[FileBlobs]:
    blobs = FileBlobs(folder)
    yield blobs
    await blobs.close()


async def stored_bytes(blobs: FileBlobs, blob: str) -> bytes:
    return b"".join([piece async for piece in blobs.read(blob)])


def files_of(folder: Path) -> list[str]:
    """Return every file of the blob store, finished or not."""
    return [str(path) for part in ("blobs", "incoming") for path in (folder / part).rglob("*")]


async def refusal(
    folder: Path, body: bytes | Iterable[bytes], content_type: str = MULTIPART, **options: Any
) -> Refused:
    async with open_blobs(folder) as blobs:
        with pytest.raises(Refused) as caught:
            async with receive(blobs, body, content_type, **options):
                raise AssertionError("this should have been refused")
        assert files_of(folder) == []
        return caught.value


# --- what arrives --------------------------------------------------------------------------------------------------


async def test_a_form_gives_its_fields_and_its_file(tmp_path):
    audio = bytes(range(256)) * 100
    body = form(
        part("output_formats", b"json"),
        part("file", audio, filename="..\\evil/a\u202e.mp3", more="Content-Type: audio/mpeg\r\n"),
        part("output_formats", b"srt"),
        part("prompt", "Grüße".encode()),
    )
    async with open_blobs(tmp_path) as blobs, receive(blobs, body) as it:
        assert it.fields == {"output_formats": ["json", "srt"], "prompt": ["Grüße"]}
        assert (it.file.bytes, it.file.filename) == (len(audio), "a.mp3")
        assert it.file.sha256 == hashlib.sha256(audio).hexdigest()
        assert await stored_bytes(blobs, it.file.blob) == audio


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_text_before_and_behind_a_form_is_no_part_of_it(tmp_path, size):
    preamble = b"This is a message in MIME format.\r\n--c0ff\r\nnot --c0ffee yet\r\n"
    body = preamble + form(part("file", b"RIFF", filename="a.wav"), part("prompt", b"x")) + b"\r\nThe end.\r\n--c0ffee"
    async with open_blobs(tmp_path) as blobs, receive(blobs, cut(body, size)) as it:
        assert it.fields == {"prompt": ["x"]}
        assert await stored_bytes(blobs, it.file.blob) == b"RIFF"


@pytest.mark.parametrize(
    ("named", "filename"),
    [
        ("; filename*=UTF-8''na%C3%AFve%20%E4%BC%9A.wav", "naïve 会.wav"),
        ("; filename=plain.wav; filename*=UTF-8''na%C3%AFve.wav", "plain.wav"),
        ("; filename=\"\"; filename*=iso-8859-1'de'%fcber.wav", "über.wav"),
        ("; filename*=koi8-r''%fc.wav", None),
    ],
)
async def test_a_file_name_may_be_percent_encoded(tmp_path, named, filename):
    body = form(part("file", b"RIFF").replace(b'name="file"', b'name="file"' + named.encode()))
    async with open_blobs(tmp_path) as blobs, receive(blobs, body) as it:
        assert it.file.filename == filename


@pytest.mark.parametrize("filename", ["a.wav", None])
@pytest.mark.parametrize("name", ["audio_file", "audio", "upload"])
@pytest.mark.parametrize("content", [b"RIFF\0\xff", b"RIFF\0" * MAX_FIELD_BYTES])
async def test_a_recording_in_another_field_is_told_its_field(tmp_path, name, content, filename):
    body = form(part("model", b"whisper-1"), part(name, content, filename=filename))
    problem = await refusal(tmp_path, cut(body, 10_000))
    assert problem.code == "missing_input"
    assert problem.detail == f"the recording belongs in the field file, not in {name!r}"


@settings(max_examples=60)
@given(
    st.binary(max_size=400) | st.just(b"\r\n--c0ffe" * 20) | st.just(b"\r\n" * 100),
    st.integers(1, 80),
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=30),
)
async def test_any_chunking_gives_the_same_bytes(tmp_path_factory, audio, size, prompt):
    body = form(part("prompt", prompt.encode()), part("file", audio, filename="a"), part("wait", b"0"))

    async with open_blobs(tmp_path_factory.mktemp("up")) as blobs, receive(blobs, cut(body, size)) as it:
        assert it.fields == {"prompt": [prompt], "wait": ["0"]}
        assert await stored_bytes(blobs, it.file.blob) == audio


async def test_a_file_that_was_not_kept_is_deleted_after_the_block(tmp_path):
    async with open_blobs(tmp_path) as blobs:
        async with receive(blobs, form(part("file", b"x", filename="a")), keep=False):
            pass
        assert files_of(tmp_path) == []
        async with receive(blobs, form(part("file", b"x", filename="a"))) as it:
            pass
        assert await blobs.size(it.file.blob) == 1


async def test_an_empty_file_is_a_file_of_no_bytes(tmp_path):
    async with open_blobs(tmp_path) as blobs, receive(blobs, form(part("file", b"", filename="a"))) as it:
        assert it.file.bytes == 0


async def test_a_file_part_needs_no_filename(tmp_path):
    async with open_blobs(tmp_path) as blobs, receive(blobs, form(part("file", b"abc"))) as it:
        assert (it.file.bytes, it.file.filename, it.fields) == (3, None, {})


async def test_json_and_urlencoded_say_the_same(tmp_path):
    async with open_blobs(tmp_path) as blobs:
        said = {"url": "https://x.test/ä b", "wait": "0"}
        async with receive(blobs, orjson.dumps(said), "application/json; charset=utf-8") as it:
            from_json = it.fields
        body = b"url=https%3A%2F%2Fx.test%2F%C3%A4+b&wait=0"
        async with receive(blobs, body, "Application/X-WWW-Form-Urlencoded") as it:
            assert it.fields == from_json == {name: [value] for name, value in said.items()}


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", "multipart/form-data", "invalid_multipart"),
        (b"", MULTIPART, "invalid_multipart"),
        (b"garbage", MULTIPART, "invalid_multipart"),
        (b"x", f"multipart/form-data; boundary={'b' * 300}", "invalid_multipart"),
        (form(part("file", b"abc", filename="a"))[:-10], MULTIPART, "invalid_multipart"),
        (b"--c0ffee\r\nContent-Type: text/plain\r\n\r\nx\r\n--c0ffee--", MULTIPART, "invalid_multipart"),
        (b"--c0ffee\r\nContent-Disposition: form-data\r\n\r\nx\r\n--c0ffee--", MULTIPART, "invalid_multipart"),
        (b"--c0ffee\r\nB\x00d: x\r\n\r\nx\r\n--c0ffee--", MULTIPART, "invalid_multipart"),
        (form(part("a", b"", more=f"X: {'y' * 100_000}\r\n")), MULTIPART, "invalid_multipart"),
        (form(part("prompt", b"\xff")), MULTIPART, "invalid_parameter"),
        (form(part("file", b"1", filename="a"), part("file", b"2", filename="b")), MULTIPART, "invalid_parameter"),
        (form(part("prompt", b"x" * (MAX_FIELD_BYTES + 1))), MULTIPART, "invalid_multipart"),
        (form(*[part(f"f{n}", b"") for n in range(MAX_FIELDS + 1)]), MULTIPART, "invalid_multipart"),
        (b"{", "application/json", "invalid_json"),
        (b"[1]", "application/json", "invalid_json"),
        (b'{"a": "\xff"}', "application/json", "invalid_json"),
        (b"[" * 100_000, "application/json", "invalid_json"),
        (b"a=%ff", "application/x-www-form-urlencoded", "invalid_multipart"),
        (b"&".join([b"a=1"] * (MAX_FIELDS + 1)), "application/x-www-form-urlencoded", "invalid_multipart"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_refused_and_leaves_nothing(tmp_path, body, content_type, code):
    assert (await refusal(tmp_path, cut(body, 1000), content_type)).code == code


async def test_a_file_over_the_cap_is_413_and_leaves_nothing(tmp_path):
    problem = await refusal(tmp_path, cut(form(part("file", bytes(MOST + 1), filename="a")), 10_000))
    assert (problem.status, problem.code, problem.members["limit"]) == (413, "payload_too_large", MOST)
    assert problem.headers["Connection"] == "close"


async def test_a_file_of_exactly_the_cap_is_taken(tmp_path):
    body = form(part("file", bytes(MOST), filename="a"))
    async with open_blobs(tmp_path) as blobs, receive(blobs, cut(body, 10_000)) as it:
        assert it.file.bytes == MOST


async def test_a_body_that_never_ends_is_refused_when_the_cap_is_crossed(tmp_path):
    sent = []

    def endless() -> Iterator[bytes]:
        yield part("file", b"", filename="a")[:-2]
        while True:
            sent.append(10_000)
            yield bytes(10_000)

    problem = await refusal(tmp_path, endless())
    assert (problem.code, problem.members["actual"]) == ("payload_too_large", MOST + 10_000)
    assert sum(sent) == MOST + 10_000


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
async def test_a_form_without_a_file_has_a_cap_of_its_own(tmp_path, content_type):
    problem = await refusal(tmp_path, [b" " * 100_000] * 11, content_type, most=10**9)
    assert (problem.code, problem.members["limit"]) == ("payload_too_large", MAX_FORM_BYTES)


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(tmp_path):
    async with open_blobs(tmp_path) as blobs:
        half = form(part("file", bytes(500_000), filename="a"))[:300_000]
        gone = request(cut(half, 65_536), MULTIPART, leaves=True)
        with pytest.raises(ClientDisconnect):
            async with Uploads(blobs).read_body(gone, job_id=PREFIX, most=10**9):
                raise AssertionError("there was no whole body")
        assert files_of(tmp_path) == []


async def test_a_request_that_ends_while_its_file_is_published_leaves_nothing_behind(tmp_path):
    async with open_blobs(tmp_path) as blobs:
        leaving = asyncio.current_task()

        class LeavesAtTheEnd:
            delete = staticmethod(blobs.delete)

            @staticmethod
            @asynccontextmanager
            async def create(key, *, leave_reserve):
                async with blobs.create(key, leave_reserve=leave_reserve) as sink:
                    yield sink
                    leaving.cancel()

        whole = request(cut(form(part("file", b"audio", filename="a")), 64), MULTIPART)
        with pytest.raises(asyncio.CancelledError):
            async with Uploads(LeavesAtTheEnd()).read_body(whole, job_id=PREFIX, most=10**9):
                raise AssertionError("the request had ended")
        leaving.uncancel()
        assert files_of(tmp_path) == []


async def test_a_client_that_falls_silent_is_given_up_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "PACE_WINDOW_S", 0.05)
    async with open_blobs(tmp_path) as blobs:
        half = form(part("file", bytes(500_000), filename="a"))[:300_000]
        silent = request(cut(half, 65_536), MULTIPART, silent=True)
        with pytest.raises(Refused) as caught:
            async with Uploads(blobs).read_body(silent, job_id=PREFIX, most=10**9):
                raise AssertionError("there was no whole body")
        assert (caught.value.code, caught.value.status) == ("request_timeout", 408)
        assert files_of(tmp_path) == []


async def test_a_client_that_sends_byte_by_byte_is_given_up_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "PACE_WINDOW_S", 0.2)
    async with asyncio.timeout(10), open_blobs(tmp_path) as blobs:
        slow = request(cut(form(part("file", bytes(5000), filename="a")), 1), MULTIPART, pause_s=0.02)
        with pytest.raises(Refused) as caught:
            async with Uploads(blobs).read_body(slow, job_id=PREFIX, most=10**9):
                raise AssertionError("there was no whole body")
        assert (caught.value.code, str(caught.value)) == (
            "request_timeout",
            "request_timeout: less than 10 kB/s of the body arrived for 0.2 s",
        )
        assert files_of(tmp_path) == []


@pytest.mark.parametrize(("members", "fits"), [(MAX_FIELDS, True), (MAX_FIELDS + 1, False)])
async def test_a_json_body_has_as_few_members_as_a_form(tmp_path, members, fits):
    body = orjson.dumps({f"member_{number}": 1 for number in range(members)})
    if fits:
        async with open_blobs(tmp_path) as blobs, receive(blobs, body, "application/json") as it:
            assert len(it.fields) == MAX_FIELDS
    else:
        problem = await refusal(tmp_path, body, "application/json")
        assert (problem.code, problem.detail) == ("invalid_json", "the body has more than 32 members")
