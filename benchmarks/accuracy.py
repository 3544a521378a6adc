"""How well files are heard: word errors, word times, languages, and words where nobody speaks.

    .venv/bin/python -m benchmarks.accuracy                        # writes benchmarks/results/accuracy.json
    .venv/bin/python -m benchmarks.accuracy --clips DIR --clips DIR2   # other folders made by tests/speech/tools

Files go the way a user's upload goes: decode, voice detection, packing, scheduler, engine. The clips of espeak-ng are
heard by the tiny model, and by faster-whisper's own transcribe() too (beam 5); the model does not know flite's voices.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import write
from benchmarks.tracks import MODEL, SPEECH
from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.scoring import matches, spoken, word_errors

LONG_S = 15.0


@dataclass(frozen=True, slots=True)
class Clip:
    path: Path
    row: dict[str, Any]  # of manifest.json

    @property
    def group(self) -> str:
        kind = Path(self.row["file"]).parent.name
        if kind != "espeak":
            return kind
        if self.row["seconds"] > LONG_S:
            return "espeak long"
        return f"espeak {self.row['language']}" if self.row["noise_snr_db"] is None else "espeak noisy"


@dataclass(frozen=True, slots=True)
class Said:
    """What one system made of one clip: (word, start_s, end_s)."""

    words: Sequence[tuple[str, float, float]]
    language: str | None


Hears: TypeAlias = Callable[[Sequence[Clip]], list[Said]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, action="append", help="folder with manifest.json (default: tests/speech)")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    clips = [clip for folder in given.clips or [SPEECH] for clip in in_folder(folder)]
    known = [clip for clip in clips if clip.group != "flite"]
    result = {
        "tiny-whisper": scores(known, heard_by(EngineSettings(engine="whisper", model=MODEL))),
        "faster-whisper transcribe()": scores(known, by_transcribe),
    }
    for system, groups in result.items():
        for group, row in groups.items():
            print(f"{system:28} {group:14}", "  ".join(f"{name} {value}" for name, value in row.items()))
    if not given.no_write:
        print(write("accuracy", {"clips": len(clips), "systems": result}))


def in_folder(folder: Path) -> list[Clip]:
    """The clips that its manifest names; paths there are relative to the folder, or to the one above."""
    rows = json.loads((folder / "manifest.json").read_text())
    places = [folder / row["file"] if (folder / row["file"]).exists() else folder.parent / row["file"] for row in rows]
    return [Clip(place, row) for place, row in zip(places, rows, strict=True)]


def heard_by(settings: EngineSettings) -> Hears:
    """What this project hears with the engine of *settings*, four files at a time."""

    def hear(clips: Sequence[Clip]) -> list[Said]:
        with ExitStack() as stack:
            engine = stack.enter_context(closing(load(settings)))
            isolation = stack.enter_context(closing(Isolation()))
            threads = stack.enter_context(ThreadPoolExecutor(4))
            return asyncio.run(_batch(clips, engine, isolation, threads))

    return hear


async def _batch(clips: Sequence[Clip], engine: Any, isolation: Isolation, threads: ThreadPoolExecutor) -> list[Said]:
    room = asyncio.Semaphore(4)
    with closing(Scheduler(engine)) as scheduler:
        batch = Batch(engine=engine, recognition=scheduler, voice=VoiceDetector(), isolation=isolation, threads=threads)

        async def one(clip: Clip) -> Said:
            async with room:
                chunks = [chunk async for chunk in batch.transcribe(clip.path, BatchOptions(tenant=str(clip.path)))]
            words = [word for chunk in chunks for segment in chunk.segments for word in segment.words]
            return Said([(word.text, word.start / RATE, word.end / RATE) for word in words], chunks[-1].language)

        return list(await asyncio.gather(*map(one, clips)))


def by_transcribe(clips: Sequence[Clip]) -> list[Said]:
    from faster_whisper import WhisperModel  # noqa: PLC0415  (load() has prepared the process for it by now)

    model = WhisperModel(MODEL, device="cpu", compute_type="int8")
    answers = []
    for clip in clips:
        segments, info = model.transcribe(str(clip.path), beam_size=5, word_timestamps=True)
        words = [
            (word.word, float(word.start), float(word.end)) for segment in segments for word in segment.words or []
        ]
        answers.append(Said(words, info.language))
    return answers


def scores(clips: Sequence[Clip], hears: Hears) -> dict[str, dict[str, Any]]:
    """One row a group, and one for all spoken clips under 15 s."""
    answers = list(zip(clips, hears(clips), strict=True))
    groups = dict.fromkeys(clip.group for clip in clips)
    rows = {group: _row([pair for pair in answers if pair[0].group == group]) for group in groups}
    short = [pair for pair in answers if pair[0].row["seconds"] <= LONG_S and pair[0].row["text"]]
    return {**rows, "all under 15 s": _row(short)}


def _row(answers: Sequence[tuple[Clip, Said]]) -> dict[str, Any]:
    errors = words = wrong = 0
    starts: list[float] = []
    ends: list[float] = []
    for clip, said in answers:
        heard = [(part, start, end) for word, start, end in said.words for part in spoken(word)]
        truth = spoken(clip.row["text"])
        errors += word_errors(truth, [word for word, _, _ in heard])
        words += len(truth)
        wrong += clip.row["language"] is not None and said.language != clip.row["language"]
        for start, end in _time_errors(clip.row["words"] or [], heard):
            starts.append(start)
            ends.append(end)
    if not words:
        return {"clips": len(answers), "words out of nothing": errors}
    row: dict[str, Any] = {
        "clips": len(answers),
        "words": words,
        "wer": round(errors / words, 4),
        "wrong languages": wrong,
    }
    if starts:
        for name, values in (("start", starts), ("end", ends)):
            row |= {f"{name} p{share} ms": round(1000 * float(np.percentile(values, share))) for share in (50, 95)}
    return row


def _time_errors(
    truth: Sequence[tuple[str, float, float]], heard: Sequence[tuple[str, float, float]]
) -> list[tuple[float, float]]:
    """Of each matched word, how far its start and end are from the truth, in seconds."""
    said = [(part, start, end) for word, start, end in truth for part in spoken(word)]
    return [
        (abs(heard[right][1] - said[left][1]), abs(heard[right][2] - said[left][2]))
        for left, right in matches([word for word, _, _ in said], [word for word, _, _ in heard])
    ]


if __name__ == "__main__":
    main()
