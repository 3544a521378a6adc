"""When the machine's cores stood still: python -m benchmarks.standstill CORE SECONDS, started by benchmarks.requests

A process with real-time priority that only sleeps half a millisecond at a time wakes late when its core does nothing
for anybody: the host of a virtual machine runs something else, or the firmware does. No server can answer then. It
prints a line of JSON: a pair for each such time, when it began (time.perf_counter()) and how many seconds it lasted.
That needs Linux and root.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from benchmarks.measure import ROOT

NAP_S = 0.0005
LATE_S = 0.0003  # more than any wake-up takes
PRIORITY = 50

Standstills: TypeAlias = list[tuple[float, float]]


@contextmanager
def watching(cores: Iterable[int], seconds: float) -> Iterator[Standstills | None]:
    """Watch *cores* for so long from the block's beginning. The list is filled at its end; None: not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield None
        return
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.standstill", str(core), str(seconds)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for core in cores
    ]  # fmt: skip
    seen: Standstills = []
    try:
        lines = [process.stdout for process in processes if process.stdout is not None]
        for line in lines:
            line.readline()
        yield seen
        for line in lines:
            seen += map(tuple, json.loads(line.readline()))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def watch(core: int, seconds: float) -> Standstills:
    """The standstills of *core* from now on, which is said by an empty line."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    gc.disable()
    seen: Standstills = []
    print(flush=True)
    end = time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        time.sleep(NAP_S)
        lost = time.perf_counter() - before - NAP_S
        if lost > LATE_S:
            seen.append((before, lost))
    return seen


if __name__ == "__main__":
    print(json.dumps(watch(int(sys.argv[1]), float(sys.argv[2]))))
