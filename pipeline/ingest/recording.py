"""Keep what was heard: samples as they come, a FLAC file at the end. soundfile's only home."""

import tempfile
from pathlib import Path
from typing import BinaryIO, Self

import soundfile

from pipeline.audio import RATE, Samples

MEDIA_TYPE = "audio/flac"
EXTENSION = "flac"


class Recording:
    """Mono FLAC of 16 bits at RATE, in a file without a name that is gone when this is closed.

    Every method blocks, and raises OSError where the file cannot be written; the recording is of no use then.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """In *folder*, or where the system keeps temporary files."""
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  close() does
        try:
            self._flac = soundfile.SoundFile(
                self._file.fileno(), "w", RATE, channels=1, format="FLAC", subtype="PCM_16", closefd=False
            )
        except soundfile.SoundFileError as error:
            self._file.close()
            raise OSError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, samples: Samples) -> None:
        """What lies outside -1..1 is cut off."""
        try:
            self._flac.write(samples)
        except soundfile.SoundFileError as error:
            raise OSError(str(error)) from error

    def finish(self) -> BinaryIO:
        """The whole file, to be read from its start before close(); empty where no sample was written."""
        try:
            self._flac.close()
        except soundfile.SoundFileError as error:
            raise OSError(str(error)) from error
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Nothing is left. Calling it again does nothing."""
        if not self._file.closed:
            if not self._flac.closed:
                self._flac.close()
            self._file.close()
