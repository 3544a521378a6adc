"""Programs that tests run in processes of their own, and whether those are gone."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed(program: str, *arguments: str, **variables: str) -> str:
    """What the Python *program* writes to its standard output. It imports the packages of this project."""
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for has, too (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def await_true(claim: Callable[[], bool]) -> None:
    """Return once *claim* holds; pytest's timeout is the bound."""
    while not claim():
        time.sleep(0.01)
