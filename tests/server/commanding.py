"""Runs `scribewire` in a process of its own, forked from one that has imported all it needs."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from server.__main__ import main
from server.commands import COMMANDS
from tests.processes import ROOT

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([__name__, *(f"server.commands.{name}" for name in COMMANDS.values())])


def run_command(
    *words: str, environ: Mapping[str, str], cwd: Path = ROOT, stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `scribewire` with *words*, and return its exit status and what it printed."""
    with TemporaryDirectory() as folder:
        given, printed, told = (Path(folder) / name for name in ("stdin", "stdout", "stderr"))
        given.write_bytes(stdin)
        process = _FORKING.Process(target=_run, args=(words, dict(environ), cwd, (given, printed, told)))
        process.start()
        process.join(60)
        assert process.exitcode is not None, "it does not end"
        return subprocess.CompletedProcess(words, process.exitcode, printed.read_text(), told.read_text())


def _run(words: Sequence[str], environ: Mapping[str, str], cwd: Path, files: Sequence[Path]) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0)
    sys.exit(main(words))
