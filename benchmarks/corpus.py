"""Word errors and speed on a folder of speech of your own, compared with other programs that use the same weights.

    .venv/bin/python -m benchmarks.corpus LibriSpeech/test-clean              # prints a line for each system
    .venv/bin/python -m benchmarks.corpus recordings --model small --language de --live
    .venv/bin/python -m benchmarks.corpus recordings --write                  # writes results/corpus.json

The folder has LibriSpeech's layout, in which SPEAKER-CHAPTER.trans.txt is in the folder of its .flac files, or audio
files each with a .txt of the same name, or both; folders in it are searched too. Words are compared as OpenAI's
normaliser for Whisper writes them and jiwer counts them: in lower case, without punctuation, and in English with
numbers as figures and contractions in full. Intervals are of 95 % over recordings. At pauses of half a second and more,
and at the ends of recordings, it is seen how far words begin and end from their sound: the means, and the worst ones.

A system's speed counts its start, which is a second or two for a small model: short folders show it lower than it is.
Live words are those of sessions at the speed of speech, one after the other, on a clock that counts the model's CPU
time alone. Their latency is the time from a word's end, as the whole recording is recognised, to its final event.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.choices import BUNDLED, bundled_model
from benchmarks.intervals import interval
from benchmarks.latency import Bench, final_words, place_words
from benchmarks.live_scores import Shown
from benchmarks.measure import write
from benchmarks.scoring import spoken_words, word_errors
from benchmarks.systems import by_batched, by_transcribe, by_us
from benchmarks.tracks import Track
from benchmarks.word_times import Span, Timed, offsets, sounds_of, summary
from pipeline.audio import RATE, Samples
from pipeline.errors import PipelineError
from pipeline.events import TimedEvent
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.vad import Vad
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings
from pipeline.words import Word, join_words

OURS, LIVE = "ours", "ours live"
CHAPTER = ".trans.txt"
AUDIO = (".flac", ".wav", ".mp3", ".m4a", ".mp4", ".aac", ".ogg", ".oga", ".opus", ".webm", ".mka", ".mkv", ".wma")
LAYOUTS = "LibriSpeech's SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt, or audio files with a .txt of the same name"


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording, and what is said in it."""

    path: Path
    text: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each system. Raises SystemExit with one sentence for a mistake that the user can correct."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=f"of speech: {LAYOUTS}")
    parser.add_argument("--model", help="a Whisper model's folder or name (default: the bundled tiny.en)")
    parser.add_argument("--language", help="of the speech, for comparing words (default: en for models named .en)")
    parser.add_argument("--live", action="store_true", help="also our live words; takes longer")
    parser.add_argument("--write", action="store_true", help="write results/corpus.json of this checkout")
    given = parser.parse_args(arguments)
    clips = list(recordings_in(given.folder))
    model = given.model or bundled_model()
    language = given.language or ("en" if Path(model).name.endswith(".en") or given.model is None else None)
    seconds = sum(map(length_s, clips))
    try:
        systems = dict(rows(clips, seconds, model, language=language, live=given.live))
    except PipelineError as error:
        raise SystemExit(f"a recording of {given.folder} cannot be heard: {error}") from error
    if given.write:
        name = Path(model).name if given.model else BUNDLED
        about = {"model": name, "language": language, "recordings": len(clips), "seconds": round(seconds, 1)}
        print(write("corpus", {**about, "systems": systems}))


def recordings_in(folder: Path) -> Iterator[Clip]:
    """Yield the recordings of a folder, by name. Raises SystemExit if it has none, or one that lacks its audio."""
    clips = [
        clip
        for path in sorted(folder.rglob("*.txt"))
        for clip in (chapter if path.name.endswith(CHAPTER) else single)(path)
    ]
    if not any(spoken_words(clip.text) for clip in clips):
        raise SystemExit(f"{folder} has no recordings with words: it must hold {LAYOUTS}")
    yield from clips


def chapter(path: Path) -> Iterator[Clip]:
    """Yield the recordings that a chapter's text of LibriSpeech lists, a line each: its name and its words."""
    for line in _read(path).splitlines():
        name, _, text = line.strip().partition(" ")
        audio = path.parent / f"{name}.flac"
        if name and not audio.is_file():
            raise SystemExit(f"{path} lists {name}, but {audio.name} is not beside it")
        if name:
            yield Clip(audio, text)


def single(path: Path) -> Iterator[Clip]:
    """Yield the recordings that have the name of a text file. Other texts, such as a README, have none."""
    for audio in (path.with_suffix(suffix) for suffix in AUDIO):
        if audio.is_file():
            yield Clip(audio, _read(path))


def rows(
    clips: Sequence[Clip], seconds: float, model: str, *, language: str | None, live: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Print and yield the figures of each system. Raises PipelineError for a recording that cannot be decoded."""
    paths = [clip.path for clip in clips]
    systems = {OURS: by_us, "transcribe()": by_transcribe, "batched": by_batched}  # ours loads what theirs need
    voice = Vad()
    sounds = [sounds_of(decode_file(path), voice) for path in paths]
    for name, hears in {name: by(model) for name, by in systems.items()}.items():
        began_s = time.monotonic()
        heard = hears(paths)
        speed = round(seconds / (time.monotonic() - began_s), 1)
        figures = errors(clips, (result.text for result in heard), language) | {"audio_s_per_s": speed}
        figures |= times(sounds, [result.words for result in heard])
        print(f"{name} {line(figures)}  {speed} s of audio a second", flush=True)
        yield name, figures
    if live:
        words, commit_s = by_us_live(clips, model)
        figures = errors(clips, map(join_words, words), language) | {"commit_s": commit_s}
        shown = [[Shown(word.text, word.start / RATE, word.end / RATE) for word in own] for own in words]
        figures |= times(sounds, shown)
        print(f"{LIVE} {line(figures)}", *(f"{share} {commit_s[share]:.2f} s" for share in ("p50", "p95") if commit_s))
        yield LIVE, figures


def errors(clips: Sequence[Clip], texts: Iterable[str], language: str | None) -> dict[str, Any]:
    """Return how many words were said, how many of them came out wrong, the share of these, and its interval."""
    said = [spoken_words(clip.text, language) for clip in clips]
    wrong = [word_errors(these, spoken_words(text, language)) for these, text in zip(said, texts, strict=True)]
    counts = list(map(len, said))
    share = round(sum(wrong) / sum(counts), 4)
    return {"words": sum(counts), "errors": sum(wrong), "wer": share, "interval": interval(wrong, counts)}


def times(sounds: Sequence[Sequence[Span]], words: Sequence[Sequence[Timed]]) -> dict[str, Any]:
    """Return how far words begin and end from their sound at pauses, in seconds, and at the ends of recordings."""
    found = [offsets(*pair) for pair in zip(sounds, words, strict=True)]
    starts, ends = (summary([value for both in found for value in both[at]]) for at in (0, 1))
    return {"start_s": starts, "end_s": ends}


def line(figures: dict[str, Any]) -> str:
    extent = figures["interval"] and " ({:.1f} to {:.1f})".format(*(100 * end for end in figures["interval"]))
    starts, ends = figures["start_s"], figures["end_s"]
    off = f" off at pauses {starts['mean']:.2f} {ends['mean']:.2f} s worst {starts['worst']:+.2f} {ends['worst']:+.2f}"
    return f"words {figures['words']} wer {100 * figures['wer']:.1f} %{extent or ''}{off}"


def by_us_live(clips: Sequence[Clip], model: str) -> tuple[list[tuple[Word, ...]], dict[str, float]]:
    """Return our live words of each recording, and percentiles of how late its right words are final, in seconds."""
    engine = load(EngineSettings(engine="whisper", model=model, device="cpu", threads=1))
    bench = Bench(engine, Vad())
    sessions: list[list[TimedEvent]] = []
    scores = bench.one_by_one((_track(clip, bench) for clip in clips), sessions)
    engine.close()
    return [final_words(heard) for heard in sessions], scores["commit_s"]


def _track(clip: Clip, bench: Bench) -> Track:
    samples = decode_file(clip.path)
    return Track(clip.path.name, "", samples, place_words(clip.text, bench.offline(samples)))


def length_s(clip: Clip) -> float:
    """Return the length of a recording in seconds. Raises SystemExit if it cannot be decoded."""
    try:
        return float(soundfile.info(clip.path).duration)
    except soundfile.LibsndfileError:  # a container that it does not know, such as MP4
        return len(decode_file(clip.path)) / RATE


def decode_file(path: Path) -> Samples:
    """Return a recording at 16 kHz, mono. Raises SystemExit if it cannot be decoded."""
    try:
        with path.open("rb") as file, recording(file, DecodeLimits()) as chunks:
            return np.concatenate([np.zeros(0, np.float32), *chunks])
    except PipelineError as error:
        raise SystemExit(f"{path} cannot be heard: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path} must be text in UTF-8: {error}") from error


if __name__ == "__main__":
    main()
