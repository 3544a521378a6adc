"""The memory of all decoders together. Each gets its part of it before it starts, and gives it back at its end.

memory = DecoderMemory()
    memory.limit(usable_bytes() // 2)
part = memory.claim()      # waits for room
...
part.release()
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.errors import DecodersBusy

PART_BYTES = 128 << 20
"""What one decoder can take at most: the addresses that it may add (cell.py), and copies of pages that it inherits."""

LIVE_SHARE = 0.75
"""Live streams begin only below this share: they last for hours, and files must get their turn beside them."""

REHEARSAL_SHARE = 0.5
"""Those of the sandbox, which need no allowance, begin only below this one."""

WAIT_S = 20.0
"""How long a file waits for room. Files end, and what lasts has a share of its own."""

_CGROUPS = Path("/sys/fs/cgroup")


class DecoderMemory:
    """Counts the parts in use. It is thread-safe."""

    def __init__(self, total_bytes: int | None = None) -> None:
        """*total_bytes* is what all decoders may take together; None: there is no limit."""
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._freed = threading.Condition()

    def limit(self, total_bytes: int) -> None:
        """Let all decoders take *total_bytes* together from now on."""
        self._total_bytes = total_bytes

    @property
    def used_bytes(self) -> int:
        """What the running decoders could take, most of which they never do."""
        return self._used_bytes

    def claim(self, *, wait_s: float = WAIT_S) -> "MemoryPart":
        """Return a part once there is room. It blocks; raises DecodersBusy after *wait_s* seconds."""
        until = time.monotonic() + wait_s
        with self._freed:
            while (part := self._claim(1.0)) is None:
                if not self._freed.wait(until - time.monotonic()):
                    raise DecodersBusy("there is no room for another decoder")
        return part

    def try_claim(self, share: float = 1.0) -> "MemoryPart | None":
        """Return a part if there is room at once, without exceeding this *share* of all memory."""
        with self._freed:
            return self._claim(share)

    def _claim(self, share: float) -> "MemoryPart | None":
        if self._total_bytes is not None and self._used_bytes + PART_BYTES > share * self._total_bytes:
            return None
        self._used_bytes += PART_BYTES
        return MemoryPart(self)

    def give_back(self) -> None:
        """Called by a part, once."""
        with self._freed:
            self._used_bytes -= PART_BYTES
            self._freed.notify_all()


class MemoryPart:
    """The part of one decoder."""

    def __init__(self, memory: DecoderMemory) -> None:
        self._memory: DecoderMemory | None = memory

    def release(self) -> None:
        """Give the part back. Calling it again does nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.give_back()


def usable_bytes() -> int:
    """Return how much memory this process may use: that of the machine, or less if its control group has a limit."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([pages, *_group_limits()])


def _group_limits() -> Iterator[int]:
    """Yield the limits of the process's control group and of those around it (Linux)."""
    group = ""
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
        group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    places = [_CGROUPS / group, *(_CGROUPS / group).parents]
    files = [place / "memory.max" for place in places if place.is_relative_to(_CGROUPS)]
    for file in (*files, _CGROUPS / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such group, or "max"
            yield int(file.read_text(encoding="ascii"))
