"""The command line. A module has one command or several: add(commands) defines their arguments, run() runs one."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "serve": "serve",
    "worker": "worker",
    "migrate": "cluster",
    "move": "cluster",
    "transcribe": "transcribe",
    "live": "live",
    "models": "models",
    "keys": "administration",
    "accounts": "administration",
    "erasures": "administration",
    "estimate": "estimate",
    "doctor": "doctor",
}
"""The module of each command. It is imported when it is needed, because most commands need few of the server's."""
