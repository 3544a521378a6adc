"""Moving an installation into a database and a bucket: afterwards every request is answered as before.

MOVE_JOBS and MOVE_ACCOUNTS in the environment make the installation larger, for example 1000 and 50.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.errors import InvalidAudio
from server.config import PREFIX
from server.storage.ports import Storage
from server.storage.postgres.open import open_storage as open_database
from server.storage.s3.open import open_bucket
from server.storage.sql.moving import TABLES
from server.storage.sqlite.folder import claim_folder
from server.storage.sqlite.schema import MIGRATIONS
from tests.processes import ROOT
from tests.server.buckets import BucketService
from tests.server.postgres import shared_cluster
from tests.server.serving import AppServer, serve, until, wav
from tests.server.talking import Caller, open_talk, silence

JOBS, ACCOUNTS = int(os.environ.get("MOVE_JOBS", "40")), int(os.environ.get("MOVE_ACCOUNTS", "4"))
NOBODY = "http://127.0.0.1:9/hook"  # webhooks that stay pending
ADDRESS = "http://moved.example"  # in every link, wherever the server listens
SETTINGS = {"PUBLIC_BASE_URL": ADDRESS, "ALLOW_INSECURE_HTTP": "1"}

SIGNATURE = re.compile(r"\?exp=[^\"\s]*")
Answer = tuple[int, str, Any]


class Recorder:
    """Asks requests of several accounts, before the move and after it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []  # key, path, headers
        self.before: list[Answer] = []

    def note(self, key: str, path: str, **headers: str) -> None:
        self.asked.append((key, path.removeprefix(ADDRESS), headers))

    def choose(self, number: int) -> None:
        """Ask only so many of them, drawn with a fixed seed."""
        self.asked = random.Random(7).sample(self.asked, min(number, len(self.asked)))

    def answers(self, server: AppServer) -> list[Answer]:
        with httpx.Client(base_url=server.base, timeout=20) as client:
            return [self._answer(client, *asked) for asked in self.asked]

    @staticmethod
    def _answer(client: httpx.Client, key: str, path: str, headers: dict[str, str]) -> Answer:
        got = client.get(path, headers={"Authorization": f"Bearer {key}", **headers})
        kind = got.headers.get("content-type", "")
        whole_json = got.status_code == httpx.codes.OK and kind.startswith("application/json")
        return got.status_code, kind, _steady(got.json()) if whole_json else SIGNATURE.sub("", got.text)


def _steady(body: Any) -> Any:
    """Leave out what differs from one moment to the next: signatures, last uses, and later attempts to deliver."""
    if isinstance(body, dict):
        kept = {name: value for name, value in body.items() if name not in ("last_used_at", "next_attempt_at")}
        return {name: _steady(value[:2] if name == "attempts" else value) for name, value in kept.items()}
    if isinstance(body, list):
        return [_steady(value) for value in body]
    return body.partition("?")[0] if isinstance(body, str) and body.startswith((ADDRESS, "ws://")) else body


@pytest.fixture(scope="module", autouse=True)
def _bucket_settings(bucket: BucketService) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bucket.env.items():
            patch.setenv(name, value)
        yield


@pytest.mark.timeout(120 + 2 * JOBS)
def test_after_a_move_every_request_is_answered_as_before(tmp_path, bucket):
    database, place = shared_cluster().new_database(), bucket.prefix()
    recorder = Recorder()
    with serve(tmp_path, **SETTINGS) as embedded:
        keys = [embedded.key("enterprise") for _ in range(ACCOUNTS)]
        jobs = [_job(embedded, keys[n % ACCOUNTS], n) for n in range(JOBS)]
        for n in range(0, JOBS, 5):
            until(lambda n=n: _tries(embedded, keys[n % ACCOUNTS], jobs[n]) >= 2)  # the next one is minutes away
        _note_all(recorder, keys, jobs)
        recorder.choose(240)
        before = recorder.answers(embedded)
        speaker = embedded.key("enterprise")
        live = asyncio.run(_live_leftover(embedded, speaker))
    assert len(before) >= 200
    assert {status for status, *_ in before} == {200, 206}
    _interrupt_move(tmp_path / "data", database, place)
    told = _move(tmp_path / "data", database, place)
    assert f"jobs         {JOBS + 1:>10,} rows" in told

    def open_moved() -> Storage:
        blobs = open_bucket(place, tmp_path / "node", env=bucket.env)
        return open_database(database, blobs, name="node")

    with serve(tmp_path, storage=open_moved, **SETTINGS) as cluster:
        assert asyncio.run(_finish(cluster, speaker, live["job_id"])) == "completed"
        assert recorder.answers(cluster) == before
        again = _transcribe(cluster, keys[0], 0)
        assert (again.json()["job_id"], again.headers["Idempotent-Replayed"]) == (jobs[0]["job_id"], "true")
        with cluster.client(keys[0]) as client:
            assert client.delete(f"/v1/jobs/{jobs[0]['job_id']}").status_code == 204
        assert _transcribe(cluster, keys[0], 1000).json()["status"] == "completed"


def test_a_move_into_a_database_that_nodes_use_or_others_fill_is_refused(tmp_path, bucket):
    database, place = shared_cluster().new_database(), bucket.prefix()
    with serve(tmp_path / "one") as first:
        first.key()
    with claim_folder(tmp_path / "one" / "data"):
        assert "another server" in _refusal(tmp_path / "one" / "data", database, place)
    with serve(tmp_path / "two") as second:
        second.key()
    _move(tmp_path / "one" / "data", database, place)
    assert "another installation" in _refusal(tmp_path / "two" / "data", database, place)
    node = open_database(database, open_bucket(place, tmp_path / "node", env=bucket.env), name="node-1")
    try:
        assert "node-1" in _refusal(tmp_path / "one" / "data", database, place)
    finally:
        asyncio.run(node.close())


def test_a_move_of_what_changed_since_an_earlier_one_is_noticed(tmp_path, bucket):
    database, place = shared_cluster().new_database(), bucket.prefix()
    with serve(tmp_path) as embedded:
        key = embedded.key("enterprise")
        record = _transcribe(embedded, key, 0).json()
    _move(tmp_path / "data", database, place)
    with serve(tmp_path) as embedded, embedded.client(key) as client:
        client.delete(f"/v1/jobs/{record['job_id']}").raise_for_status()
    assert "The server ran since" in _refusal(tmp_path / "data", database, place)


def test_every_table_is_moved():
    tables = re.findall(r"CREATE TABLE (\w+)", "".join(MIGRATIONS))
    assert sorted(table.name for table in TABLES) == sorted({*tables} - {"changes"}), "changes only wake who waits"


def test_a_folder_without_an_installation_is_named(tmp_path, bucket):
    assert str(tmp_path / "none") in _refusal(tmp_path / "none", "postgresql://nowhere", bucket.prefix())


def _transcribe(server: AppServer, key: str, n: int) -> httpx.Response:
    fields = {"output_formats": "json,srt,txt", "metadata": f'{{"n":"{n}"}}'}
    if n % 5 == 0:
        fields |= {"webhook_url": NOBODY}
    if n % 9 == 4:
        fields |= {"prompt": "fail"}
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"key-{n}", "Prefer": "wait=20"}
    with httpx.Client(base_url=server.base, headers=headers, timeout=20) as client:
        return client.post("/v1/transcribe", files={"file": wav()}, data=fields)


def _job(server: AppServer, key: str, n: int) -> dict[str, Any]:
    async def fail(_path, _options, _done):
        raise InvalidAudio("no audio")
        yield

    server.batch.scripts["fail"] = fail
    record: dict[str, Any] = _transcribe(server, key, n).json()
    assert record["status"] in ("completed", "failed"), record
    return record


async def _live_leftover(server: AppServer, key: str) -> dict[str, Any]:
    """A session whose writer was lost: it is there when the server stops."""
    me = Caller(server, key)
    record = await me.start()
    async with open_talk(me.socket(record), headers=me.headers) as talk:
        await talk.send(silence(8))
        for _ in range(4):  # the last two are recognised again after a restart
            while (await talk.next())["type"] != "word":
                pass
        talk.socket.transport.abort()
    return record


async def _finish(server: AppServer, key: str, job_id: str) -> str:
    """Let a writer come back to the session, say more, and end it. Returns how the job ended.

    On a slow machine the node may have ended it before, with what was heard: nobody came for a minute and a half.
    """
    me = Caller(server, key)
    async with open_talk(me.socket({"job_id": job_id}), headers=me.headers) as talk:
        ready = await talk.next()
        if ready.get("code") != "ingest_finished":
            assert ready["received_bytes"] > 0, "it goes on where it was"
            await talk.send(silence(1))
            await talk.say("close")
            await talk.to_the_end()
    return str((await me.job(job_id))["status"])


def _tries(server: AppServer, key: str, record: dict[str, Any]) -> int:
    with server.client(key) as client:
        [delivery] = client.get(f"/v1/jobs/{record['job_id']}/deliveries").json()["data"]
        return len(delivery["attempts"])


def _note_all(recorder: Recorder, keys: list[str], jobs: list[dict[str, Any]]) -> None:
    for key in keys:
        for path in ("/v1/jobs?limit=7", "/v1/jobs?status=failed", "/v1/usage", "/v1/webhook-secret", "/v1/keys"):
            recorder.note(key, path)
    for n, record in enumerate(jobs):
        key, job = keys[n % len(keys)], f"/v1/jobs/{record['job_id']}"
        for path in (job, f"{job}?include=words", f"{job}/deliveries", f"{job}/events"):
            recorder.note(key, path)
        for link in record.get("formats", {}).values():
            recorder.note(key, link)
            recorder.note(key, link, Range="bytes=1-5")


def _command(database: str, place: str) -> list[str]:
    return [sys.executable, "-m", "server", "move", "--to-database", database, "--to-blobs", place]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, f"{PREFIX}DATA_DIR": str(folder)}


def _move(folder: Path, database: str, place: str) -> str:
    done = subprocess.run(
        _command(database, place), cwd=ROOT, env=_environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "unsaid" not in done.stdout + done.stderr, "the password"
    return done.stdout


def _refusal(folder: Path, database: str, place: str) -> str:
    done = subprocess.run(
        _command(database, place), cwd=ROOT, env=_environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def _interrupt_move(folder: Path, database: str, place: str) -> None:
    """Begin a move and kill it after the first tables."""
    with subprocess.Popen(
        _command(database, place), cwd=ROOT, env=_environment(folder), stdout=subprocess.PIPE, text=True
    ) as moving:
        assert moving.stdout is not None
        for line in moving.stdout:
            if line.startswith("metadata"):
                moving.kill()
