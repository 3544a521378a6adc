"""Tests of bodies.py, and of what bodies.py takes places for: large bodies arrive few at a time."""

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest

from server.http.bodies import MAX_ESCAPES, MAX_FORM_BYTES, MAX_VALUES, LargeBodies, Place, Uploads, parse_json
from server.http.problems import Problem
from server.model.errors import ConcurrencyLimited, Refused
from server.storage.sqlite.blobs import FileBlobs
from tests.server.http.test_bodies import MULTIPART, cut, form, part, request

LARGE = frozenset({"known_speaker_references"})
SHORT_S = 0.05


async def arrives(bodies: LargeBodies, account: str, stack: AsyncExitStack) -> Place:
    place = await stack.enter_async_context(bodies.body(account))
    await place.claim()
    return place


async def test_an_account_has_one_place_and_hinders_nobody_else(monkeypatch):
    monkeypatch.setattr("server.http.bodies.WAIT_S", SHORT_S)
    bodies = LargeBodies()
    async with AsyncExitStack() as first, AsyncExitStack() as others:
        place = await arrives(bodies, "one", first)
        await place.claim()  # again: it has its place
        with pytest.raises(ConcurrencyLimited):
            await arrives(bodies, "one", others)
        await arrives(bodies, "two", others)
        await first.aclose()
        await arrives(bodies, "one", others)


async def test_who_takes_too_long_to_send_loses_the_place_and_a_whole_body_does_not(monkeypatch):
    monkeypatch.setattr("server.http.bodies.PLACES", 1)
    monkeypatch.setattr("server.http.bodies.ARRIVAL_S", SHORT_S)
    bodies = LargeBodies()

    async def send_slowly(late: AsyncExitStack) -> None:
        async with AsyncExitStack() as slow:
            await arrives(bodies, "slow", slow)
            with pytest.raises(Refused, match="too many large bodies"):
                await arrives(bodies, "late", late)
            await asyncio.sleep(60)

    async with AsyncExitStack() as late:
        with pytest.raises(Problem) as lost:
            await send_slowly(late)
        assert (lost.value.code, lost.value.status) == ("request_timeout", 408)
        (await arrives(bodies, "late", late)).settle()
        await asyncio.sleep(2 * SHORT_S)


async def test_a_body_that_is_large_arrives_after_that_of_the_same_account(tmp_path, monkeypatch):
    monkeypatch.setattr("server.http.bodies.WAIT_S", SHORT_S)
    uploads = Uploads(FileBlobs(tmp_path, reserve_bytes=0))
    recordings = [part("known_speaker_references", bytes(MAX_FORM_BYTES // 2 + 1)) for _ in range(2)]
    of_json = orjson.dumps({"known_speaker_references": ["a" * MAX_FORM_BYTES]})
    bodies = [(form(*recordings), MULTIPART), (of_json, "application/json")]
    for body, content_type in bodies:
        async with uploads.read_body(
            request(cut(body, 65_536), content_type), job_id="job_1", most=1000, large=LARGE
        ) as first:
            assert first.field_bytes > MAX_FORM_BYTES
            for other, of_type in bodies:
                with pytest.raises(ConcurrencyLimited):
                    async with uploads.read_body(
                        request(cut(other, 65_536), of_type), job_id="job_2", most=1000, large=LARGE
                    ):
                        raise AssertionError("there was no place")


async def test_fields_of_a_form_are_bounded_together(tmp_path):
    uploads = Uploads(FileBlobs(tmp_path, reserve_bytes=0))
    body = form(*[part("known_speaker_references", bytes(6_000_000)) for _ in range(3)])
    with pytest.raises(Refused) as caught:
        async with uploads.read_body(request(cut(body, 500_000), MULTIPART), job_id="job_1", most=10**9, large=LARGE):
            raise AssertionError("it has 18 MB")
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize("item", [b"[]", b"{}", b"1", b"[[[]]]", b'""', b'"\\"",[1]'])
def test_a_json_body_of_very_many_values_is_not_parsed(item):
    with pytest.raises(Refused) as caught:
        parse_json(b'{"a":[' + b",".join([item] * (MAX_VALUES + 2)) + b"]}")
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("text", ["a,b[{", '"quoted", \\"twice\\", ', "\\,"])
def test_text_with_very_many_commas_is_one_value(text):
    prompt = {"prompt": text * MAX_VALUES}
    assert parse_json(orjson.dumps(prompt)) == prompt


async def test_a_form_of_very_many_escapes_is_refused(tmp_path):
    uploads = Uploads(FileBlobs(tmp_path, reserve_bytes=0))
    body, content_type = b"prompt=" + b"%41" * (MAX_ESCAPES + 1), "application/x-www-form-urlencoded"
    with pytest.raises(Refused) as caught:
        async with uploads.read_body(request([body], content_type), job_id="job_1", most=1000, large=LARGE):
            raise AssertionError("it has too many escapes")
    assert caught.value.code == "invalid_multipart"
