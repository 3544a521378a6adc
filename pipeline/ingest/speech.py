"""Turns the samples of a recording into decode jobs with framer, voice detector and packer. It runs on a thread."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from pipeline.audio import Samples
from pipeline.ingest.framer import Framer, Windows
from pipeline.ingest.gain import InputLevel
from pipeline.ingest.packing import Packed, Packer, PackingOptions, even_jobs


class SpeechProbability(Protocol):
    """Detects speech. It is called with the next windows of one recording or live stream, in order."""

    def __call__(self, windows: Windows) -> list[float]:
        """Return a probability for each window."""
        ...


def speech_jobs(
    audio: Iterable[Samples],
    vad: SpeechProbability | None,
    options: PackingOptions | None = None,
    level: InputLevel | None = None,
) -> Iterator[Packed]:
    """Yield the decode jobs of *audio* in order. Passed items between them show the progress; the last has the length.

    Without *vad*, everything counts as speech and all jobs have equal length. *level* measures the loudness of the
    speech. Errors of *audio* are not caught.
    """
    if vad is None:
        yield from even_jobs(audio)
        return
    framer, packer = Framer(), Packer(options or PackingOptions())
    for samples in audio:
        windows = framer.receive(samples)
        probabilities = vad(windows)
        if level is not None:
            level.receive(windows, probabilities)
        for window, speech in zip(windows, probabilities, strict=True):
            yield from packer.receive(window, speech)
    windows, real = framer.end()
    for window, speech in zip(windows, vad(windows), strict=True):
        yield from packer.receive(window[:real], speech)
    yield from packer.end()
