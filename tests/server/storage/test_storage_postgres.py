"""What holds of PostgreSQL's storage beyond the contract: lost connections, locks, notifications."""

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack

import psycopg
import pytest

from server.commands.serve import write_operator_key
from server.config import Config
from server.model.errors import StorageAway, StorageError
from server.model.jobs import State
from server.storage.postgres.connections import connect, parameters
from server.storage.postgres.database import WRITERS, PostgresTransaction
from server.storage.postgres.open import open_storage
from server.storage.sql.storage import Storage
from server.storage.sqlite.blobs import FileBlobs
from server.storage.sqlite.open import make_private
from tests.processes import free_port
from tests.server.cutting import line
from tests.server.postgres import new_cluster, shared_cluster
from tests.server.running import ROOT
from tests.server.storing import LEASE_S, WORD, claim, completion, new_job, open_at, quota, submit, types_of
from tests.waiting import eventually

WINDOW = [("transcriptions", "2026-11")]


@pytest.fixture
def url():
    return shared_cluster().new_database()


async def count(storage: Storage, table: str) -> int:
    (row,) = await storage.database.read(lambda tx: tx.all(f"SELECT count(*) AS n FROM {table}"))
    return int(row["n"])


async def test_of_nodes_that_start_together_one_writes_the_operators_key(url, tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "three")]
    async with AsyncExitStack() as stack:
        starting = []
        for folder in folders:
            folder.mkdir()
            shared = {"SCRIBEWIRE_DATABASE_URL": url, "SCRIBEWIRE_BLOBS": "s3://bucket/place"}
            config = Config.from_env({**shared, "SCRIBEWIRE_DATA_DIR": str(folder)})
            storage = open_storage(url, FileBlobs(folder), name=folder.name)
            stack.push_async_callback(storage.close)
            starting.append(write_operator_key(storage, config))
        await asyncio.gather(*starting)
        assert len(await storage.accounts.accounts()) == 1
    assert sum((folder / "operator-key").exists() for folder in folders) == 1


def test_a_database_that_is_missing_is_named_and_its_password_is_not(url):
    missing = url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(StorageError, match='database "nowhere" does not exist') as refused:
        connect(parameters(missing, name="test"))
    assert not isinstance(refused.value, StorageAway)


# --- connections that are lost ---------------------------------------------------------------------------------------


async def test_a_node_hears_others_again_though_its_connection_broke_once_more_as_it_began_to_listen(tmp_path, url):
    with line(shared_cluster().port) as between:
        through = url.replace(str(shared_cluster().port), str(between.port))
        async with (
            open_at(tmp_path / "a", through) as storage,
            open_at(tmp_path / "b", url) as other,
            asyncio.timeout(30),
        ):
            for number, word in enumerate((b"SELECT 1", b"LISTEN"), 1):
                between.break_at(word, heard=False)
                await eventually(lambda number=number: between.cuts >= number)
            await eventually(lambda: storage.database.answers)
            with storage.database.watch("job_a") as watch:
                await submit(other, "job_a")
                assert await watch.wait(timeout_s=0.9)


@pytest.mark.parametrize("heard", [True, False])
async def test_a_job_is_accepted_once_when_the_connection_breaks_during_its_commit(tmp_path, url, heard):
    """With and without the commit reaching the database."""
    with line(shared_cluster().port) as between:
        through = url.replace(str(shared_cluster().port), str(between.port))
        async with open_at(tmp_path, through) as storage:
            between.break_at(b"COMMIT", heard=heard)
            accepted = await storage.jobs.submit(new_job("job_a", quotas=(quota(),)), idempotency=None)
            assert between.cuts == 1
            assert accepted.job.id == "job_a"
            assert not accepted.replayed
            assert await storage.counters.amounts_used("acct_1", WINDOW) == [1]
            assert await types_of(storage, "job_a") == ["job.status"]


@pytest.mark.parametrize("heard", [True, False])
async def test_words_are_logged_once_when_the_connection_breaks_during_their_commit(tmp_path, url, heard):
    with line(shared_cluster().port) as between:
        async with open_at(tmp_path, url.replace(str(shared_cluster().port), str(between.port))) as storage:
            await submit(storage, "job_a")
            lease = await claim(storage)
            between.break_at(b"COMMIT", heard=heard)
            logged = await storage.jobs.append(lease, [WORD, WORD])
            assert between.cuts == 1
            assert logged == 4
            events = await storage.timelines.read("job_a", after=0, limit=100)
            assert [event.seq for event in events] == [1, 2, 3, 4]


async def test_a_commit_that_arrives_after_it_was_looked_up_is_undone(tmp_path, url):
    """Its message was on the way for so long that somebody has written down that it did not happen."""
    async with open_at(tmp_path, url) as storage:
        with connect(parameters(url, name="late")) as late, connect(parameters(url, name="looking")) as looking:
            late.execute("BEGIN")
            late.execute("INSERT INTO fairness (account, virtual_time) VALUES ('acct_9', 1)")
            looking.execute("INSERT INTO commits (id, at) VALUES ('mark', 0) ON CONFLICT DO NOTHING")
            with pytest.raises(psycopg.errors.UniqueViolation):
                late.execute(b"INSERT INTO commits (id, at) VALUES ('mark', 0); COMMIT", prepare=False)
            late.rollback()
        assert await count(storage, "fairness") == 0


async def test_a_database_that_stops_is_reported_soon_and_used_again_when_it_is_back(tmp_path):
    cluster = new_cluster(free_port())
    async with open_at(tmp_path, cluster.new_database()) as storage:
        await submit(storage, "job_a")
        cluster.stop("immediate")
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(StorageAway) as told:
                await storage.jobs.get("job_a")
            assert told.value.code == "not_ready"
        with pytest.raises(StorageAway):
            await submit(storage, "job_b")
        assert time.monotonic() - began < 10
        cluster.start()
        await until_back(storage)
        assert (await claim(storage)).job.id == "job_a"
        assert await storage.jobs.get("job_b") is None


async def until_back(storage: Storage) -> None:
    for _ in range(100):
        try:
            await storage.jobs.counts()
        except StorageAway:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the database is back, and the storage has not noticed")


async def test_a_database_that_falls_silent_is_reported_within_seconds(tmp_path, url):
    with line(shared_cluster().port) as between:
        async with open_at(tmp_path, url.replace(str(shared_cluster().port), str(between.port))) as storage:
            await submit(storage, "job_a")
            between.be_silent()
            await eventually(lambda: not storage.database.answers)
            began = time.monotonic()
            with pytest.raises(StorageAway):
                await storage.jobs.get("job_a")
            assert time.monotonic() - began < 1
            between.speak()
            await until_back(storage)
            assert await storage.jobs.get("job_a") is not None


def test_no_message_has_the_password_in_it(tmp_path):
    make_private(tmp_path)
    blobs = FileBlobs(tmp_path)
    for url in ("postgresql://me:geheim@127.0.0.1:1/x", "postgresql://me:geheim@127.0.0.1:1/x?nonsense=1", "me:geheim"):
        with pytest.raises(StorageError) as told:
            open_storage(url, blobs, name="test")
        assert "geheim" not in f"{told.value} {told.value.__cause__}"
    asyncio.run(blobs.close())


# --- locks and commits -----------------------------------------------------------------------------------------------


async def test_a_claim_passes_over_a_job_that_another_transaction_holds(tmp_path, url):
    async with open_at(tmp_path, url) as storage:
        await submit(storage, "job_a")
        await submit(storage, "job_b")
        with connect(parameters(url, name="other")) as other, other.transaction():
            other.execute("SELECT id FROM jobs WHERE id = 'job_a' FOR UPDATE")
            assert (await claim(storage)).job.id == "job_b"


async def test_sessions_that_log_at_once_share_commits(tmp_path, url):
    async with open_at(tmp_path, url) as storage:
        leases = []
        for _ in range(40):
            await submit(storage)
            leases.append(await claim(storage))
        before = await count(storage, "commits")
        await asyncio.gather(*(storage.jobs.append(lease, [WORD]) for lease in leases))
        assert await count(storage, "commits") - before <= 10


@pytest.mark.parametrize("together", [True, False])
async def test_a_write_whose_caller_gives_up_hurts_no_other_write(tmp_path, url, together):
    """Given up while it runs, and before its turn: that one never happens."""
    held, go, late = threading.Event(), threading.Event(), []

    def hold_up(tx: PostgresTransaction) -> None:  # noqa: ARG001  write() passes it
        held.set()
        go.wait()

    async with open_at(tmp_path, url) as storage:
        database = storage.database
        write = database.write_together if together else database.write
        running = [asyncio.create_task(write(hold_up)) for _ in range(1 if together else WRITERS)]
        await asyncio.to_thread(held.wait)
        waiting = asyncio.create_task(write(late.append))
        await asyncio.sleep(0.1)
        for task in (*running, waiting):
            task.cancel()
        await asyncio.wait((*running, waiting))
        go.set()
        assert await write(lambda tx: tx.one("SELECT 1 AS n")["n"]) == 1
        assert late == []


async def test_one_commit_tells_other_nodes_once_whatever_it_logs(tmp_path, url):
    async with open_at(tmp_path, url) as storage:
        leases = []
        for _ in range(20):
            await submit(storage)
            leases.append(await claim(storage))
        with connect(parameters(url, name="listening")) as listening:
            listening.execute("LISTEN scribewire")
            before = await count(storage, "commits")
            await asyncio.gather(*(storage.jobs.append(lease, [WORD] * 50) for lease in leases))
            commits = await count(storage, "commits") - before
            told = [notice.payload for notice in listening.notifies(timeout=1)]
        assert len(told) == commits
        assert {topic for text in told for topic in text.split()[1:]} == {lease.job.id for lease in leases}
        assert "and" not in " ".join(told)  # the word that was logged


@pytest.mark.parametrize("payload", ["", " ", "else", "else \x7f !", "else topic"])
async def test_notifications_that_no_node_sent_are_passed_over(tmp_path, url, payload):
    """Any role of the database may send them."""
    async with open_at(tmp_path, url) as storage:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        storage.relay.listen(heard.put_nowait)
        with connect(parameters(url, name="stranger")) as stranger:
            for channel in ("scribewire", "scribewire_relay"):
                stranger.execute("SELECT pg_notify(%s, %s)", (channel, payload))
            stranger.execute("SELECT pg_notify('scribewire_relay', 'else aGVhcmQ=')")
            async with asyncio.timeout(10):
                while await heard.get() != b"heard":
                    pass
        job_id = await submit(storage)
        assert (await claim(storage)).job.id == job_id


async def test_without_notifications_whoever_waits_looks_each_second(tmp_path, url):
    async with open_at(tmp_path / "a", url, notify=False) as one, open_at(tmp_path / "b", url, notify=False) as two:
        claiming = asyncio.create_task(one.jobs.claim("w", environments=["production"], lease_s=LEASE_S, wait_s=20))
        await asyncio.sleep(0.2)
        job_id = await submit(two)
        began = time.monotonic()
        lease = await claiming
        seen = await two.jobs.get(job_id)
        tail = two.timelines.tail(job_id, after=2)
        following = asyncio.ensure_future(anext(aiter(tail)))
        waiting = asyncio.create_task(two.jobs.wait_for_change(seen, timeout_s=20))
        await asyncio.sleep(0.2)
        await one.jobs.append(lease, [WORD])
        assert (await following).type == "word"
        await one.jobs.finish(lease, completion())
        changed = await waiting
        while changed.state is not State.COMPLETED:
            changed = await two.jobs.wait_for_change(changed, timeout_s=20)
        assert time.monotonic() - began < 10


async def test_one_of_the_nodes_leads_and_another_one_after_it(tmp_path, url):
    async with open_at(tmp_path / "b", url) as second:
        async with open_at(tmp_path / "a", url) as first:
            await until_one_leads(first, second)
            leader = first if first.leads else second
            leader.database._listener._connection.pgconn.finish()  # as if its line had been cut
            await eventually(lambda: not leader.leads)
            await until_one_leads(first, second)
            assert first.leads != second.leads
        await until_one_leads(second)


async def until_one_leads(*nodes: Storage) -> None:
    await eventually(lambda: any(node.leads for node in nodes), max_s=20)


# --- the embedded form -----------------------------------------------------------------------------------------------


def test_the_embedded_form_imports_nothing_of_the_cluster_form():
    program = (
        "import importlib, sys; from server.commands import COMMANDS;"
        "[importlib.import_module(f'server.commands.{name}') for name in COMMANDS.values()];"
        "print([name for name in sys.modules if name.partition('.')[0] in ('psycopg', 'psycopg_pool', 'obstore')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
