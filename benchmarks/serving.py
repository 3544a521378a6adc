"""Starts a Scribewire server to measure, and reads its /metrics."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.measure import ROOT

START_S = 60


@dataclass(frozen=True)
class Serving:
    base: str
    key: str  # the operator's; "" at all nodes of a cluster but the first
    pid: int
    folder: Path  # with the server's data folder, its folder for temporary files and its log

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def metrics(self) -> str:
        return httpx.get(f"{self.base}/metrics", timeout=30).text


@contextmanager
def serving(limits: Mapping[str, str] | None = None, *, kept: Path | None = None, **settings: str) -> Iterator[Serving]:
    """Start a server on a free port.

    *limits*: parts of server/limits.toml, each with what takes its place.
    *kept*: the folder of its data, which may be that of an earlier server; None: an empty one that is deleted.
    """
    with nullcontext(str(kept)) if kept else tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "limits.toml").write_text(replaced_limits(limits or {}))
        ours = {"DATA_DIR": f"{folder}/data", "PORT": "0", "LIMITS_FILE": f"{folder}/limits.toml", **settings}
        temporary = Path(folder) / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = {"TMPDIR": str(temporary), **{f"SCRIBEWIRE_{name}": value for name, value in ours.items()}}
        command, log = [sys.executable, "-m", "server", "serve"], Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(command, cwd=ROOT, stderr=file, env={**os.environ, **variables})
        try:
            base, key = _address(log), Path(folder) / "data" / "operator-key"
            yield Serving(base, key.read_text().strip() if key.exists() else "", process.pid, Path(folder))
        finally:
            process.terminate()
            process.wait(60)


def replaced_limits(limits: Mapping[str, str]) -> str:
    """Return server/limits.toml with each part that *limits* names replaced. Raises SystemExit for an unknown part."""
    text = (ROOT / "server" / "limits.toml").read_text()
    for old, new in limits.items():
        if old not in text:
            raise SystemExit(f"server/limits.toml has no {old!r}")
        text = text.replace(old, new)
    return text


def _address(log: Path) -> str:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if found := re.search(r"ready (http\S+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit("the server did not start:\n" + log.read_text())
