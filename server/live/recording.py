"""Records a live session's audio as FLAC, and stores the file as an output of the job."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.audio import Samples, position
from pipeline.ingest.recording import EXTENSION, Recording
from server.logs import log
from server.model.errors import DiskFailed, DiskFull
from server.model.jobs import Artifact
from server.model.orders import AUDIO
from server.storage.ports import BlobStore

PIECE_BYTES = 256 * 1024
RECORDING_FAILED = {"code": "recording_failed", "message": "the audio could not be kept"}

MARGIN = position(0.25)  # around redacted words, whose times are right to about 0.2 s


def recording_key(job_id: str, *, epoch: int) -> str:
    """The blob key of the recording. Each epoch of the job has its own."""
    return f"{job_id}/{epoch}.{EXTENSION}"


class AudioRecorder:
    """Records samples: add() collects them in memory, flush() writes them to a file in *folder* on a thread."""

    def __init__(self, folder: Path, *, channels: int = 1, start: int = 0) -> None:
        """*start* is the position of the first sample that is added."""
        self._folder = folder
        self._channels = channels
        self._start = start
        self._added: list[Samples] = []  # bounded by flush() every second and by the pace of the session
        self._recording: Recording | None = None
        self._writing = asyncio.Lock()
        self.torn = False  # a write failed, so there will be no recording

    def add(self, samples: Samples) -> None:
        if not self.torn:
            self._added.append(samples)

    async def flush(self) -> None:
        async with self._writing:
            await self._flush()

    async def store(self, key: str, blobs: BlobStore, *, redacted: Sequence[tuple[int, int]] = ()) -> Artifact | None:
        """Store the recording as a blob. Returns None if no audio came or the disk failed.

        The spans *redacted* (start and end as positions) are silenced, with MARGIN around them. Raises BlobsAway; call
        it again then.
        """
        async with self._writing:
            await self._flush()
            if self._recording is None:
                return None
            try:
                if redacted:
                    silenced = [(start - MARGIN, end + MARGIN) for start, end in redacted]
                    await asyncio.to_thread(self._recording.silence, silenced)
                return await self._store_file(self._recording, key, blobs)
            except (OSError, DiskFull, DiskFailed) as error:
                self._tear(error)
                return None

    def close(self) -> None:
        """Discard everything that was not stored."""
        self._added = []
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    async def _flush(self) -> None:
        if not self._added:
            return
        samples, self._added = np.concatenate(self._added), []
        try:
            if self._recording is None:
                self._recording = await asyncio.to_thread(
                    Recording, self._folder, channels=self._channels, start=self._start
                )
            await asyncio.to_thread(self._recording.write, samples)
        except OSError as error:
            self._tear(error)

    async def _store_file(self, recording: Recording, blob: str, blobs: BlobStore) -> Artifact:
        digest, size = hashlib.sha256(), 0
        file = await asyncio.to_thread(recording.finish)
        async with blobs.create(blob) as sink:
            while data := await asyncio.to_thread(file.read, PIECE_BYTES):
                digest.update(data)
                size += len(data)
                await sink.write(data)
        return Artifact(kind=AUDIO, blob=blob, sha256=digest.hexdigest(), bytes=size)

    def _tear(self, error: Exception) -> None:
        """Give up the recording, so that the session can continue without it."""
        log.error("recording failed", extra={"error": str(error)})
        self.torn = True
        self.close()
