"""A short run of scripts/load on a cluster finds no fault, and what it counts finds one."""

import subprocess
import sys
from functools import partial

import pytest

from scripts.load import Seen, ask_postgres, broken_promises
from server.storage.sql import leases
from tests.processes import ROOT
from tests.server.postgres import programs
from tests.server.storing import BACKENDS, LEASE_S, WORD, ManualClock, completion, submit

BELIEVING = "id = :id"  # a fence that lets everybody through


@pytest.mark.timeout(600)
def test_a_cluster_whose_parts_are_killed_at_random_loses_nothing():
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    command = [sys.executable, "-m", "scripts.load", "postgres", "--seconds", "40", "--seed", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout


@pytest.mark.parametrize(("held", "late"), [(leases.HELD, 0), (BELIEVING, 1)])
async def test_what_a_superseded_process_writes_is_found_where_the_store_lets_it(tmp_path, monkeypatch, held, late):
    clock = ManualClock()
    async with BACKENDS["postgres"].storage_in(tmp_path, clock) as storage:
        job_id = await submit(storage, live=True)
        early = await storage.jobs.claim_live(job_id, "one", lease_s=LEASE_S)
        clock.advance(s=LEASE_S)
        later = await storage.jobs.claim_live(job_id, "other", lease_s=LEASE_S)
        assert await storage.jobs.finish(later, completion())
        monkeypatch.setattr(leases, "HELD", held)
        await storage.jobs.append(early, [WORD])
    found = broken_promises(partial(ask_postgres, (tmp_path / "data" / "database-url").read_text()), Seen())
    assert {name: len(jobs) for name, jobs in found.items() if jobs} == (
        {"events after the last one": 1} if late else {}
    )
