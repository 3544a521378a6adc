"""What tests of /v1/transcribe and /v1/jobs share: small files to send, and engines that wait or fail when told to."""

import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from pipeline.errors import InvalidAudio
from pipeline.words import Chunk
from tests.server.serving import AppServer, chunk, serve, wav
from tests.waiting import eventually, until

AUDIO = {"file": ("talk.wav", wav())}
ASYNC = {"Prefer": "respond-async"}


@contextmanager
def serve_gates(folder: Path) -> Iterator[AppServer]:
    """Start a server whose engine waits for a prompt's word "gate", and fails for "fail"."""
    with serve(folder, WAIT_MAX="30", WORKERS="3") as server:
        server.batch.scripts |= {"gate": gate, "fail": fail}
        yield server


GATES: dict[str, threading.Event] = {}


async def gate(_path: object, options: object, _done: object) -> AsyncGenerator[Chunk]:
    """Yield one chunk, and the second when the account's gate is open."""
    yield chunk(0, "so")
    await eventually(GATES[options.tenant].is_set)
    yield chunk(1, "my")


async def fail(*_: object) -> AsyncGenerator[Chunk]:
    raise InvalidAudio("cut off")
    yield


def submit(client: httpx.Client, *, headers: dict[str, str] | None = None, **data: str) -> dict:
    response = client.post("/v1/transcribe", files=AUDIO, data=data, headers=headers or {})
    assert response.is_success, response.text
    return response.json()


def wait_for_record(client: httpx.Client, job_id: str, holds) -> dict:
    """Wait until *holds* is true of the job's record, and return it."""

    def look() -> dict | None:
        record = client.get(f"/v1/jobs/{job_id}").json()
        return record if holds(record) else None

    return until(look)


def code(response: httpx.Response) -> str:
    return str(response.json()["code"])
