"""The command line. A module has one or more commands. Its add(commands) defines their arguments."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "serve": "serve",
    "worker": "worker",
    "migrate": "cluster",
    "move": "cluster",
    "transcribe": "transcribe",
    "live": "live",
    "jobs": "jobs",
    "correct": "jobs",
    "inspect": "inspect",
    "models": "models",
    "keys": "administration",
    "accounts": "administration",
    "erasures": "administration",
    "estimate": "estimate",
    "doctor": "doctor",
}
"""The module of each command. It is imported only when needed, because most commands need few modules."""
