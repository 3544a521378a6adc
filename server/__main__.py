"""The command line: scribewire serve, transcribe, keys, ... Each command is a module of commands/."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.errors import PipelineError
from server import __version__
from server.commands import COMMANDS
from server.config import Config, ConfigError
from server.model.errors import BadLimits, StorageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2, with one sentence, for a mistake that the user can correct."""
    parser = argparse.ArgumentParser(prog="scribewire", description="Self-hosted streaming transcription.")
    parser.add_argument("--version", action="version", version=f"scribewire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    given = parser.parse_args(arguments)
    try:
        status: int = given.run(given, Config.from_env(os.environ))
    except (ConfigError, BadLimits, StorageError, PipelineError) as error:
        print(f"scribewire: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
