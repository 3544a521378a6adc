"""The memory that all decoders share. Each claims its share before it starts, and gives it back at its end.

memory = DecoderMemory()
memory.limit(usable_bytes() // 2)
claim = memory.claim()      # waits for room
...
claim.release()
"""

import asyncio
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from pipeline.errors import DecodersBusy

DECODER_BYTES = 128 << 20
"""The most that one decoder can take: the address space that it may add (cell.py), and copies of inherited pages."""

LIVE_SHARE = 0.75
"""Live streams begin only below this share. They last for hours, and files need memory too."""

SANDBOX_SHARE = 0.5
"""The same for live streams of the sandbox, which use no allowance."""

WAIT_S = 20.0
"""How long a file waits for room: files end soon, and live streams have a share of their own."""

LOOK_S = 0.1

BUSY = "All memory for decoders is in use. Try again in a moment."

_CGROUPS = Path("/sys/fs/cgroup")


class DecoderMemory:
    """Counts the claims. It is thread-safe."""

    def __init__(self, total_bytes: int | None = None) -> None:
        """*total_bytes* is what all decoders may take together; None: there is no limit."""
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._freed = threading.Condition()

    def limit(self, total_bytes: int) -> None:
        """Limit the memory of all decoders together to *total_bytes*."""
        self._total_bytes = total_bytes

    @property
    def used_bytes(self) -> int:
        """The most that the running decoders can take; they usually take far less."""
        return self._used_bytes

    def claim(self, *, wait_s: float = WAIT_S) -> "MemoryClaim":
        """Return a claim once there is room. It blocks; raises DecodersBusy after *wait_s* seconds."""
        until = time.monotonic() + wait_s
        with self._freed:
            while (claim := self._claim(1.0)) is None:
                if not self._freed.wait(until - time.monotonic()):
                    raise DecodersBusy(BUSY)
        return claim

    async def claim_soon(self, *, share: float = 1.0, wait_s: float = WAIT_S) -> "MemoryClaim":
        """Return what try_claim() does once there is room. Raises DecodersBusy after *wait_s* seconds."""
        until = time.monotonic() + wait_s
        while (claim := self.try_claim(share=share)) is None:
            if time.monotonic() >= until:
                raise DecodersBusy(BUSY)
            await asyncio.sleep(LOOK_S)
        return claim

    def try_claim(self, *, share: float = 1.0) -> "MemoryClaim | None":
        """Return a claim, or None if this *share* of all memory has no room for it."""
        with self._freed:
            return self._claim(share)

    def _claim(self, share: float) -> "MemoryClaim | None":
        if self._total_bytes is not None and self._used_bytes + DECODER_BYTES > share * self._total_bytes:
            return None
        self._used_bytes += DECODER_BYTES
        return MemoryClaim(self)

    def give_back(self) -> None:
        """Called by a claim, once."""
        with self._freed:
            self._used_bytes -= DECODER_BYTES
            self._freed.notify_all()


class MemoryClaim:
    """The memory of one decoder."""

    def __init__(self, memory: DecoderMemory) -> None:
        self._memory: DecoderMemory | None = memory

    def release(self) -> None:
        """Give the memory back. Calling it again does nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.give_back()


def usable_bytes() -> int:
    """Return how much memory this process may use, in bytes: the machine's, or the limit of its control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    group = ""
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
        group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    places = [_CGROUPS / group, *(_CGROUPS / group).parents]  # the groups around it have limits too
    files = [place / "memory.max" for place in places if place.is_relative_to(_CGROUPS)]
    for file in (*files, _CGROUPS / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such group, or "max"
            limits.append(int(file.read_text(encoding="ascii")))
    return min(limits)
