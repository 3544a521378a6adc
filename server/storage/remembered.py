"""Answers of a store that are kept in memory for a moment, and given again only while nothing has changed them.

A backend that can tell without waiting which version of a topic is the newest has its answers remembered: SQLite looks
it up in the pages that every process shares. A backend behind a network hears of changes a moment too late, so it has
no version and reads every answer.
"""

import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V
    version: int
    until: float


class Remembered(Generic[V]):
    """Answers by key. *version* gives the newest version of a topic, or None if it is not known just now.

    At most *max_kept* answers are kept, each for at most *kept_s* seconds, which must be far shorter than versions are
    kept.
    """

    def __init__(self, version: Callable[[str], int | None], *, max_kept: int, kept_s: float) -> None:
        self._version = version
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._kept: dict[Hashable, _Kept[V]] = {}  # the oldest first

    async def get(self, key: Hashable, topic: str, read: Callable[[], Awaitable[V]], *, keep: Callable[[V], bool]) -> V:
        """The answer for *key*, as it was after every change of *topic* that was committed before this call.

        *read* reads it if it is not in memory, and *keep* says whether to remember it then.
        """
        version, now = self._version(topic), time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and kept.version == version and now < kept.until:
            return kept.value
        value = await read()
        self._kept.pop(key, None)
        self._forget_old(now)
        if version is not None and keep(value):
            self._kept[key] = _Kept(value, version, now + self._kept_s)
        return value

    def forget(self, key: Hashable) -> None:
        """Keep nothing for *key* in memory any longer."""
        self._kept.pop(key, None)

    def _forget_old(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if len(self._kept) < self._max_kept and now < self._kept[oldest].until:
                return
            del self._kept[oldest]
