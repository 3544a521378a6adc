"""A cache of a store's answers. A cached answer is used only as long as the version of its topic stays the same.

This needs a backend that knows the newest version of a topic without waiting. SQLite reads it from memory that all
processes share. A backend behind a network learns of changes a moment too late, so it has no versions, and nothing is
cached.
"""

import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    version: int
    until: float


class AnswerCache(Generic[V]):
    """Answers by key. *version* returns the newest version of a topic, or None if it is unknown at the moment.

    At most *max_kept* answers are kept, each for at most *kept_s* seconds. The backend must keep versions much longer.
    """

    def __init__(self, version: Callable[[str], int | None], *, max_kept: int, kept_s: float) -> None:
        self._version = version
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._kept: dict[Hashable, _Entry[V]] = {}  # the oldest first

    async def get(self, key: Hashable, topic: str, read: Callable[[], Awaitable[V]], *, keep: Callable[[V], bool]) -> V:
        """The answer for *key*, with every change of *topic* that was committed before this call.

        If it is not cached, *read* reads it, and *keep* decides whether it is cached.
        """
        version, now = self._version(topic), time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and kept.version == version and now < kept.until:
            return kept.value
        value = await read()
        self._kept.pop(key, None)
        self._forget_old(now)
        if version is not None and keep(value):
            self._kept[key] = _Entry(value, version, now + self._kept_s)
        return value

    def forget(self, key: Hashable) -> None:
        self._kept.pop(key, None)

    def _forget_old(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if len(self._kept) < self._max_kept and now < self._kept[oldest].until:
                return
            del self._kept[oldest]
