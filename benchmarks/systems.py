"""What recognises files in benchmarks: this project, and both ways of faster-whisper."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import soundfile

from benchmarks.file_scores import RecognitionResult
from benchmarks.live_scores import Shown
from benchmarks.tracks import Track
from pipeline.audio import RATE

AT_ONCE = 4  # files

Hears: TypeAlias = Callable[[Sequence[Path]], list[RecognitionResult]]


def by_us(model: str) -> Hears:
    """Return what this project recognises with *model*, AT_ONCE files at a time."""
    from benchmarks.our_files import recognise  # noqa: PLC0415  a process that measures another system loads none of it

    return partial(recognise, model=model, at_once=AT_ONCE)


def by_transcribe(model: str) -> Hears:
    """Return what WhisperModel.transcribe() recognises with *model* and beam 5."""
    return lambda paths: _by_faster_whisper(paths, model, batched=False)


def by_batched(model: str) -> Hears:
    """Return what BatchedInferencePipeline recognises with *model*, beam 5 and calls of 8."""
    return lambda paths: _by_faster_whisper(paths, model, batched=True)


def _by_faster_whisper(paths: Sequence[Path], model: str, *, batched: bool) -> list[RecognitionResult]:
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415  load() has prepared it

    whisper = WhisperModel(model, device="cpu", compute_type="int8")
    transcribe = partial(BatchedInferencePipeline(whisper).transcribe, batch_size=8) if batched else whisper.transcribe
    answers = []
    for path in paths:
        segments, info = transcribe(str(path), beam_size=5, word_timestamps=True)
        words = [Shown(word.word, word.start, word.end) for segment in segments for word in segment.words or []]
        answers.append(RecognitionResult(words, info.language))
    return answers


def from_files(tracks: Sequence[Track], hears: Hears) -> list[RecognitionResult]:
    """Write each track to a file, and return what a system recognises in it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.flac" for number in range(len(tracks))]
        for track, path in zip(tracks, paths, strict=True):
            soundfile.write(path, track.samples, RATE)
        return hears(paths)
