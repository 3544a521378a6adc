"""Audio that was heard already, for translators that listen to it once more."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import FULL_SCALE, RATE, WINDOW, Pcm, Samples, floats_of
from pipeline.translation.listening import AROUND
from pipeline.translation.units import Unit

LONGEST = 120 * RATE
"""The most audio that is kept, however long its words wait for their translations: 4 MB of each channel."""


def needed_from(settled: int, begins: int | None) -> int:
    """The position from which a restart needs the audio again.

    *settled*: that of the recognition. *begins*: where the first word begins that is still to be translated.
    """
    first = settled if begins is None else min(settled, begins - AROUND)
    return max(0, first, settled - LONGEST) // WINDOW * WINDOW


class KeptAudio:
    """Keeps what has come since the first word that has no translation, in 16 bits."""

    def __init__(self, start: int, redacted: Callable[[], Sequence[tuple[int, int]]]) -> None:
        """*start*: the position of the first sample. *redacted*: where something was said that nobody may hear."""
        self._start = self.end = start
        self._redacted = redacted
        self._pieces: deque[NDArray[np.int16]] = deque()

    def add(self, samples: Samples, *, needed_from: int) -> None:
        """Add the next samples, of all channels, and forget what is before *needed_from*."""
        self._pieces.append((samples * (FULL_SCALE - 1)).astype(np.int16))
        self.end += len(samples)
        least = max(needed_from - AROUND, self.end - LONGEST)
        while self._pieces and self._start + len(self._pieces[0]) <= least:
            self._start += len(self._pieces.popleft())

    async def of(self, unit: Unit) -> Samples | None:
        """Return the audio of *unit*, and a little around it, without what is redacted; None if it is gone."""
        if unit.start < self._start or not self._pieces:
            return None
        first, last = max(self._start, unit.start - AROUND), min(self.end, unit.end + AROUND)
        whole: Pcm = np.concatenate(self._pieces)[first - self._start : last - self._start]
        heard = floats_of(whole if unit.channel is None else np.ascontiguousarray(whole[:, unit.channel]))
        for start, end in self._redacted():
            heard[max(0, start - first) : max(0, end - first)] = 0
        return heard


class FileAudio:
    """Decodes a file once more, as far as its units need it."""

    def __init__(self, audio: AsyncIterator[Samples], redacted: Sequence[tuple[int, int]]) -> None:
        """*audio*: that of the file, from its beginning."""
        self._audio = audio
        self._kept = KeptAudio(0, lambda: redacted)

    async def of(self, unit: Unit) -> Samples | None:
        """See KeptAudio.of(). Units are asked for in about the order in which they were said."""
        while self._kept.end < unit.end + AROUND and (samples := await anext(self._audio, None)) is not None:
            self._kept.add(samples, needed_from=max(0, self._kept.end - LONGEST))
        return await self._kept.of(unit)
