"""Finds the server on this machine and its key, and turns refusals into sentences."""

import argparse
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from server.client import ServiceError
from server.config import LOOPBACK, OPERATOR_KEY, PREFIX, Config, ConfigError
from server.storage.scratch import PRIVATE_FILE

ADDRESS = "server-address"
"""A file in the data folder while its server runs: where that server answers."""


def add_arguments(parser: argparse.ArgumentParser, *, meaning: str, here: bool = False) -> None:
    """Add --server, --key and --data-dir. *here*: without --server the command works in this process."""
    parser.add_argument("--server", metavar="URL", help=meaning)
    parser.add_argument("--key", help="API key (default: the operator's key of the data folder)")
    add_settings(parser, ["data_dir"])
    parser.set_defaults(here=here)


def add_settings(parser: argparse.ArgumentParser, names: list[str]) -> None:
    """Add options that stand for variables: --data-dir for SCRIBEWIRE_DATA_DIR."""
    for name in names:
        meaning = f"in place of {PREFIX}{SETTING.get(name, name).upper()}"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=name.rpartition("_")[2].upper(), help=meaning)
    parser.set_defaults(settings=names)


SETTING = {"model": "whisper_model"}
"""Options whose variables have other names."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a server answers, and a key for it."""

    address: str
    key: str


def connection(given: argparse.Namespace, config: Config) -> Connection:
    """The server that --server names, or the one that runs on this machine, and its key. Raises ConfigError.

    The operator's key is only sent to this machine.
    """
    folder, address = _running(config)
    if given.server is not None:
        address = str(given.server).rstrip("/")
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
            raise ConfigError(f"--server must be an address such as http://127.0.0.1:8000, got {given.server!r}")
    if given.key is not None:
        return Connection(address, given.key)
    path, home = folder / OPERATOR_KEY, (_running(config)[1], config.public_base_url)
    if urlsplit(address).hostname not in LOOPBACK and address not in home:
        raise ConfigError(f"--key must be given for {address}: the operator's key is only sent to this machine")
    if not path.is_file():
        raise ConfigError(f"--key must be given, or --data-dir: there is no operator's key in {folder}")
    return Connection(address, path.read_text().strip())


def _running(config: Config) -> tuple[Path, str]:
    """The data folder and the address of the server of this machine: that of the settings, else the last started."""
    folders = [config.data_dir]
    if f"{PREFIX}DATA_DIR" not in os.environ and config.data_dir == Path("data"):
        with suppress(OSError):
            folders.append(Path(_last_started().read_text()))
    for folder in folders:
        with suppress(OSError):
            return folder, (folder / ADDRESS).read_text()
    return config.data_dir, f"http://127.0.0.1:{config.port or 8000}"


@contextmanager
def noted(config: Config, address: str) -> Iterator[None]:
    """Note for client commands, while the block lasts, that the server of this data folder answers at *address*."""
    notes = {config.data_dir / ADDRESS: address, _last_started(): str(config.data_dir.resolve())}
    with suppress(OSError):  # a home that cannot be written to: then clients need --data-dir
        for path, text in notes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w") as file:
                file.write(text)
    try:
        yield
    finally:
        (config.data_dir / ADDRESS).unlink(missing_ok=True)


def _last_started() -> Path:
    """The file with the data folder of the server that this user started last."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "scribewire" / "data-folder"


def machine_address(host: str) -> str:
    """The host for links of a server that listens on *host*: if on all networks, this machine's address in its own."""
    if host in LOOPBACK:
        return "127.0.0.1"
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104  nothing is bound here
        return host
    family, target = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((target, 9))  # sends nothing: it asks the system which of its addresses it would use
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def sentence(text: str) -> str:
    """The *text* with a capital and a full stop, as all errors of the command line are."""
    text = text.strip()
    text = text if text.startswith(("scribewire", "http")) else text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Turn errors of the server, or its absence, into one sentence and exit status 1. A wrong option is ConfigError."""
    try:
        yield
    except ServiceError as error:
        if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ConfigError(error.detail) from None
        said = f"{error.detail.rstrip('.')} ({error.code})"
        raise SystemExit(f"scribewire: {sentence(said)}") from None
    except (OSError, httpx.TransportError) as error:
        raise SystemExit(f"scribewire: {absent(address, error)}") from None


def absent(address: str, error: Exception) -> str:
    """The sentence for a server that cannot be reached."""
    return f"No server answers at {address} ({error}). Start it with `scribewire serve`, or name another with --server."
