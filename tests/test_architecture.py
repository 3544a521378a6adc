"""Checks what may import what, and how long files and functions are. The rules are data."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.processes import output_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("server", "pipeline", "estimator")

MAY_IMPORT = {"server": {"server", "pipeline", "estimator"}, "pipeline": {"pipeline"}, "estimator": {"estimator"}}

FLOORS = (
    {"clock", "config", "metrics", "waiting", "capacity"},
    {"model"},
    {"logs", "keyed_limits"},
    {"storage"},
    {"background", "http", "client"},
    {"egress", "accounts", "translation", "parsing"},
    {"jobs", "records"},
    {"webhooks", "streams"},
    {"live"},
    {"requests"},
    {"routes", "dialects"},
    {"engines"},
    {"worker_process"},
    {"app", "transport"},
    {"commands"},
    {"__main__"},
)
"""The rooms of server/, the ground floor first. A room imports only from the floors below its own."""

KNOW_HTTP = {"http", "requests", "routes", "dialects", "app", "transport"}
"""The rooms that may import starlette and server.http; egress/ reads file names as headers have them."""

CLUSTER_ONLY = {"obstore"}
"""Libraries of the optional group `cluster`: a server with a data folder of its own runs without them."""


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
def test_packages_import_only_what_stands_below_them(package):
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


def test_every_room_of_the_server_has_a_floor():
    assert {room(path) for path in server_files()} == set().union(*FLOORS)


def test_no_import_of_the_server_runs_up_or_across():
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    for path in server_files():
        above = {used for used in rooms_used(path) if floor[used] >= floor[room(path)]}
        assert not above, f"{name(path)} imports {above}"


def test_http_is_known_only_at_the_top():
    for path in server_files():
        used = imports(path)
        if room(path) not in KNOW_HTTP:
            assert not {module for module in used if module.split(".")[0] == "starlette"}, name(path)
            known = {module for module in used if module.startswith("server.http")}
            headers = {module for module in known if module.startswith("server.http.headers")}
            assert known == (headers if room(path) == "egress" else set()), name(path)


def test_a_dialect_is_known_only_to_the_line_that_registers_it():
    folders = {path.parent.name for path in (ROOT / "server" / "dialects").glob("*/dialect.py")}
    assert {"openai", "deepgram"} <= folders
    for path in server_files():
        known = {module.split(".")[2] for module in imports(path) if module.startswith("server.dialects.")} & folders
        assert known <= {path.parent.name} or name(path) == "server/dialects/registered.py", name(path)


def test_only_the_command_line_chooses_the_storage_backend():
    for path in server_files():
        backends = {module.split(".")[2] for module in imports(path) if module.startswith("server.storage.")}
        backends &= {"sqlite", "postgres"}
        if room(path) not in ("commands", "__main__"):
            assert backends <= {path.parent.name}, name(path)


def test_the_embedded_form_loads_nothing_of_the_cluster_form():
    program = "import sys, server.app, server.commands.serve, server.commands.worker; print(*sys.modules)"
    loaded = output_of(program).split()
    assert "server.storage.sqlite.open" in loaded
    assert not {module.split(".")[0] for module in loaded} & CLUSTER_ONLY
    assert not [module for module in loaded if module.startswith("server.storage.s3")]


def test_no_file_imports_itself_by_way_of_others():
    modules = {name(path).removesuffix(".py").replace("/", "."): path for path in sources()}
    edges = {module: imports(path) & modules.keys() for module, path in modules.items()}
    while free := {module for module, used in edges.items() if not used & edges.keys()}:
        edges = {module: used for module, used in edges.items() if module not in free}
    assert not edges, f"these import each other in a circle, or import one that does: {sorted(edges)}"


def names_in(path: Path) -> set[str]:
    """Return what a module defines, assigns or imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return names


def test_what_scripts_and_benchmarks_import_from_tests_is_there():
    """They are not run by every test, and mypy does not read tests."""
    missing = []
    for path in [*(ROOT / "scripts").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                module = ROOT / (node.module or "").replace(".", "/")
                known = (
                    {one.stem for one in module.glob("*.py")}
                    if module.is_dir()
                    else names_in(module.with_suffix(".py"))
                )
                missing += [f"{name(path)}: {alias.name}" for alias in node.names if alias.name not in known]
    assert missing == []
