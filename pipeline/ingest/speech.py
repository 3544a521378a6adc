"""A recording's samples -> decode jobs, in one straight line: framer, voice detector, packer. For a plain thread."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from pipeline.audio import Samples
from pipeline.ingest.framer import Framer, Windows
from pipeline.ingest.packing import Packed, Packer, PackingOptions, even_jobs


class SpeechProbability(Protocol):
    """What finds speech: called with the next windows of one recording, in order."""

    def __call__(self, windows: Windows) -> list[float]:
        """A probability for each window."""
        ...


def speech_jobs(
    audio: Iterable[Samples], vad: SpeechProbability | None, options: PackingOptions | None = None
) -> Iterator[Packed]:
    """The decode jobs of *audio* in order, and how far it is done between them; at last Passed with its whole length.

    Without *vad* everything counts as speech and jobs are of equal length. Errors of *audio* come through.
    """
    if vad is None:
        yield from even_jobs(audio)
        return
    framer, packer = Framer(), Packer(options or PackingOptions())
    for samples in audio:
        windows = framer.receive(samples)
        for window, speech in zip(windows, vad(windows), strict=True):
            yield from packer.receive(window, speech)
    windows, real = framer.end()
    for window, speech in zip(windows, vad(windows), strict=True):
        yield from packer.receive(window[:real], speech)
    yield from packer.end()
