"""One clip in many containers and codecs gives the same words through the whole batch pipeline."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler
from tests.pipeline.sounds import SPEECH

CLIP = SPEECH / "espeak" / "en_07.flac"
"""Three sentences that the model is sure of: where it wavers between two words, any codec's loss may tip it."""

ENCODINGS = {
    "wav": [], "mp3": [], "m4a": [], "flac": [], "ogg": ["-c:a", "libvorbis"], "opus": [], "webm": [], "aac": [],
    "aiff": [], "wma": [], "mkv": ["-c:a", "ac3"], "mp4": [], "3gp": ["-c:a", "aac"], "caf": [], "au": [], "w64": [],
    "mka": ["-c:a", "libopus"], "mov": [], "ts": ["-c:a", "mp2"], "avi": ["-c:a", "mp3"], "tta": [], "wv": [],
}  # fmt: skip
"""Extension -> what FFmpeg needs to be told beyond it."""


class Ears:
    """The batch pipeline with the small real model."""

    def __init__(self) -> None:
        self.engine = load(EngineSettings(engine="whisper", model=str(SPEECH / "tiny-whisper")))
        self.isolation = Isolation()
        self.voice = VoiceDetector()
        self.threads = ThreadPoolExecutor(2)
        self.expected = self.words(CLIP)

    def words(self, path: Path) -> list[str]:
        return asyncio.run(self._words(path))

    async def _words(self, path: Path) -> list[str]:
        scheduler = Scheduler(self.engine)
        batch = Batch(
            engine=self.engine,
            recogniser=scheduler,
            voice=self.voice,
            isolation=self.isolation,
            threads=self.threads,
        )
        chunks = [chunk async for chunk in batch.transcribe(path, BatchOptions(tenant="test", language="en"))]
        scheduler.close()
        spoken = (word.text for chunk in chunks for segment in chunk.segments for word in segment.words)
        return [re.sub(r"\W", "", text).lower() for text in spoken]

    def close(self) -> None:
        self.isolation.close()
        self.engine.close()
        self.threads.shutdown()


@pytest.fixture(scope="module")
def ears() -> Iterator[Ears]:
    ears = Ears()
    yield ears
    ears.close()


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg makes the files")
@pytest.mark.parametrize("extension", ENCODINGS)
def test_the_words_do_not_depend_on_the_container(extension: str, ears: Ears, tmp_path: Path) -> None:
    path = tmp_path / f"clip.{extension}"
    command = ["ffmpeg", "-v", "error", "-i", str(CLIP), *ENCODINGS[extension], "-b:a", "96k", str(path)]
    subprocess.run(command, check=True)
    nameless = path.rename(tmp_path / "bytes")
    assert ears.words(nameless) == ears.expected
