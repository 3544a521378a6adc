"""scripts/soak finds growth, and a short run of it finds none."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from scripts.soak import Plan
from scripts.soak_growth import Allowance, growth, growths
from tests.processes import ROOT

NOISE = random.Random(1)


def minutes(per_minute: float, *, count: int = 60, noise: float = 5.0) -> list[tuple[float, float]]:
    """A figure of 400 that rises so much a minute, and is high for a moment now and then."""
    return [
        (n, 400 + per_minute * n + NOISE.random() * noise + (200 if NOISE.random() < 0.1 else 0)) for n in range(count)
    ]


def test_a_slow_leak_is_found_in_the_noise():
    found = growth(minutes(0.5), Allowance(16))
    assert found is not None
    assert found.too_much
    assert found.per_hour == pytest.approx(30, rel=0.2)


def test_noise_is_no_leak():
    found = growth(minutes(0), Allowance(16))
    assert found is not None
    assert not found.too_much


def test_what_fills_up_at_first_is_no_leak():
    found = growth([(n, 400 + min(n, 15) * 10) for n in range(60)], Allowance(16))
    assert found is not None
    assert found.rise == 0


def test_too_few_minutes_say_nothing():
    assert growth(minutes(10, count=5), Allowance(16)) is None


def test_only_the_last_life_of_the_server_is_judged():
    figures = {"rss_mb": 1.0, "threads": 1.0, "processes": 1.0, "temporary_files": 1.0}
    rows = [{"minute": n, "life": n // 30, "descriptors": 10 * n if n < 30 else 20, **figures} for n in range(60)]
    assert growths(rows)["descriptors"].rise == 0


def test_a_seed_gives_the_same_plan():
    plans = [Plan.make(2, random.Random(seed)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert max(at_s for at_s, _ in plans[0].restarts) < 0.4 * plans[0].seconds


@pytest.mark.timeout(300)
def test_a_short_soak_finds_no_fault(tmp_path: Path):
    out = tmp_path / "soak.json"
    command = ["scripts/soak", "--hours", "0.0125", "--seed", "3", "--attackers", "1", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["faults"] == []
    assert found["done"]["kill"] == 1
    assert any(name.startswith("attack:") for name in found["done"])
    assert {"file", "address", "live", "live container", "requests", "estimate"} <= found["done"].keys()
    assert "real file" in found["done"].keys() | found["excused"].keys()  # it may last until the server is killed
