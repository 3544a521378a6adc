"""Turns the samples of a recording into decode jobs with framer, voice detector and packer. It runs on a thread."""

from collections.abc import Awaitable, Iterator
from typing import Protocol

from pipeline.audio import Samples
from pipeline.ingest.framer import Framer, Windows
from pipeline.ingest.gain import InputLevel
from pipeline.ingest.packing import EvenPacker, Packed, Packer, PackingOptions


class SpeechProbability(Protocol):
    """Detects speech. It is called with the next windows of one recording or live stream, in order."""

    def __call__(self, windows: Windows) -> list[float]:
        """Return a probability for each window."""
        ...


class LiveSpeechProbability(Protocol):
    """Detects speech in a live stream, perhaps together with other streams. It is called like a SpeechProbability."""

    def __call__(self, windows: Windows) -> list[float] | Awaitable[list[float]]:
        """Return a probability for each window, at once or later. The next call comes after that."""
        ...


class SpeechPacker:
    """Packs the speech in one channel of a recording."""

    def __init__(
        self, vad: SpeechProbability, options: PackingOptions | None = None, level: InputLevel | None = None
    ) -> None:
        """*level* measures the loudness of the speech."""
        self._vad = vad
        self._framer, self._packer = Framer(), Packer(options or PackingOptions())
        self._level = level

    def pack(self, samples: Samples) -> Iterator[Packed]:
        """Yield the items that the next samples complete. Passed items between jobs show the progress."""
        windows = self._framer.windows_of(samples)
        probabilities = self._vad(windows)
        if self._level is not None:
            self._level.measure(windows, probabilities)
        for window, speech in zip(windows, probabilities, strict=True):
            yield from self._packer.pack(window, speech)

    def flush(self) -> Iterator[Packed]:
        """Yield the open job, if any, and the length of the recording."""
        windows, real = self._framer.flush()
        for window, speech in zip(windows, self._vad(windows), strict=True):
            yield from self._packer.pack(window[:real], speech)
        yield from self._packer.flush()


def packer_of(
    vad: SpeechProbability | None, options: PackingOptions | None = None, level: InputLevel | None = None
) -> SpeechPacker | EvenPacker:
    """Make the packer of one channel. Without *vad*, everything counts as speech and all jobs have equal length."""
    return EvenPacker() if vad is None else SpeechPacker(vad, options, level)
