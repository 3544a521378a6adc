"""The READMEs are true: what the code has is documented, and what they tell to run runs."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server.accounts.limits import Limits
from server.accounts.limits_file import BUILT_IN
from server.config import VARIABLES
from server.http.codes import CODES
from server.model.jobs import JOB_CODES, TERMINAL
from tests.server.running import ROOT, Server, environment, running

PLACES = ("benchmarks", "estimator", "pipeline", "server")
README = (ROOT / "README.md").read_text(encoding="utf-8")
WIRE = (ROOT / "server" / "api.md").read_text(encoding="utf-8")
NOT_TRIED = ("scripts/serve", "scripts/test")
"""What serves until it is stopped, and what runs this very test."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("docs") / "data", WHISPER_MODEL="tiny.en") as started:
        yield started


def test_every_variable_is_documented_with_its_default() -> None:
    for variable in VARIABLES:
        default = f"`{variable.default}`" if variable.default else ""
        assert f"| {variable.name} | {default} | {variable.meaning} |" in README


def test_every_error_code_is_documented_with_its_status() -> None:
    for code, (status, _) in CODES.items():
        assert f"| {status} | `{code}` |" in WIRE
    for code in JOB_CODES:
        assert f"`{code}`" in WIRE


def test_every_route_is_documented(server: Server) -> None:
    document = httpx.get(server.base + "/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path}`" in WIRE


def test_every_event_is_documented() -> None:
    sent = {"partial", *(f"job.{state}" for state in TERMINAL)}
    for path in (ROOT / "server").rglob("*.py"):
        sent |= set(re.findall(r'NewEvent\(\s*"([a-z_.]+)"', path.read_text(encoding="utf-8")))
        sent |= set(re.findall(r'_log\(\w+, "([a-z_.]+)"', path.read_text(encoding="utf-8")))
    assert {"word", "segment", "job.status", "job.progress"} <= sent
    assert [name for name in sorted(sent) if f"`{name}`" not in WIRE] == []


def test_the_plans_are_documented() -> None:
    plans = Limits.from_toml(BUILT_IN.read_text()).plans
    row = "| requests per minute | 30 per address | " + " | ".join(
        str(plan.requests_per_minute) for plan in plans.values()
    )
    assert row in README
    assert f"| transcriptions per month | | {plans['free'].transcriptions_per_month} |" in README
    assert f"| audio per file | | {plans['free'].audio_minutes_per_file} min |" in README


@pytest.mark.parametrize("block", [block for block in blocks("sh") if not any(word in block for word in NOT_TRIED)])
def test_every_command_of_the_readme_runs(block: str, server: Server) -> None:
    script = block.replace("http://127.0.0.1:8000", server.base)
    script = script.replace("data/operator-key", str(server.data_dir / "operator-key"))
    script = script.replace("scribewire live ", f"scribewire live --server {server.base} ")
    script = script.replace(".venv/bin/scribewire", f"{sys.executable} -m server")
    done = subprocess.run(
        ["sh", "-euc", script], cwd=ROOT, env=environment(server.data_dir, WHISPER_MODEL="tiny.en"),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not re.search(r'"status":[45][0-9][0-9]', done.stdout)


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_of_the_readme_runs(block: str, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    key = (server.data_dir / "operator-key").read_text().strip()
    asyncio.run(names["main"](server.base, key))  # type: ignore[operator]
    assert "1 2 3 4 5" in capsys.readouterr().out


PAGES = [ROOT / "README.md", *(page for place in PLACES for page in sorted((ROOT / place).rglob("*.md")))]


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_between_the_readmes_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (ROOT / Path(page).parent / target).exists(), target
