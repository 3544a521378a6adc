"""Tests that scripts/demo shows what it says, and leaves no server behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def shown() -> subprocess.CompletedProcess[str]:
    """Return the ended demo, with the scripted engine."""
    words = [sys.executable, str(ROOT / "scripts" / "demo.py")]
    settings = os.environ | {"SCRIBEWIRE_ENGINE": "scripted"}
    return subprocess.run(words, env=settings, capture_output=True, text=True, timeout=100, check=False)


def test_the_demo_shows_live_words_subtitles_and_prices(shown):
    assert shown.returncode == 0, shown.stderr
    live, file, prices = re.split(r"^--- .* ---$", shown.stdout, flags=re.MULTILINE)[1:]
    assert re.search(r"\w+ \w+ \w+", live)
    assert re.match(r"\s*1\n00:00:\d\d,\d{3} --> 00:00:\d\d,\d{3}\n\w+", file)
    assert re.findall(r"^\S.* +\d+\.\d+ USD$", prices, re.MULTILINE)[4:]


def test_the_server_of_the_demo_has_stopped_at_its_end(shown):
    address = re.search(r"ready (http\S+)", shown.stdout)
    assert address is not None
    with pytest.raises(httpx.ConnectError):
        httpx.get(address[1])


def test_the_script_sets_up_before_it_runs_the_demo():
    lines = (ROOT / "scripts" / "demo").read_text(encoding="utf-8").splitlines()
    assert os.access(ROOT / "scripts" / "demo", os.X_OK)
    assert [line.split('"')[1] for line in lines if line.startswith(('"$root', "exec"))] == [
        "$root/scripts/setup",
        "$root/.venv/bin/python",
    ]
