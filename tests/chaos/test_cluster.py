"""A short run of scripts/chaos on a cluster finds no fault."""

import subprocess
import sys

import pytest

from tests.processes import ROOT
from tests.server.postgres import programs


@pytest.mark.timeout(600)
def test_a_cluster_whose_parts_are_killed_at_random_loses_nothing():
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    command = [sys.executable, "-m", "scripts.chaos_cluster", "--seconds", "60", "--seed", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
