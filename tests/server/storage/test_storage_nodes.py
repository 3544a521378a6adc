"""What the nodes of a cluster share beside their jobs: tables and their changes, limits, what the model offers."""

import asyncio
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from server.accounts.limits import Failures
from server.config import Config
from server.engines import OfferWatch
from server.jobs.leases import HeldLease, LeaseKeeper, WorkerRules
from server.model.errors import StorageError
from server.model.jobs import Verdict
from server.model.offers import OPENAI_MODELS, Offer
from server.storage.postgres import connections, schema
from server.storage.postgres.connections import connect, parameters
from server.storage.postgres.schema import FIRST, MIGRATIONS, Migration
from tests.server.postgres import shared_cluster
from tests.server.running import ROOT
from tests.server.storing import LEASE_S, WORD, claim, open_at, submit


@pytest.fixture
def url():
    return shared_cluster().new_database()


# --- the schema ------------------------------------------------------------------------------------------------------

MORE = Migration("ALTER TABLE jobs ADD COLUMN colour TEXT; CREATE INDEX jobs_colour ON jobs (colour)")
ELSE = Migration("ALTER TABLE accounts RENAME COLUMN plan TO tariff", additive=False)


def test_nodes_that_start_at_once_make_the_tables_once(url):
    program = (
        "import sys; from server.storage.postgres.connections import connect, parameters;"
        "from server.storage.postgres.schema import migrate;"
        "print(migrate(connect(parameters(sys.argv[1], name='x'))))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, url], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    every = str([*range(FIRST, FIRST + len(MIGRATIONS))])
    assert sorted(process.communicate()[0].strip() for process in started) == [every, "[]", "[]"]


@pytest.mark.parametrize("works", ["reads", "writes"])
async def test_an_older_node_works_on_a_schema_with_additions(tmp_path, url, works):
    """Also where its connections have planned their statements before."""

    async def work(number: int) -> None:
        if works == "reads":
            await asyncio.gather(*[older.jobs.get("job_a") for _ in range(4)])
        else:
            await asyncio.gather(*[submit(older, f"job_{number}_{part}") for part in range(4)])

    async with open_at(tmp_path, url) as older:
        await submit(older, "job_a")
        for number in range(20):
            await work(number)
        with connect(parameters(url, name="newer")) as connection:
            assert schema.migrate(connection, [*MIGRATIONS, MORE]) == [FIRST + len(MIGRATIONS)]
        for number in range(20, 30):
            await work(number)
        assert (await claim(older)).job.id == "job_a"
    async with open_at(tmp_path, url) as older:  # also when it starts anew
        assert await older.jobs.get("job_a") is not None


async def test_work_on_a_job_waits_while_a_change_of_its_table_takes_longer_than_a_statement_waits(
    tmp_path, url, monkeypatch
):
    monkeypatch.setattr(connections, "LOCK_MS", 100)
    async with open_at(tmp_path, url) as storage:
        await submit(storage, "job_a")
        asked, lease = time.monotonic(), await claim(storage)
        held = HeldLease(lease, storage.jobs, lease_s=LEASE_S, requested_at=asked)
        keeper = LeaseKeeper(held, storage.jobs, WorkerRules(lease_s=LEASE_S, renew_s=0.1))
        with psycopg.connect(url) as changing:
            changing.execute("ALTER TABLE jobs ADD COLUMN colour TEXT")
            working = [asyncio.create_task(work) for work in (held.append([WORD]), keeper.keep())]
            await asyncio.wait(working, timeout=1)
            assert not any(task.done() for task in working)
        await working[0]
        assert await storage.timelines.last("job_a") == held.last_seq == 3
        await storage.jobs.cancel("job_a")
        assert await working[1] is Verdict.CANCELED


def test_an_older_node_stops_at_a_schema_that_it_cannot_work_with(url):
    with connect(parameters(url, name="newer")) as connection:
        schema.migrate(connection, [*MIGRATIONS, ELSE])
        with pytest.raises(StorageError, match="newer version of this program"):
            schema.migrate(connection)


def test_a_migration_that_fails_leaves_nothing_behind(url):
    broken = Migration("CREATE TABLE half (x BIGINT); CREATE TABLE half (x BIGINT)")
    with connect(parameters(url, name="newer")) as connection:
        with pytest.raises(StorageError):
            schema.migrate(connection, [*MIGRATIONS, broken])
        assert schema.migrate(connection, [*MIGRATIONS, MORE]) == [FIRST + len(MIGRATIONS)]
        (found,) = connection.execute("SELECT to_regclass('half') AS half")
        assert found["half"] is None


def test_a_user_who_may_not_change_tables_is_told_what_to_do(url):
    with connect(parameters(url, name="owner")) as owner:
        owner.execute("CREATE ROLE reader LOGIN")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM public")
        try:
            with (
                connect(parameters(url.replace("test:unsaid@", "reader@"), name="reader")) as reader,
                pytest.raises(StorageError, match="scribewire migrate"),
            ):
                schema.migrate(reader)
        finally:
            owner.execute("DROP OWNED BY reader")
            owner.execute("DROP ROLE reader")


def test_every_node_signs_with_the_same_secrets(tmp_path, url):
    async def keys(folder: Path) -> object:
        async with open_at(folder, url) as storage:
            return storage.signing_keys

    assert asyncio.run(keys(tmp_path / "a")) == asyncio.run(keys(tmp_path / "b"))


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_failures_are_counted_for_all_nodes_and_those_at_the_limit_are_known_without_the_database(tmp_path, url):
    async with open_at(tmp_path / "a", url) as one, open_at(tmp_path / "b", url) as other:
        here, there = (Failures(what="wrong keys", rates=storage.rates) for storage in (one, other))
        counted = [await (here, there)[n % 2].count("me", limit=3) for n in range(4)]
        assert [window.allowed for window in counted] == [True, True, True, False]
        assert (await here.count("you", limit=3)).allowed
    assert not here.look("me", limit=3).allowed, "with the database closed"
    assert not there.look("me", limit=3).allowed
    assert here.look("you", limit=3).allowed


# --- what the model offers -------------------------------------------------------------------------------------------


async def test_a_node_without_a_model_waits_until_another_one_tells_what_its_model_offers(tmp_path, url):
    told = Offer(engine="whisper", model="base", languages=frozenset({"de", "en"}))
    async with open_at(tmp_path / "a", url) as working, open_at(tmp_path / "b", url) as answering:
        config = Config.from_env({"SCRIBEWIRE_MODEL_ALIASES": "ours"})
        watch = OfferWatch(answering.offers, config)
        waiting = asyncio.create_task(watch.wait())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await working.offers.publish(replace(told, model="tiny"))
        await working.offers.publish(told)
        await waiting
        assert watch.offers["production"] == replace(told, aliases=(*OPENAI_MODELS, "ours"))
        assert watch.offers["sandbox"].has("ours")
