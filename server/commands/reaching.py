"""How commands reach a server: the arguments that name it, and the error when it cannot be used."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from server.config import Config, ConfigError


def add_arguments(parser: argparse.ArgumentParser, *, server: str | None, meaning: str) -> None:
    """Add --server, by default *server*, and --key."""
    parser.add_argument("--server", metavar="URL", default=server, help=meaning)
    parser.add_argument("--key", help="API key (default: the operator key of the data folder)")


def key_of(given: argparse.Namespace, config: Config) -> str:
    if given.key is not None:
        return str(given.key)
    path = config.data_dir / "operator-key"
    if not path.is_file():
        raise ConfigError("--key must be given where there is no operator key in the data folder, got none")
    return path.read_text().strip()


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Turn a refusal of the server, or its absence, into one sentence and exit status 1."""
    import httpx  # noqa: PLC0415  takes 0.2 s, and who transcribes a file here reaches nobody

    from server.client import ServiceError  # noqa: PLC0415  as above

    try:
        yield
    except ServiceError as error:
        raise SystemExit(f"scribewire: {error}") from None
    except (OSError, httpx.TransportError) as error:
        raise SystemExit(f"scribewire: {address} cannot be reached: {error}") from None
