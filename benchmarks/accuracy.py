"""Word errors and word times of files in many conditions, compared with faster-whisper's transcribe().

    .venv/bin/python -m benchmarks.accuracy                   # people in every condition; writes results/accuracy.json
    .venv/bin/python -m benchmarks.accuracy --conditions clean telephone --no-write
    .venv/bin/python -m benchmarks.accuracy --clips DIR       # other people: a folder with manifest.json

Files take the path of an upload: decoding, voice detection, packing, scheduler, engine. transcribe() gets the same
files with beam 5. benchmarks/conditions.py makes the conditions. Intervals are those of the clips: the conditions have
the same few clips, so all of them together say no more about other voices than one does.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import soundfile

from benchmarks.choices import add_choices, choices_of
from benchmarks.conditions import CONDITIONS
from benchmarks.file_scores import RecognitionResult, row
from benchmarks.intervals import difference, interval
from benchmarks.live_scores import Shown
from benchmarks.measure import write
from benchmarks.tracks import Track, wordless
from pipeline.audio import RATE

OURS, THEIRS = "scribewire", "faster-whisper transcribe()"
AT_ONCE = 4  # files
NOTHING = "nobody speaks"
TOGETHER = "all conditions but joined"

Hears: TypeAlias = Callable[[Sequence[Path]], list[RecognitionResult]]
Rows: TypeAlias = Mapping[str, Mapping[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random in a condition")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    choices = choices_of(given)
    spoken = choices.clips()
    groups = {name: CONDITIONS[name](spoken, given.seed) for name in given.conditions} | {NOTHING: wordless()}
    ours, theirs = (scores(groups, by(choices.model)) for by in (by_us, by_transcribe))
    result = {"model": choices.name, "seed": given.seed, "compared": compared(ours, theirs), OURS: ours, THEIRS: theirs}
    for group, figures in result["compared"].items():
        print(f"{group:26}", "  ".join(f"{name} {value}" for name, value in figures.items()))
    print(f"{NOTHING:26} {ours[NOTHING]['words out of nothing']} words, {theirs[NOTHING]['words out of nothing']}")
    if not given.no_write:
        print(write("accuracy", result))


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


def scores(groups: Mapping[str, Sequence[Track]], hears: Hears) -> dict[str, dict[str, Any]]:
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


def compared(ours: Rows, theirs: Rows) -> dict[str, dict[str, Any]]:
    """Return each group's word errors by both systems, the difference, and intervals over clips; and all together."""
    each = {group: (ours[group]["each"], theirs[group]["each"]) for group in ours if "each" in ours[group]}
    rows = {group: compare(*pair) for group, pair in each.items()}
    of_clips = [pair for group, pair in each.items() if group != "joined"]
    if len(of_clips) > 1:
        rows[TOGETHER] = compare(*(by_clip([pair[side] for pair in of_clips]) for side in (0, 1)))
    return rows


def by_clip(groups: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, tuple[int, int]]:
    """Return the errors and words of each clip in all *groups*. A piece has the name of its clip before a space."""
    sums: dict[str, tuple[int, int]] = {}
    for group in groups:
        for name, (wrong, said) in group.items():
            before = sums.get(clip := name.partition(" ")[0], (0, 0))
            sums[clip] = before[0] + wrong, before[1] + said
    return sums


def compare(ours: Mapping[str, Sequence[int]], theirs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return the figures of one row of both systems. Each maps clips to errors and words."""
    wrong, wrong_theirs = [one[0] for one in ours.values()], [theirs[name][0] for name in ours]
    said = [one[1] for one in ours.values()]
    return {
        "clips": len(said),
        "words": sum(said),
        OURS: round(sum(wrong) / sum(said), 4),
        "interval": interval(wrong, said),
        THEIRS: round(sum(wrong_theirs) / sum(said), 4),
        "difference": round((sum(wrong) - sum(wrong_theirs)) / sum(said), 4),
        "interval of the difference": difference(wrong, wrong_theirs, said),
    }


if __name__ == "__main__":
    main()
