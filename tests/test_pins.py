"""Lists what we use of libraries beyond their documented interfaces, and what would break if a release changed it.

A library that changes one of these names fails here first, with the name and the consequence. A use that is not listed
fails, too, so the list is complete. pyproject.toml allows these libraries only the releases that were tested.
"""

import ast
import importlib
import inspect
import re
import textwrap
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from pipeline.recognition.engines import bootstrap
from server.transport.http_server import HttpServer, TrackedHttp
from server.transport.websocket import PatientWebSocket, PricedFrames

ROOT = Path(__file__).parents[1]
PACKAGES = ("server", "pipeline", "estimator", "scripts", "client", "benchmarks")
PINNED = {"uvicorn", "websockets", "faster_whisper", "genai_prices"}
"""The libraries with listed uses. Of others only documented names are used."""

INHERITED: dict[type, dict[str, str]] = {
    HttpServer: {
        "startup": "the port that serve has bound itself, and the line that says where the server listens",
        "capture_signals": "our handling of SIGTERM and SIGINT",
    },
    TrackedHttp: {
        "connection_made connection_lost data_received eof_received transport loop": "the connection's timers",
        "on_message_begin on_url on_header on_headers_complete on_body on_message_complete": "bounds of requests",
        "url headers scope parser": "bounds of heads, and requests whose upgrade is ignored",
        "cycle pipeline _start_asgi_task on_response_complete": "answers to pipelined requests, and their end",
        "send_400_response": "problem+json for what is no HTTP",
        "_should_upgrade handle_websocket_upgrade": "WebSockets",
        "_unset_keepalive_if_required": "kept connections: their timer would run on in a request",
    },
    PricedFrames: {
        "reader receive_data current_size": "parsing a few frames in a turn",
        "recv_frame fail state": "the allowance for frames",
    },
    PatientWebSocket: {
        "conn config connection_made data_received handle_events transport loop": "all WebSockets",
        "handle_parser_exception": "the close codes of frames that are not valid",
        "handle_connect handshake_initiated handshake_complete initial_response request response scope": "handshakes",
        "queue receive read_paused frames curr_msg_data_type send_receive_event_to_app handle_cont": "backpressure",
        "send writable disconnected close_sent close_timer shutdown": "the close frame, and its code",
        "handle_ping keepalive_timeout ping_sent_at pong_timer pending_ping_payload schedule_ping": "silent peers",
    },
}
"""What each of our subclasses overrides or reads of its base, by what would break."""


@dataclass(frozen=True)
class Pin:
    """Undocumented names of one owner: a module, or a class of one."""

    owner: str
    names: str
    used_in: str
    breaks: str
    takes: tuple[str, ...] | None = None
    """The parameters of the one name, which is called."""


PINS = (
    Pin(
        "uvicorn.protocols.http.httptools_impl:RequestResponseCycle",
        "response_started response_complete disconnected message_event transport scope "
        "chunked_encoding expected_content_length",
        "server/transport/http_server.py",
        "answers to HTTP/1.0, clients that leave before their answer, refusals behind an answer",
    ),
    Pin(
        "websockets.streams:StreamReader",
        "buffer",
        "server/transport/websocket.py",
        "parsing a few frames in a turn: what is left is taken from the parser",
    ),
    Pin(
        "websockets.frames",
        "apply_mask",
        "server/transport/websocket.py",
        "audio on WebSockets in its usual frames",
    ),
    Pin(
        "websockets.http11",
        "MAX_LINE_LENGTH",
        "server/transport/websocket.py",
        "the detail of headers_too_large for a WebSocket",
    ),
    Pin(
        "websockets.protocol:Protocol",
        "parser_exc send_close data_to_send",
        "server/transport/websocket.py",
        "the close codes of frames that are not valid",
    ),
    Pin(
        "websockets.server:ServerProtocol",
        "accept handshake_exc",
        "server/transport/websocket.py",
        "the refusal of what is no handshake",
    ),
    Pin(
        "faster_whisper:WhisperModel",
        "model feature_extractor hf_tokenizer supported_languages",
        "pipeline/recognition/engines/whisper/engine.py",
        "all recognition: the model and its tokenizer are taken out of faster-whisper",
    ),
    Pin(
        "faster_whisper.feature_extractor:FeatureExtractor",
        "mel_filters",
        "pipeline/recognition/turns.py",
        "features of the sound, for words and for the ends of turns",
    ),
    Pin(
        "faster_whisper.tokenizer:Tokenizer",
        "split_tokens_on_unicode split_tokens_on_spaces sot_sequence sot_prev no_timestamps eot encode",
        "pipeline/recognition/engines/whisper/engine.py",
        "prompts, and the words' times",
    ),
    Pin(
        "faster_whisper.transcribe",
        "get_suppressed_tokens",
        "pipeline/recognition/engines/whisper/engine.py",
        "symbols would be recognised where somebody speaks",
        takes=("tokenizer", "suppress_tokens"),
    ),
    Pin(
        "genai_prices.types",
        "_providers_from_raw",
        "estimator/catalog.py",
        "price files that the administrator gives; no public function reads the feed's format",
        takes=("raw_providers",),
    ),
)

PRIVATE_IMPORTS = {("estimator/catalog.py", "genai_prices.types._providers_from_raw")}
"""Imports of names that begin with an underscore."""

DOCUMENTED = {"os._exit", "logging._srcfile"}
"""Names of Python's own library that its documentation names."""

UNDOCUMENTED_MODULES = {
    "uvicorn.protocols",
    "websockets.http11",
    "websockets.frames.apply_mask",
    "websockets.streams",
    "faster_whisper.tokenizer",
    "faster_whisper.transcribe",
    "faster_whisper.feature_extractor",
}
IMPORTED_OF_THEM = {
    ("pipeline/recognition/engines/whisper/engine.py", "faster_whisper.tokenizer.Tokenizer"),
    ("pipeline/recognition/engines/whisper/engine.py", "faster_whisper.transcribe.get_suppressed_tokens"),
    ("pipeline/recognition/turns.py", "faster_whisper.feature_extractor.FeatureExtractor"),
    ("server/transport/http_server.py", "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol"),
    ("server/transport/http_server.py", "uvicorn.protocols.http.httptools_impl.RequestResponseCycle"),
    ("server/transport/websocket.py", "uvicorn.protocols.utils.ClientDisconnected"),
    ("server/transport/websocket.py", "uvicorn.protocols.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol"),
    ("server/transport/websocket.py", "websockets.frames.apply_mask"),
    ("server/transport/websocket.py", "websockets.http11.MAX_LINE_LENGTH"),
    ("server/transport/websocket.py", "websockets.http11.Request"),
}

SUBCLASSED = {
    "HttpServer": "uvicorn.Server",
    "TrackedHttp": "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol",
    "PatientWebSocket": "uvicorn.protocols.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol",
    "PricedFrames": "websockets.server.ServerProtocol",
}
"""The classes of PINNED that we derive from. Each has a row in INHERITED."""


@cache
def sources() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


@cache
def imported() -> dict[tuple[str, str], str]:
    """Return the full names of all that our files import from libraries, with the file and the name there."""
    found: dict[tuple[str, str], str] = {}
    for file, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {(file, one.asname or one.name): one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found |= {(file, one.asname or one.name): f"{node.module}.{one.name}" for one in node.names}
    ours = (*PACKAGES, "tests", "__future__")
    return {key: name for key, name in found.items() if name.split(".")[0] not in ours}


def names_of(kind: type) -> set[str]:
    """Return all attributes of the class and those that its methods set or read of an object."""
    found = set(dir(kind))
    for base in kind.__mro__[:-1]:
        if base.__module__.split(".")[0] in PINNED:
            found |= set(re.findall(r"\bself\.(\w+)", inspect.getsource(base)))
            found |= set(getattr(base, "__annotations__", ()))
    return found


def foreign_base(kind: type) -> type:
    return next(base for base in kind.__mro__ if base.__module__.split(".")[0] in PINNED)


def parameters(function: Any) -> list[str]:
    """Return the parameters that a caller may give by their place."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in inspect.signature(function).parameters.values() if one.kind in by_place]


@pytest.mark.parametrize("kind", INHERITED, ids=lambda kind: kind.__name__)
def test_what_a_subclass_uses_of_its_base_is_listed_and_exists(kind):
    listed = {name: breaks for names, breaks in INHERITED[kind].items() for name in names.split()}
    theirs = {name for name in names_of(foreign_base(kind)) if not name.startswith("__")}
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))))
    used = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
            used.add(node.attr)
    gone = {name: breaks for name, breaks in listed.items() if name not in theirs}
    assert not gone, f"{foreign_base(kind).__qualname__} no longer has these names, with what breaks: {gone}"
    assert used & theirs == set(listed), "used and not listed here, or listed and no longer used"


@pytest.mark.parametrize("kind", INHERITED, ids=lambda kind: kind.__name__)
def test_an_overriding_method_takes_what_the_base_is_called_with(kind):
    base = foreign_base(kind)
    overridden = [
        name for name in vars(kind) if not name.startswith("__") and inspect.isroutine(getattr(base, name, None))
    ]
    assert overridden
    for name in overridden:
        ours, theirs = getattr(kind, name), getattr(base, name)
        assert len(parameters(ours)) == len(parameters(theirs)), f"{kind.__name__}.{name}"
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), f"{kind.__name__}.{name}"


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.owner)
def test_each_listed_name_exists_and_is_used(pin):
    bootstrap.prepare()  # before faster-whisper is imported
    module, _, inside = pin.owner.partition(":")
    owner = importlib.import_module(module)
    theirs = names_of(getattr(owner, inside)) if inside else set(dir(owner))
    missing = [name for name in pin.names.split() if name not in theirs]
    assert not missing, f"{pin.owner} no longer has {missing}, which breaks: {pin.breaks}"
    text = (ROOT / pin.used_in).read_text(encoding="utf-8")
    unused = [name for name in pin.names.split() if not re.search(rf"\b{name}\b", text)]
    assert not unused, f"{pin.used_in} no longer uses {unused}: take them off the list"
    if pin.takes is not None:
        taken = parameters(getattr(owner, pin.names))
        assert tuple(taken[: len(pin.takes)]) == pin.takes, f"{pin.names} takes {taken}, which breaks: {pin.breaks}"


def test_no_other_private_name_of_a_library_is_imported_or_read():
    private = {
        (file, name)
        for (file, _), name in imported().items()
        if any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    }
    assert private == PRIVATE_IMPORTS
    modules = {(file, name.split(".")[0]) for (file, name) in imported()}
    read = [
        f"{file}:{node.lineno} {ast.unparse(node)}"
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__")
        if (file, ast.unparse(node.value).split(".")[0]) in modules and ast.unparse(node) not in DOCUMENTED
    ]
    assert read == []


def test_no_other_undocumented_module_is_imported():
    found = {
        (file, name)
        for (file, _), name in imported().items()
        if any(name == one or name.startswith(one + ".") for one in UNDOCUMENTED_MODULES)
    }
    assert found == IMPORTED_OF_THEM


def test_no_other_class_of_these_libraries_is_derived_from():
    derived = {}
    for file, tree in sources():
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                first, _, rest = ast.unparse(base).partition(".")
                full = ".".join(filter(None, (imported().get((file, first)), rest)))
                if full.split(".")[0] in PINNED:
                    derived[node.name] = full
    assert derived == SUBCLASSED
    assert set(derived) == {kind.__name__ for kind in INHERITED}


def test_these_libraries_are_held_to_the_releases_that_were_tested():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    specifiers = {one.name.replace("-", "_"): one.specifier for one in map(Requirement, wanted)}
    unbounded = {name for name in PINNED if not any(part.operator in ("<", "==") for part in specifiers[name])}
    assert unbounded == set()
