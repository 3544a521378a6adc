"""Settings and fixtures for all tests, and which of them run in the same process."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.recognition.engines.models import bundled_folder
from pipeline.weights import INSTALLED

# Where this is set, each of the hundreds of processes that tests start would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Shared machines can stop for seconds, so the time of one example says nothing. EXAMPLES=1000 searches for longer.
settings.register_profile("any machine", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "40")))
settings.load_profile("any machine")


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Choose the event loop of coroutine tests: the server's, or one whose clock jumps."""
    virtual = request.node.get_closest_marker("virtual_time")
    return "asyncio", {"loop_factory": VirtualTimeLoop if virtual else uvloop.new_event_loop}


@pytest.fixture(scope="session")
def bundled_model() -> Path:
    """Return the folder of tiny.en, the real model of the installation."""
    folder = bundled_folder("tiny.en")
    assert folder is not None, "the bundled model is not installed: run scripts/setup model"
    return folder


@pytest.fixture(scope="session")
def base_model() -> Path:
    """Return the folder of base, the model of the installation for all languages."""
    folder = bundled_folder("base")
    if folder is None:
        pytest.skip("Whisper base is not installed: run scripts/setup base")
    return folder


@pytest.fixture
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no model be bundled."""
    for name, folder in INSTALLED.items():
        monkeypatch.setitem(INSTALLED, name, replace(folder, packages=("no-such-package",)))  # type: ignore[arg-type]


@pytest.fixture
def without_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only tiny.en be bundled."""
    monkeypatch.setitem(INSTALLED, "base", replace(INSTALLED["base"], packages=("no-such-package",)))  # type: ignore[arg-type]


class BySetup(LoadFileScheduling):
    """Gives one process the tests that share what is slow to start: a cluster, a browser, or what a file needs.

    The black-box tests of the contract are parted by the form of their server, those of the page into two halves.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        form = re.search(r"[\[-](one machine|cluster)[\]-]", test)
        if "/test_contract_" in file and form:
            return form[1]
        if file.startswith("tests/web/"):
            return "the page, first half" if file < "tests/web/test_web_g" else "the page, second half"
        return file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySetup:
    return BySetup(config, log)


LONG = (
    "tests/pipeline/test_answers.py",
    "tests/abuse/",
    "tests/benchmarks/test_corpus.py",
    "tests/benchmarks/test_live_words.py",
    "tests/chaos/",
    "tests/pipeline/test_batch_speakers.py",
    "tests/pipeline/test_hints.py",
    "tests/pipeline/test_hub.py",
    "tests/pipeline/test_isolation.py",
    "tests/pipeline/test_layouts.py",
    "tests/pipeline/test_live_speakers.py",
    "tests/pipeline/test_said_again.py",
    "tests/pipeline/test_whisper.py",
    "tests/server/storage/test_storage_processes.py",
    "tests/server/transport/test_websocket_frames.py",
    "tests/test_recipes.py",
    "tests/web/",
)
"""What takes long in all of its tests: servers, browsers, clusters, attackers, decoding processes, a real model."""

FIRST = (
    "tests/abuse/",
    "tests/chaos/",
    "tests/server/commands/",
    "tests/server/contract/",
    "tests/server/storage/",
    "tests/server/test_cluster.py",
    "tests/server/test_faults.py",
    "tests/server/transport/",
    "tests/test_docs.py",
    "tests/test_recipes.py",
    "tests/web/",
)
"""What takes more than half a minute in one process, or waits more than it computes."""

STARTED = frozenset(
    {"server", "live_server", "hasty_server", "impatient_server", "small_server", "bundled_server", "bucket"}
)
"""Fixtures that start a server or a cluster."""

IMPORT = re.compile(r"^(?:from \S+ )?import (\([^)]*\)|[^\n]*)", re.MULTILINE)

STARTS = frozenset(
    {"Server", "AppServer", "serve", "shared_cluster", "subprocess", "output_of", "run_command", "BACKENDS"}
)
"""What the files of tests import that start processes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what is pure or in one process")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, do not import what is left out as a whole: each process would do so."""
    if not config.getoption("--quick") or not collection_path.name.startswith("test_"):
        return None
    place = collection_path.relative_to(config.rootpath).as_posix()
    names = re.findall(r"\w+", " ".join(IMPORT.findall(collection_path.read_text())))
    return True if place.startswith(LONG) or not STARTS.isdisjoint(names) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the groups that take longest, so that none is left alone at the end; with --quick leave them out."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if config.getoption("--quick"):
        left_out = [item for item in items if not _is_quick(item)]
        items[:] = [item for item in items if _is_quick(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_quick(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    starts = STARTS & set(vars(getattr(item, "module", None) or object))
    return not (item.nodeid.startswith(LONG) or fixtures & STARTED or starts)
