"""Checks the READMEs: what the code offers is documented, and the commands in them run."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipeline.attribution import LANGUAGE_DOUBTFUL
from pipeline.ingest import notes
from pipeline.ingest.notes import IDENTICAL_CHANNELS, OTHER_TRACKS, QUIET_INPUT, UNDECODABLE_TRACK
from scripts import reference
from server.model.events import EVENTS, WARNINGS
from server.model.jobs import TERMINAL
from server.translation.translations import INCOMPLETE, UNAVAILABLE
from tests.server.running import ROOT, Server, environment, run_server

PLACES = ("benchmarks", "estimator", "pipeline", "server")
GUIDE = (ROOT / "server" / "api.md").read_text(encoding="utf-8")
GUIDES = [ROOT / "README.md", *sorted((ROOT / "server").glob("*.md")), ROOT / "estimator" / "README.md"]
"""The pages for users. Every sh block and every python block in them is run."""

NOT_TRIED = ("scripts/serve", "scripts/test")
"""What serves until it is stopped, and what runs this very test."""

JFK = "And so my fellow Americans ask not what your country can do for you, ask what you can do for your country."


def blocks(language: str) -> list[str]:
    """Return every block of *language* in GUIDES."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [block for page in GUIDES for block in pattern.findall(page.read_text(encoding="utf-8"))]


def fill_in(block: str, server: Server) -> str:
    """Return *block* with the address, key, commands and folders of the test server in place of those of a user."""
    block = block.replace("http://127.0.0.1:8000", server.base)
    block = block.replace("data/operator-key", str(server.data_dir / "operator-key"))
    block = block.replace("scribewire live ", f"scribewire live --server {server.base} ")
    block = block.replace(" podcast", f" {server.data_dir.parent}/podcast")
    return block.replace(".venv/bin/scribewire", f"{sys.executable} -m server")


def run_documented(command: list[str], server: Server) -> str:
    """Run *command* as a user of *server* would, and return what it prints."""
    result = subprocess.run(
        command, cwd=ROOT, env=environment(server.data_dir, WHISPER_MODEL="tiny.en"),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def words(text: str) -> list[str]:
    """Return the words alone: punctuation may differ from one processor to another."""
    return re.findall(r"[a-z]+", text.lower())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("docs") / "data", WHISPER_MODEL="tiny.en") as started:
        yield started


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_tables_of_settings_plans_routes_and_codes_are_those_of_the_code(page, server):
    openapi = httpx.get(server.base + "/openapi.json").json()
    shown = (ROOT / page).read_text(encoding="utf-8")
    assert shown == reference.renewed(page, openapi), "make them anew with: .venv/bin/python -m scripts.reference"


def test_every_warning_that_the_code_gives_is_in_the_reference_and_no_other():
    code = "".join(
        path.read_text(encoding="utf-8")
        for place in ("pipeline", "server")
        for path in (ROOT / place).rglob("*.py")
        if path != ROOT / "server" / "model" / "events.py"
    )
    assert [name for name in WARNINGS if not re.search(rf"\b{name}\b", code)] == []
    given = {
        *re.findall(r'\bwarn\("([a-z_]+)"', code),
        *re.findall(r'"code": "([a-z_]+)"', code),
        *(code for code in vars(notes).values() if isinstance(code, str) and re.fullmatch("[a-z]+(_[a-z]+)+", code)),
        *(IDENTICAL_CHANNELS, QUIET_INPUT, OTHER_TRACKS, UNDECODABLE_TRACK, LANGUAGE_DOUBTFUL, UNAVAILABLE, INCOMPLETE),
    }
    assert given - WARNINGS.keys() == set()


def test_every_event_that_the_code_sends_is_in_the_reference_and_no_other():
    code = (ROOT / "server" / "model" / "events.py").read_text(encoding="utf-8")
    sent = {"partial", *re.findall(r'_event\("([a-z_.]+)"', code), *(f"job.{state}" for state in TERMINAL)}
    assert sent == EVENTS.keys()


@pytest.mark.parametrize("block", [block for block in blocks("sh") if not any(word in block for word in NOT_TRIED)])
def test_every_command_of_the_guides_runs(block, server):
    printed = run_documented(["sh", "-euc", fill_in(block, server)], server)
    assert printed.strip()
    assert not re.search(r'"status":[45][0-9][0-9]', printed)


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_of_the_guides_runs(block, server):
    strict = [] if "deepgram" in block else ["-W", "error"]  # its package uses what websockets will give up
    assert run_documented([sys.executable, *strict, "-c", fill_in(block, server)], server).strip()


def test_the_python_of_the_guides_prints_the_text(server):
    own = [block for block in blocks("python") if "jfk.flac" in block]
    assert len(own) == 3
    for block in own:
        assert words(JFK) == words(run_documented([sys.executable, "-c", fill_in(block, server)], server))


def test_the_answer_that_the_readme_prints_is_the_one_that_comes(server):
    [(command, shown)] = re.findall(
        r"^```sh\n([^`]*?)^```[^`]*?^```json\n(.*?)^```",
        GUIDES[0].read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    expected, answer = json.loads(shown), json.loads(run_documented(["sh", "-euc", fill_in(command, server)], server))
    assert expected.keys() <= answer.keys()
    assert expected["formats"].keys() == answer["formats"].keys()
    assert words(expected["text"]) == words(answer["text"]) == words(JFK)
    for member in ("status", "duration", "language", "model"):
        assert expected[member] == answer[member]


def test_the_subtitles_that_the_api_page_prints_are_the_ones_that_come(server):
    [(command, shown)] = re.findall(r"^```sh\n([^`]*?)^```\s*^```text\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert words(shown) == words(run_documented(["sh", "-euc", fill_in(command, server)], server)) == words(JFK)


PAGES = [ROOT / "README.md", *(page for place in PLACES for page in sorted((ROOT / place).rglob("*.md")))]


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_between_the_readmes_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if "://" not in target:
            linked = ROOT / Path(page).parent / target if target else ROOT / page
            assert linked.exists(), target
            if heading and linked.suffix == ".md":
                assert heading in anchors(linked), f"{target}#{heading}"


def anchors(page: Path) -> set[str]:
    """The names by which links reach the headings of *page*, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES if page.name == "README.md"])
def test_every_python_file_that_a_readme_names_exists(page):
    files = [path.as_posix() for place in (*PLACES, "scripts", "tests") for path in (ROOT / place).rglob("*.py")]
    named = set(re.findall(r"[\w/]*\w\.py\b", (ROOT / page).read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name.lstrip('/')}") for path in files)] == []


def test_every_file_that_the_security_page_names_exists():
    page = (ROOT / "server" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:server|pipeline|tests)/[^`]+)`", page))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_file_that_says_where_a_change_belongs_exists():
    table = (ROOT / "server" / "README.md").read_text().split("## Where a change belongs")[1].split("\n## ")[0]
    named = re.findall(r"`([^`]+)`", table)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).is_file()] == []
