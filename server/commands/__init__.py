"""One module per command of the command line: add(commands) defines its arguments, run(given, config) runs it."""

from importlib import import_module
from types import ModuleType

COMMANDS = (
    "serve",
    "worker",
    "migrate",
    "move",
    "transcribe",
    "live",
    "models",
    "keys",
    "accounts",
    "erasures",
    "estimate",
    "doctor",
)


def command(name: str) -> ModuleType:
    """The module of a command. It is imported only now, because most commands need few of the server's modules."""
    return import_module(f"server.commands.{name}")
