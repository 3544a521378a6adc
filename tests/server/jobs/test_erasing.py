"""Deletion that can be proven: no byte of what was spoken and written stays in the files; a line of record does."""

import asyncio
import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.recognition.engines.scripted import SCRIPT
from server.jobs import housekeeping
from server.jobs.housekeeping import Eraser, Sweeper
from server.metrics import Metrics
from server.model.jobs import ErasedPart, ErasureReason
from server.model.orders import Order
from tests.server.receiving import receiver
from tests.server.running import Server
from tests.server.serving import AppServer, chunk, serve, wav
from tests.server.storing import HOUR, LEASE_S, claim, completion, submit, word
from tests.server.talking import Caller, open_talk, silence
from tests.waiting import until

SPOKEN, WRITTEN = "Spokenmarker", "writtenmarker"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("erasing")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[AppServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(housekeeping, "TIDY_S", 0.1)
        with serve(folder) as it:
            yield it


def traces(folder: Path, *marks: str) -> list[str]:
    """The files in *folder* that hold one of *marks*. Another process looks: closing a file here drops its locks."""
    patterns = [word for mark in marks for word in ("-e", mark)]
    return subprocess.run(
        ["grep", "-rlaF", *patterns, str(folder)], capture_output=True, text=True, check=False
    ).stdout.split()


def is_erased(folder: Path, *marks: str) -> bool:
    return until(lambda: not traces(folder, *marks))


async def says_marker(_path, _options, done):
    if not done:
        yield chunk(0, SPOKEN, "and", SPOKEN.lower())


def transcribe(server: AppServer, client, hook: str) -> str:
    """A finished job whose markers stand in its words, metadata, prompt, webhook address, file name and audio."""
    prompt = f"{WRITTEN} prompt"
    server.batch.scripts[prompt] = says_marker
    answer = client.post(
        "/v1/transcribe",
        files={"file": (f"{WRITTEN}.wav", wav() + WRITTEN.encode())},
        data={
            "prompt": prompt,
            "metadata": f'{{"{WRITTEN}": "{WRITTEN}"}}',
            "webhook_url": f"{hook}/{WRITTEN}",
            "word_timestamps": "true",
            "output_formats": "json,srt,vtt,txt",
            "wait": "20",
        },
    )
    assert answer.json()["text"] == f"{SPOKEN} and {SPOKEN.lower()}"
    return str(answer.json()["job_id"])


def test_delete_leaves_no_byte_of_a_job_in_the_data_folder(server, folder, caplog):
    caplog.set_level(logging.INFO, "scribewire")
    with server.new_client() as client, receiver() as hook:
        job_id = transcribe(server, client, hook.url)
        hook.wait_for(1)
        assert SPOKEN in hook.got[0].body.decode()
        assert traces(folder, SPOKEN)
        assert traces(folder, WRITTEN)
        assert client.delete(f"/v1/jobs/{job_id}").status_code == 204
        assert is_erased(folder, SPOKEN, SPOKEN.lower(), WRITTEN)
        assert client.get(f"/v1/jobs/{job_id}").status_code == 404
    [line] = server.wait(server.storage.upkeep.erasures(job_id=job_id, limit=10))
    assert (line.what, line.why) == (ErasedPart.JOB, ErasureReason.REQUESTED)
    told = Server(folder / "data").cli("erasures", "--job", job_id)
    assert [(row["job_id"], row["what"], row["why"]) for row in json.loads(told)] == [(job_id, "job", "requested")]
    [record] = [one for one in caplog.records if one.message == "erased" and one.job == job_id]
    assert (record.what, record.why) == ("job", "requested")


def test_deleting_a_job_while_it_is_transcribed_leaves_no_byte_either(server, folder):
    async def goes_on(_path, _options, _done):
        yield chunk(0, SPOKEN)
        await asyncio.sleep(60)

    server.batch.scripts["endless"] = goes_on
    with server.new_client() as client:
        job_id = client.post(
            "/v1/transcribe", files={"file": ("a.wav", wav())}, data={"prompt": "endless", "wait": "0"}
        ).json()["job_id"]
        until(lambda: traces(folder, SPOKEN))
        assert client.delete(f"/v1/jobs/{job_id}", params={"force": "true"}).status_code == 204
        assert is_erased(folder, SPOKEN)
        assert not (folder / "data" / "blobs" / job_id).exists()


@pytest.mark.parametrize("force", [True, False])
async def test_deleting_a_live_session_leaves_no_word_of_it(server, folder, force):
    me = Caller(server, server.key())

    record = await me.start(metadata={"k": WRITTEN}, record=True)
    async with open_talk(me.socket(record), me.headers) as it:
        await it.send(silence(4.0))
        await it.until("word")
        await asyncio.to_thread(until, lambda: traces(folder, f'["w",0,0,[["{SCRIPT[0]}",'))
        if not force:
            await it.close()
        async with me.client() as client:
            answer = await client.delete(f"/v1/jobs/{record['job_id']}", params={"force": str(force).lower()})
            assert answer.status_code == 204
    await asyncio.to_thread(is_erased, folder, WRITTEN, '["w",')


async def test_expiry_leaves_no_byte_and_is_written_down(sqlite, clock, tmp_path):
    sweeper = Sweeper(sqlite, Eraser(sqlite, Metrics()))
    order = Order(prompt=WRITTEN, metadata={"k": WRITTEN}, webhook_url=f"https://h.example/{WRITTEN}")
    old = await submit(sqlite, order=order)
    lease = await claim(sqlite)
    await sqlite.jobs.checkpoint(lease, [word(0, SPOKEN), word(1, SPOKEN * 1000)], progress=0.1, lease_s=LEASE_S)
    async with sqlite.blobs.create(f"{old}/1.txt") as sink:
        await sink.write(SPOKEN.encode())
    await sqlite.jobs.finish(lease, completion())
    clock.advance(ms=HOUR + 1)
    assert await asyncio.to_thread(traces, tmp_path, SPOKEN, WRITTEN)
    await sweeper.sweep()
    await sweeper.eraser.tidy()
    assert await asyncio.to_thread(traces, tmp_path, SPOKEN, WRITTEN) == []
    assert [(line.job_id, line.why) for line in await sqlite.upkeep.erasures(limit=9)] == [(old, ErasureReason.EXPIRED)]


async def test_what_a_worker_stores_after_a_deletion_is_deleted_too(sqlite):
    sweeper = Sweeper(sqlite, Eraser(sqlite, Metrics()))
    late, later = await submit(sqlite), await submit(sqlite)
    for job_id in (late, later):
        await sweeper.eraser.delete(job_id, why=ErasureReason.REQUESTED)
    async with sqlite.blobs.create(f"{late}/1.txt") as sink:
        await sink.write(SPOKEN.encode())
    await sweeper.eraser.tidy()
    assert await sqlite.blobs.prefixes() == []
    async with sqlite.blobs.create(f"{later}/1.txt") as sink:
        await sink.write(SPOKEN.encode())
    await sweeper.sweep()  # it need not wait for a day, as a request could still make a job of unknown bytes
    assert await sqlite.blobs.prefixes() == []
