"""Accuracy on files: word errors, word times and invented words, compared with faster-whisper's transcribe().

    .venv/bin/python -m benchmarks.accuracy                   # people in every condition; writes results/accuracy.json
    .venv/bin/python -m benchmarks.accuracy --conditions clean telephone --no-write
    .venv/bin/python -m benchmarks.accuracy --clips DIR       # other people: a folder with manifest.json
    .venv/bin/python -m benchmarks.accuracy --model tests/speech/tiny-whisper --speech made

Files take the path of an upload: decoding, voice detection, packing, scheduler, engine. transcribe() gets the same
files with beam 5. Recordings of people are varied by benchmarks/conditions.py, in which "short alone" means utterances
of 1 to 4 s. Made clips, from synthetic voices, are grouped by kind.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import soundfile

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.conditions import CONDITIONS, FIXED
from benchmarks.file_scores import RecognitionResult, row
from benchmarks.live_scores import Shown
from benchmarks.measure import write
from benchmarks.tracks import Track, clips, rows_of, wordless
from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler

OURS, THEIRS = "scribewire", "faster-whisper transcribe()"
LONG_S = 15.0
NOTHING = "nobody speaks"

Groups: TypeAlias = Mapping[str, Sequence[Track]]


Hears: TypeAlias = Callable[[Sequence[Path]], list[RecognitionResult]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of what is random; more give more words")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    choices = choices_of(given)
    groups = dict(people(choices, given.conditions, given.seeds) if choices.speech == "people" else made_clips(choices))
    systems = {
        OURS: scores(groups, by_us(choices.model)),
        THEIRS: scores(groups, by_transcribe(choices.model)),
    }
    result = {**choices.about(), "seeds": given.seeds, "word errors": beside(systems), "systems": systems}
    for system, rows in {"word errors": result["word errors"], **systems}.items():
        for group, figures in rows.items():
            print(f"{system:28} {group:20}", "  ".join(f"{name} {value}" for name, value in figures.items()))
    if not given.no_write:
        print(write(choices.result("accuracy"), result))


def people(choices: Choices, names: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, Sequence[Track]]]:
    """Return recordings of people in each condition, and sounds without words."""
    spoken = choices.clips()
    for name in names:
        several = seeds[:1] if name in FIXED else seeds
        yield name, [track for seed in several for track in CONDITIONS[name](spoken, seed)]
    yield NOTHING, wordless()


def made_clips(choices: Choices) -> Iterator[tuple[str, Sequence[Track]]]:
    """Return the made clips by language, noise and length, and sounds without words."""
    rows = {row["file"]: row for folder in choices.folders for row, _ in rows_of(folder)}
    groups: dict[str, list[Track]] = {}
    known = (track for folder in choices.folders for track in clips(folder))
    for track in known:
        if track.language != "en" and choices.name.endswith(".en"):
            continue
        kind = f"made {track.language}" if rows[track.name]["noise_snr_db"] is None else "made, noisy"
        groups.setdefault("made, long" if track.seconds > LONG_S else kind, []).append(track)
    yield from groups.items()
    yield NOTHING, wordless()


def by_us(model: str) -> Hears:
    """Return what this project recognises with *model*, four files at a time."""

    def hear(paths: Sequence[Path]) -> list[RecognitionResult]:
        with ExitStack() as stack:
            engine = stack.enter_context(closing(load(EngineSettings(engine="whisper", model=model))))
            isolation = stack.enter_context(closing(Isolation()))
            threads = stack.enter_context(ThreadPoolExecutor(4))
            return asyncio.run(_batch(paths, engine, isolation, threads))

    return hear


async def _batch(
    paths: Sequence[Path], engine: Any, isolation: Isolation, threads: ThreadPoolExecutor
) -> list[RecognitionResult]:
    room = asyncio.Semaphore(4)
    with closing(Scheduler(engine)) as scheduler:
        batch = Batch(engine=engine, recogniser=scheduler, voice=VoiceDetector(), isolation=isolation, threads=threads)

        async def one(path: Path) -> RecognitionResult:
            async with room:
                chunks = [chunk async for chunk in batch.transcribe(path, BatchOptions(tenant=str(path)))]
            words = [word for chunk in chunks for segment in chunk.segments for word in segment.words]
            return RecognitionResult(
                [Shown(word.text, word.start / RATE, word.end / RATE) for word in words], chunks[-1].language
            )

        return list(await asyncio.gather(*map(one, paths)))


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


def scores(groups: Groups, hears: Hears) -> dict[str, dict[str, Any]]:
    """Return one row for each group."""
    answers = iter(from_files([track for group in groups.values() for track in group], hears))
    return {name: row([(track, next(answers)) for track in group]) for name, group in groups.items()}


def from_files(tracks: Sequence[Track], hears: Hears) -> list[RecognitionResult]:
    """Write each track to a file, and return what a system recognises in it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.flac" for number in range(len(tracks))]
        for track, path in zip(tracks, paths, strict=True):
            soundfile.write(path, track.samples, RATE)
        return hears(paths)


def beside(systems: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return for each group the word error rates, ours and transcribe()'s, and their difference in points."""
    return {
        group: {
            "words": ours["words"],
            OURS: ours["wer"],
            THEIRS: systems[THEIRS][group]["wer"],
            "points more": round(100 * (ours["wer"] - systems[THEIRS][group]["wer"]), 2),
        }
        for group, ours in systems[OURS].items()
        if "wer" in ours
    }


if __name__ == "__main__":
    main()
