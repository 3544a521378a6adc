"""The command line with threads that tell the system their names (Linux): python -m benchmarks.named serve

Other programs then see what each thread of the server is for, and what CPU time it took: cpu_by_use().
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from server.__main__ import main

LONGEST_NAME = 15  # bytes that the system keeps
MODEL = "model"


def tell_names() -> None:
    """Give every thread that Python starts from now on its name in the system, too."""
    run: Callable[[threading.Thread], None] = threading.Thread.run

    @wraps(run)
    def named(thread: threading.Thread) -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(thread.name[:LONGEST_NAME])
        run(thread)

    threading.Thread.run = named  # type: ignore[method-assign]  # the process is measured, and this is its only change


def cpu_by_use(pid: int) -> Counter[str]:
    """Return the CPU seconds of a process by the use of its running threads.

    The main thread is the event loop. Threads without a name of their own are those of the model's library.
    """
    used: Counter[str] = Counter()
    unnamed = Path(f"/proc/{pid}/comm").read_text()
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text()
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        use = MODEL if name == unnamed or name.startswith(MODEL) else name.rstrip("\n0123456789_-")
        use = "event loop" if task.name == str(pid) else use
        used[use] += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


if __name__ == "__main__":
    tell_names()
    sys.exit(main())
