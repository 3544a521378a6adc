"""The short form of scripts/fuzz: nothing that strangers send breaks the server or its decoders."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import strategies as st

from scripts.fuzz import take_turn
from tests.processes import ROOT

INPUTS = st.tuples(st.integers(), st.binary())


@pytest.mark.timeout(400)  # each target has its turn, also where other tests take the processor
@pytest.mark.skipif(sys.platform != "linux", reason="reads from /proc what the server holds")
def test_nothing_that_strangers_send_breaks_the_server():
    words = [sys.executable, "-m", "scripts.fuzz", "--seconds", "40", "--seed", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-6000:]
    summary = json.loads(done.stdout)
    assert min(summary["tried"].values()) > 0
    assert summary["decoders"]["heard"] > 0


def test_an_input_that_shows_a_fault_is_made_small():
    def check(value: tuple[int, bytes]) -> None:
        assert value[0] <= 1000, f"too large: {value[0]}"

    found = [fault for number in range(20) for fault in take_turn("numbers", INPUTS, check, number, Counter())]
    assert "again with --seed" in found[0]
    assert "too large: 1001\n" in found[0]
