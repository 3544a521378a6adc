"""Measures how well voices are told apart: in files and live, in conversations and in excerpts of meetings.

    .venv/bin/python -m benchmarks.speakers                               # writes results/speakers.json
    .venv/bin/python -m benchmarks.speakers --half development --no-write --systems files
    .venv/bin/python -m benchmarks.speakers --meetings FOLDER --people FOLDER

benchmarks/talks.py makes the recordings, in two halves. DER is simpleder's, without a collar and with overlap. Words
are those that Whisper tiny.en recognises, and the right speaker of a word is who speaks most of it. Live sessions learn
words a second after they were said, and are judged by the labels at the end.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment
from simpleder import DER

from benchmarks.choices import BUNDLED, bundled_model
from benchmarks.measure import write
from benchmarks.systems import by_us, from_files
from benchmarks.talks import DEVELOPMENT, HELD_APART, Talk, conversations, meetings, monologues
from benchmarks.tracks import SPEECH, Track
from pipeline.attribution import SpeakerTimes
from pipeline.audio import RATE, Samples
from pipeline.speakers.diarizer import Diarizer, speaker_turns
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn, Word

LAST = RATE  # how long after a word live sessions know it

Words: TypeAlias = Sequence[Word]
Labels: TypeAlias = list[str | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The labels that a system gives to the words of a recording."""

    turns: Sequence[SpeakerTurn]
    labels: Labels  # of the words, at the end
    most: int = 0  # labels that were in use at one time


System: TypeAlias = Callable[[Samples, Words], Answer]


def as_file(models: SpeakerModels, samples: Samples, words: Words) -> Answer:
    diarizer = Diarizer(models)
    diarizer.add_samples(samples)
    diarizer.end()
    turns = speaker_turns({None: diarizer}, SpeakerOptions())
    times = SpeakerTimes(turns)
    return Answer(turns, [times.speaker_of(word) for word in words])


def as_stream(models: SpeakerModels, samples: Samples, words: Words) -> Answer:
    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    known: Labels = []
    most = 0
    for start in range(0, len(samples) + 2 * LAST, RATE // 5):
        while len(known) < len(words) and words[len(known)].end + LAST <= start:
            known.append(speakers.label(words[len(known)], None))
        for run in speakers.listen({None: samples[start : start + RATE // 5]}):
            known[run.first : run.last + 1] = [run.speaker] * (run.last + 1 - run.first)
        most = max(most, len({*known} - {None}))
    turns, runs = speakers.finish()
    labels: Labels = [None] * len(words)
    for run in runs:
        labels[run.first : run.last + 1] = [run.speaker] * (run.last + 1 - run.first)
    return Answer(turns, labels, most)


SYSTEMS: Mapping[str, Callable[[SpeakerModels, Samples, Words], Answer]] = {
    "files": as_file,
    "live": as_stream,
}


@dataclass(slots=True)
class Score:
    """The sums over the recordings of one row."""

    recordings: int = 0
    numbers_right: int = 0
    speech_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("miss", "false_alarm", "confusion"), 0.0))
    words: int = 0
    words_right: int = 0
    two: int = 0  # of recordings of one voice, those that had two labels, if only for a while
    cpu_s: float = 0.0
    audio_s: float = 0.0

    def add(self, talk: Talk, words: Words, answer: Answer, cpu_s: float) -> None:
        told = [(turn.speaker, turn.start / RATE, turn.end / RATE) for turn in answer.turns]
        score = DER(talk.turns, told, detailed=True)
        for part in self.parts_s:
            self.parts_s[part] += score[part]
        self.speech_s += score["ref_length"]
        found = len({who for who, *_ in told})
        self.recordings += 1
        self.numbers_right += found == talk.voices
        self.two += max(found, answer.most) > 1
        true = true_speakers(talk, words)
        self.words += len(words)
        self.words_right += most_agreeing(zip(true, answer.labels, strict=True))
        self.cpu_s += cpu_s
        self.audio_s += len(talk.samples) / RATE

    def row(self) -> dict[str, Any]:
        missed, alarm, confused = (spent / self.speech_s for spent in self.parts_s.values())
        shown: dict[str, Any] = {
            "recordings": self.recordings,
            "DER": missed + alarm + confused,
            "missed": missed,
            "false alarm": alarm,
            "confused": confused,
            "numbers of voices right": self.numbers_right,
            "words": self.words,
            "words right": self.words_right / max(1, self.words),
            "CPU s a second": self.cpu_s / self.audio_s,
        }
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in shown.items()}


def true_speakers(talk: Talk, words: Words) -> Labels:
    turns = [SpeakerTurn(who, round(start * RATE), round(end * RATE)) for who, start, end in talk.turns]
    times = SpeakerTimes(sorted(turns, key=lambda turn: turn.start))
    return [times.speaker_of(word) for word in words]


def most_agreeing(pairs: Iterable[tuple[str | None, str | None]]) -> int:
    """Return how many pairs agree when labels are matched one to one to the true speakers as well as can be."""
    known = [pair for pair in pairs if None not in pair]
    if not known:
        return 0
    true, labels = (list(dict.fromkeys(side)) for side in zip(*known, strict=True))
    counts = np.zeros((len(true), len(labels)))
    for one, another in known:
        counts[true.index(one), labels.index(another)] += 1
    return int(counts[linear_sum_assignment(-counts)].sum())


def score_system(talks: Sequence[Talk], heard: Sequence[Words], hear: System) -> dict[str, Score]:
    """Return the score of each group, of all conversations together, and of all in which two speak at once."""
    scores: dict[str, Score] = {}
    for talk, words in zip(talks, heard, strict=True):
        began = time.process_time()
        answer = hear(talk.samples, words)
        cpu_s = time.process_time() - began
        for name in dict.fromkeys((talk.group, *(("conversations",) if talk.group != "meetings" else ()))):
            scores.setdefault(name, Score()).add(talk, words, answer, cpu_s)
    return scores


def recognise_all(talks: Sequence[Talk]) -> list[Words]:
    """Return the words that Whisper recognises in each conversation."""
    tracks = [Track(talk.group, "en", talk.samples, ()) for talk in talks]
    return [
        [Word(word.text, round(word.start * RATE), round(word.end * RATE), 1.0) for word in answer.words]
        for answer in from_files(tracks, by_us(bundled_model()))
    ]


def alone(models: SpeakerModels, half: str, people: Path | None, systems: Sequence[str]) -> dict[str, Any]:
    """Return how many recordings of one voice there are, and in how many of them a second label was ever seen."""
    talks = [talk for talk in monologues(half, people) if talk.turns]
    rows: dict[str, Any] = {}
    for name in systems:
        two = 0
        for talk in talks:
            words = [Word("", at, at + RATE // 2, 1.0) for at in range(0, len(talk.samples) - RATE // 2, RATE // 2)]
            answer = SYSTEMS[name](models, talk.samples, words)
            two += max(answer.most, len({turn.speaker for turn in answer.turns})) > 1
        rows[name] = {"recordings": len(talks), "with two voices": two}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=(DEVELOPMENT, HELD_APART), help="left out: both")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--meetings", type=Path, default=SPEECH / "meetings", metavar="FOLDER")
    parser.add_argument("--people", type=Path, metavar="FOLDER", help="with a folder of clips of each: held apart")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    models = SpeakerModels()
    result: dict[str, Any] = {"model": BUNDLED, "one voice alone": {}}
    halves = [given.half] if given.half else [DEVELOPMENT, HELD_APART]
    sets = {half: partial(conversations, half, given.people) for half in halves}
    sets |= {"meetings": partial(meetings, given.meetings)}
    for kind, recordings in sets.items():
        talks = recordings()
        heard = recognise_all(talks)
        result[kind] = {
            name: {
                group: score.row()
                for group, score in score_system(talks, heard, partial(SYSTEMS[name], models)).items()
            }
            for name in given.systems
        }
        if kind != "meetings":
            result["one voice alone"][kind] = alone(models, kind, given.people, given.systems)
        for name, rows in (*result[kind].items(), ("one voice alone", result["one voice alone"].get(kind, {}))):
            for group, row in rows.items():
                print(f"{kind:12} {name:26} {group:16}", "  ".join(f"{what} {value}" for what, value in row.items()))
    if not given.no_write:
        print(write("speakers", result))


if __name__ == "__main__":
    main()
