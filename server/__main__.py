"""The command line: scribewire serve, transcribe, keys, ... Each command is a module of commands/."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.errors import PipelineError
from server import __version__
from server.commands import COMMANDS, command
from server.config import Config, ConfigError
from server.model.errors import BadLimits, StorageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2, with one sentence, for a mistake that the user can correct."""
    parser = argparse.ArgumentParser(prog="scribewire", description="Self-hosted streaming transcription.")
    parser.add_argument("--version", action="version", version=f"scribewire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    words = sys.argv[1:] if arguments is None else arguments
    for name in _commands_of(words):
        command(name).add(commands)
    given = parser.parse_args(words)
    try:
        status: int = given.run(given, Config.from_env(os.environ))
    except (ConfigError, BadLimits, StorageError, PipelineError) as error:
        print(f"scribewire: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _commands_of(words: Sequence[str]) -> Sequence[str]:
    """Return the commands to import: the one that is called, none for the version, and all for help and mistakes."""
    match words:
        case ["--version", *_]:
            return ()
        case [name, *_] if name in COMMANDS:
            return (name,)
        case _:
            return COMMANDS


if __name__ == "__main__":
    sys.exit(main())
