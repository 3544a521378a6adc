"""scripts/load finds growth, and a short run of it finds no fault."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from scripts.load import ALLOWED, growth
from tests.processes import ROOT

NOISE = random.Random(1)


def minutes(memory: list[float], **figures: float) -> list[dict[str, Any]]:
    """Rows of one life whose memory is high for a moment now and then."""
    return [
        {
            **dict.fromkeys(ALLOWED, 1.0),
            **figures,
            "life": 1,
            "minute": n,
            "rss_mb": mb + NOISE.random() * 5 + (200 if NOISE.random() < 0.1 else 0),
        }
        for n, mb in enumerate(memory)
    ]


def test_a_slow_leak_is_found_in_the_noise():
    found = growth(minutes([400 + 0.7 * n for n in range(60)]))["rss_mb"]
    assert found["per_hour"] == pytest.approx(42, rel=0.2)
    assert found["rise"] > ALLOWED["rss_mb"]


@pytest.mark.parametrize("filling", [0, 10], ids=["noise", "what fills up at first"])
def test_what_stays_is_no_leak(filling):
    found = growth(minutes([400 + min(n, 15) * filling for n in range(60)]))
    assert all(found[name]["rise"] <= allowed for name, allowed in ALLOWED.items())


def test_too_few_minutes_say_nothing():
    assert growth(minutes([400.0] * 15)) == {}


def test_only_the_last_life_of_the_server_is_judged():
    before = [{**row, "life": 0, "descriptors": 10 * row["minute"]} for row in minutes([400.0] * 30)]
    assert growth([*before, *minutes([400.0] * 30)])["descriptors"]["rise"] == 0


@pytest.mark.timeout(400)
def test_a_server_that_is_killed_and_has_no_space_left_loses_nothing(tmp_path):
    out = tmp_path / "load.json"
    command = ["scripts/load", "--seconds", "30", "--seed", "3", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert {"kill", "files", "live sessions"} <= found["done"].keys()
    assert not any(found["promises"].values())


def test_a_fault_that_nobody_knows_is_refused_with_those_that_are_known():
    command = [sys.executable, "-m", "scripts.load", "--faults", "kill,flood"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Here flood cannot be played. Choose from kill, stop, pause" in done.stderr
