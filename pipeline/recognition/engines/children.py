"""Modules of ours that run as processes of their own, because only a process can be stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pipeline


def start(module: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """`python -m module arguments`, wherever this package lies, with pipes at its input and output.

    Its input ends when this process does, however it ends: a child that reads to the end never outlives us.
    """
    here = str(Path(pipeline.__file__).parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603  (our own module, no shell)
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path} | variables,
    )
