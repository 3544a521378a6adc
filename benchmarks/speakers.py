"""Measures how well voices are told apart: in files and live, in made conversations and in excerpts of meetings.

    .venv/bin/python benchmarks/speakers.py [--meetings FOLDER] [--seconds 60] [--live]

Conversations are made of the clips of tests/speech, whose recordings have one voice each: turns with gaps of -0.3 to
1.5 s. Their labels are the clips' own beginnings and ends, so that pauses inside a clip count as missed speech. A
folder of meetings has a manifest.json like that of tests/speech/meetings. The score is simpleder's, without a collar
and with overlap.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
from simpleder import DER

from pipeline.audio import RATE, Samples
from pipeline.speakers.diarizer import Diarizer, speaker_turns
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn

SPEECH = Path(__file__).parents[1] / "tests" / "speech"
VOICES = {
    "austen": "human/austen_*.flac",
    "LJ": "human/LJ*.flac",
    "kennedy": "human/jfk.flac",
    "rms": "flite/rms_*.flac",
    "slt": "flite/slt_*.flac",
    "awb": "flite/awb_*.flac",
    "kal16": "flite/kal16_*.flac",
}
Labels = list[tuple[str, float, float]]
Recording = tuple[str, Samples, Labels]


def conversations(seconds: float) -> Iterator[Recording]:
    """Yield conversations of 1 to 4 voices, always the same."""
    for number in range(12):
        random = np.random.default_rng(number)
        count = 1 + number % 4
        names = [str(name) for name in random.choice(list(VOICES), count, replace=False)]
        samples, labels = _converse(names, seconds, random)
        yield f"{count} voices, {number}", samples, labels


def make_conversation(names: Sequence[str], seconds: float, *, seed: int) -> tuple[Samples, Labels]:
    """Return a conversation of these VOICES, the last turn of which begins before *seconds*, and who speaks when."""
    return _converse(names, seconds, np.random.default_rng(seed))


def _converse(names: Sequence[str], seconds: float, random: np.random.Generator) -> tuple[Samples, Labels]:
    clips = {name: [_clip(path) for path in sorted(SPEECH.glob(VOICES[name]))] for name in names}
    samples, labels = np.zeros(round((seconds + 12) * RATE), np.float32), []
    at, last = RATE // 2, ""
    while at < seconds * RATE:
        last = str(random.choice([name for name in names if name != last] or names))
        clip = clips[last][random.integers(len(clips[last]))]
        samples[at : at + len(clip)] += clip[: len(samples) - at]
        labels.append((last, at / RATE, (at + len(clip)) / RATE))
        at += len(clip) + round(random.uniform(-0.3, 1.5) * RATE)
    end = round(max(end for *_, end in labels) * RATE)
    return samples[:end], labels


def meetings(folder: Path) -> Iterator[Recording]:
    told = json.loads((folder / "manifest.json").read_text())
    for row in told if isinstance(told, list) else told["clips"]:
        samples = soundfile.read(folder / row["file"], dtype="float32")[0]
        yield row["file"], samples, [(name, start, end) for start, end, name in row["turns"]]


def _clip(path: Path) -> Samples:
    samples = soundfile.read(path, dtype="float32")[0]
    return np.asarray(samples * 0.06 / np.sqrt((samples**2).mean()), np.float32)


def as_file(models: SpeakerModels, samples: Samples) -> Sequence[SpeakerTurn]:
    diarizer = Diarizer(models)
    diarizer.receive(samples)
    diarizer.end()
    return speaker_turns({None: diarizer}, SpeakerOptions())


def as_stream(models: SpeakerModels, samples: Samples) -> Sequence[SpeakerTurn]:
    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    for start in range(0, len(samples), RATE // 5):
        speakers.listen({None: samples[start : start + RATE // 5]})
    return speakers.finish()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meetings", type=Path, default=SPEECH / "meetings")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--live", action="store_true", help="as live streams, at their end")
    given = parser.parse_args()
    models = SpeakerModels()
    hear = as_stream if given.live else as_file
    for kind, recordings in (("conversations", conversations(given.seconds)), ("meetings", meetings(given.meetings))):
        rows = []
        for name, samples, labels in recordings:
            began = time.process_time()
            turns = hear(models, samples)
            cpu = (time.process_time() - began) * RATE / len(samples)
            told = [(turn.speaker, turn.start / RATE, turn.end / RATE) for turn in turns]
            score = DER(labels, told, detailed=True)
            found, true = len({who for who, *_ in told}), len({who for who, *_ in labels})
            rows.append((score, found == true, cpu))
            parts = {part: f"{score[part] / score['ref_length']:.1%}" for part in ("miss", "false_alarm", "confusion")}
            print(f"{name:20} DER {score['der']:6.1%} {parts}  {found} of {true} voices  {cpu:.3f} s of CPU a second")
        whole = sum(score["ref_length"] for score, *_ in rows)
        error = sum(score["miss"] + score["false_alarm"] + score["confusion"] for score, *_ in rows) / whole
        mean = float(np.mean([score["der"] for score, *_ in rows]))
        right = sum(right for _, right, _ in rows)
        print(f"{kind}: DER {error:.1%} of all speech, {mean:.1%} on average, {right} of {len(rows)} numbers right\n")


if __name__ == "__main__":
    main()
