"""The command line: scribewire serve, transcribe, keys, ... Each command is a module of commands/."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

from pipeline.errors import PipelineError
from server import __version__
from server.commands import COMMANDS
from server.commands.connection import SETTING, sentence
from server.config import PREFIX, Config, ConfigError
from server.model.errors import BadLimits, StorageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A mistake of the user gives one sentence and status 2."""
    parser = argparse.ArgumentParser(
        prog="scribewire",
        description="Self-hosted streaming transcription.",
        epilog="`scribewire serve --help` names every setting. Exit status: 0 all is done, 1 something failed, "
        "2 a wrong option, file or setting.",
    )
    parser.add_argument("--version", action="version", version=f"scribewire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    words = sys.argv[1:] if arguments is None else arguments
    for module in _modules_of(words):
        import_module(f"server.commands.{module}").add(commands)
    given = parser.parse_args(words)
    try:
        status: int = given.run(given, Config.from_env({**os.environ, **_settings(given)}))
    except (ConfigError, BadLimits, StorageError, PipelineError) as error:
        text = str(error)
        for name in _settings(given):
            text = text.replace(name, _option_of(name))
        print(f"{getattr(error, 'file', 'scribewire')}: {sentence(text)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _settings(given: argparse.Namespace) -> Mapping[str, str]:
    """The variables that options of the command stand for, with their values."""
    named = [(name, getattr(given, name)) for name in getattr(given, "settings", ())]
    return {f"{PREFIX}{SETTING.get(name, name).upper()}": value for name, value in named if value is not None}


def _option_of(variable: str) -> str:
    name = variable.removeprefix(PREFIX).lower()
    return "--" + next((option for option, setting in SETTING.items() if setting == name), name).replace("_", "-")


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
