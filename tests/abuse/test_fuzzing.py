"""The short form of scripts/fuzz: nothing that strangers send breaks the server, its parsers or its decoders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from scripts.fuzzing.target import Finding, Target, keep, read_findings
from tests.processes import ROOT


@pytest.mark.timeout(400)  # each target has its turn, also where other tests take the processor
@pytest.mark.skipif(sys.platform != "linux", reason="reads from /proc what the server holds")
def test_nothing_that_strangers_send_breaks_the_server(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "scripts.fuzz", "--seconds", "30", "--seed", "1", "--findings", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-6000:]
    summary = json.loads(done.stdout)
    assert summary["findings"] == []
    assert min(summary["inputs"]["tried"].values()) > 0
    assert summary["decoders"]["ended"]["heard"] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_shows_a_fault_is_made_small_and_can_be_tried_again(tmp_path: Path) -> None:
    def check(value: tuple[int, bytes]) -> None:
        if value[0] > 1000:
            raise Finding(f"too large: {value[0]}")

    target = Target("numbers", st.tuples(st.integers(), st.binary()), check, 500)
    target.take_turn(1)
    assert target.found is not None
    assert target.found["error"] == "too large: 1001"
    assert read_findings(keep(target.found, tmp_path)) == ("numbers", [(1001, b"")])


def test_a_fault_that_shows_once_is_kept_with_the_inputs_before_it() -> None:
    seen = []

    def check(value: int) -> None:
        seen.append(value)
        if len(seen) == 7:
            raise Finding("only once")

    target = Target("moody", st.integers(), check, 50)
    target.take_turn(1)
    assert target.found is not None
    assert target.found["error"] == "only once"
    assert target.found["inputs"] == [repr(value) for value in seen[2:7]]


def test_a_target_without_a_fault_finds_nothing() -> None:
    target = Target("calm", st.integers(), lambda _: None, 50)
    target.take_turn(1)
    assert (target.found, target.tried) == (None, 50)
