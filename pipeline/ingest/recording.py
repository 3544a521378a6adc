"""Records the audio of a live session as FLAC. Only this module uses soundfile."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

import soundfile

from pipeline.audio import RATE, Samples

MEDIA_TYPE = "audio/flac"
EXTENSION = "flac"
BLOCK = 1 << 16  # samples that are read at a time


class Recording:
    """A FLAC file of 16 bits at RATE, without a name. It is deleted when it is closed.

    Every method blocks, and raises OSError if the file cannot be written. The recording is unusable after that.
    """

    def __init__(self, folder: Path | None = None, *, channels: int = 1, start: int = 0) -> None:
        """Create the file in *folder*, or in the system's folder for temporary files.

        It has 1 to 8 *channels*. *start* is the position of its first sample.
        """
        self._folder = folder
        self._channels = channels
        self._start = start
        self._create()

    def _create(self) -> None:
        folder, channels = self._folder, self._channels
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  close() does
        try:
            self._flac = soundfile.SoundFile(
                self._file.fileno(), "w", RATE, channels=channels, format="FLAC", subtype="PCM_16", closefd=False
            )
        except soundfile.SoundFileError as error:
            self._file.close()
            raise OSError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, samples: Samples) -> None:
        """Append samples, clipped to -1..1. Those of several channels have the shape (n, channels)."""
        try:
            self._flac.write(samples)
        except soundfile.SoundFileError as error:
            raise OSError(str(error)) from error

    def silence(self, spans: Sequence[tuple[int, int]]) -> None:
        """Write silence over *spans*, starts and ends as positions, on every channel. What was there is gone.

        The recording takes no more samples after this.
        """
        old = self.finish()
        self._create()
        try:
            with old, soundfile.SoundFile(old.fileno(), closefd=False) as file:
                at = self._start
                while len(samples := file.read(BLOCK, dtype="float32")):
                    for start, end in spans:
                        samples[max(0, start - at) : max(0, end - at)] = 0.0
                    self.write(samples)
                    at += len(samples)
        except soundfile.SoundFileError as error:
            raise OSError(str(error)) from error

    def finish(self) -> BinaryIO:
        """Return the whole file, to be read before close(). It is empty if no sample was written."""
        try:
            self._flac.close()
        except soundfile.SoundFileError as error:
            raise OSError(str(error)) from error
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Delete the file. Calling it again does nothing."""
        if not self._file.closed:
            if not self._flac.closed:
                self._flac.close()
            self._file.close()
