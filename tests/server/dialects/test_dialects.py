"""Tests of dialects as plug-ins: one more is a folder and a line of registration, and has everything that ours have."""

import asyncio
import json

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from websockets.asyncio.client import connect

from server.dialects.registered import DIALECTS
from tests.server.receiving import receiver
from tests.server.serving import serve, wav
from tests.server.toy.dialect import TOY


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), dialects=(*DIALECTS, TOY)) as it:
        yield it


@pytest.fixture
def client(server):
    with server.new_client() as it:
        yield it


def test_a_new_dialect_makes_jobs_of_its_requests_and_answers_in_its_own_shape(client):
    assert client.post("/v1/toy", content=wav(), headers={"Content-Type": "audio/wav"}).json() == {
        "said": "SO MY FELLOW"
    }
    [job] = client.get("/v1/jobs").json()["data"]
    assert job["status"] == "completed"


def test_its_errors_have_the_shape_of_its_clients(client):
    refused = client.post("/v1/toy", content=b"no audio" * 100)
    assert (refused.status_code, refused.json()) == (415, {"oh": "unsupported_audio_format"})


def test_its_callbacks_are_written_by_it_from_what_the_job_remembers(client):
    with receiver() as there:
        accepted = client.post(f"/v1/toy?tell={there.url}&mark=?", content=wav())
        [got] = there.wait_for(1)
    assert json.loads(got.body) == {"said": "SO MY FELLOW?"}
    assert client.get(f"/v1/jobs/{accepted.json()['number']}").json()["status"] == "completed"


async def test_its_sockets_are_live_sessions(server):
    address = f"ws{server.base.removeprefix('http')}/v1/toy"
    key = server.key(environment="production")
    async with connect(address, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None) as socket:
        for _ in range(30):
            await socket.send(bytes(3200))
        await socket.send("done")
        async with asyncio.timeout(20):
            words = [json.loads(message) async for message in socket]
    assert all(word == word.upper() for word in words)
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
        [record] = (await http.get(f"{server.base}/v1/jobs")).json()["data"]
    assert (record["status"], record["duration"]) == ("completed", 3.0)


def test_it_is_described_with_its_tag_and_its_schemas(server):
    document = server.description.document
    validate(document, cls=OpenAPIV31SpecValidator)
    assert {"name": "toy", "description": "The same service for toys"} in document["tags"]
    assert {"ToyAnswer", "ToyError"} <= set(document["components"]["schemas"])
    assert document["paths"]["/v1/toy"]["post"]["tags"] == ["toy"]
