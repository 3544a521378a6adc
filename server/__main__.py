"""The command line: scribewire serve, transcribe, keys, ... Each command is a module of commands/."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from pipeline.errors import PipelineError
from server import __version__
from server.commands import COMMANDS
from server.config import Config, ConfigError
from server.model.errors import BadLimits, StorageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A mistake of the user gives one sentence and status 2."""
    parser = argparse.ArgumentParser(prog="scribewire", description="Self-hosted streaming transcription.")
    parser.add_argument("--version", action="version", version=f"scribewire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    words = sys.argv[1:] if arguments is None else arguments
    for module in _modules_of(words):
        import_module(f"server.commands.{module}").add(commands)
    given = parser.parse_args(words)
    try:
        status: int = given.run(given, Config.from_env(os.environ))
    except (ConfigError, BadLimits, StorageError, PipelineError) as error:
        print(f"scribewire: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _modules_of(words: Sequence[str]) -> Iterable[str]:
    """The modules to import: one for a command, none for the version, all for help and for mistakes."""
    match words:
        case ["--version", *_]:
            return ()
        case [name, *_] if name in COMMANDS:
            return (COMMANDS[name],)
        case _:
            return dict.fromkeys(COMMANDS.values())


if __name__ == "__main__":
    sys.exit(main())
