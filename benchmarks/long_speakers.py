"""Measures a live session of many hours whose speakers are told apart: its memory, its CPU time, and its labels.

    .venv/bin/python -m benchmarks.long_speakers [--hours 10]      # writes results/long_speakers.json

A made conversation of six voices and ten minutes is repeated. The models' results for ten seconds of samples are
cached, since the same samples come sixty times; all else happens as in a session. Words are reported a second after
they were said.
"""

import argparse
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import own_rss_mb, write
from benchmarks.talks import DEVELOPMENT, converse, voices
from pipeline.audio import RATE, Samples
from pipeline.speakers.frames import Window
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.live_channel import SECOND
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels, known_pieces
from pipeline.words import Word

PIECE = SECOND
"""The samples of each piece, a second. The conversation has a whole number of pieces, so that windows are repeated."""

PIECES = 600
MADE = ("kal16", "slt")  # who speak with the four people
WORD = RATE // 2
HOUR = 3600 * RATE


class RememberingModels(SpeakerModels):
    """Models that cache their results by the samples and by the known pieces before them."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[bytes, Window] = {}

    def listen(self, samples: Samples, start: int, before: Window | None = None) -> Window:
        content = hashlib.blake2b(samples.tobytes(), digest_size=16)
        for first, after, embedding in [] if before is None else known_pieces(before, start):
            content.update(np.array([first, after]).tobytes() + embedding.tobytes())
        key = content.digest()
        if key not in self._heard:
            self._heard[key] = super().listen(samples, start, before)
        return replace(self._heard[key], start=start)


class LabelHistory:
    """Every word with its speaker and the labels that readers saw: at first, a minute later, and at the end."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.labels: list[str | None] = []
        self.first: list[str | None] = []
        self.settled: dict[int, str | None] = {}

    def settle(self, before: int) -> None:
        """Note the labels of the words that end before this position."""
        while len(self.settled) < len(self.said) and self.said[len(self.settled)][1] < before:
            self.settled[len(self.settled)] = self.labels[len(self.settled)]


def words(labels: list[tuple[str, float, float]], length: int, hours: float) -> Iterator[tuple[str, Word]]:
    """Yield a word for each half second of every turn, with its speaker."""
    for base in range(0, round(hours * HOUR), length):
        for name, start, end in sorted(labels, key=lambda turn: turn[1]):
            for at in range(round(start * RATE), min(round(end * RATE), length) - WORD, WORD):
                yield name, Word("w", base + at, base + at + WORD, 1.0)


def stability(told: LabelHistory, final: NDArray[np.object_]) -> dict[str, object]:
    """Return how labels changed, and how many labels each voice has as the label of most of its words in an hour."""
    hourly: dict[tuple[str, int], Counter[str]] = {}
    for (name, end), label in zip(told.said, final, strict=True):
        hourly.setdefault((name, end // HOUR), Counter())[str(label)] += 1
    main = {key: labels.most_common(1)[0][0] for key, labels in hourly.items()}
    voices = {name for name, _ in main}
    settled = [told.settled.get(number, label) for number, label in enumerate(told.labels)]
    return {
        "words": len(final),
        "labels at the end": len(set(final)),
        "labels of each voice over the hours": {
            name: sorted({label for (one, _), label in main.items() if one == name}) for name in sorted(voices)
        },
        "words of a voice with its label": round(
            sum(labels.most_common(1)[0][1] for labels in hourly.values()) / len(final), 4
        ),
        "first label is the last": round(float(np.mean([a == b for a, b in zip(told.first, final, strict=True)])), 4),
        "label after a minute is the last": round(
            float(np.mean([a == b for a, b in zip(settled, final, strict=True)])), 4
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=10)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    hours = given.hours
    people, made = voices(DEVELOPMENT, None)
    clips = {**people, **{name: made[name] for name in MADE}}
    samples, labels = converse(clips, PIECES * PIECE / RATE, np.random.default_rng(1))
    samples = np.resize(samples, PIECES * PIECE)
    speakers = LiveSpeakers(RememberingModels(), SpeakerOptions(), {None: 0})
    told, coming = LabelHistory(), words(labels, len(samples), hours)
    name, word = next(coming)
    rows, longest_s, spent_s, since_s = [], 0.0, 0.0, 0.0
    for piece in range(int(hours * HOUR) // PIECE):
        at = (piece + 1) * PIECE
        while word is not None and word.end + RATE <= at:
            label = speakers.label(word, None)
            told.said.append((name, word.end))
            told.first.append(label)
            told.labels.append(label)
            name, word = next(coming, ("", None))
        began = time.process_time()
        start = piece % PIECES * PIECE
        for run in speakers.listen({None: samples[start : start + PIECE]}):
            told.labels[run.first : run.last + 1] = [run.speaker] * (run.last + 1 - run.first)
        speakers.take_states()
        took = time.process_time() - began
        longest_s, spent_s = max(longest_s, took), spent_s + took
        told.settle(at - 60 * RATE)
        if piece % round(HOUR / PIECE) == 0 or piece == PIECES + 20:
            cpu = round(spent_s - since_s, 1)
            rows.append({"hour": round(at / HOUR, 2), "memory_mb": round(own_rss_mb(os.getpid()), 1), "cpu_s": cpu})
            since_s = spent_s
            print(json.dumps(rows[-1]), flush=True)
    began = time.process_time()
    _, runs = speakers.finish()
    final = np.empty(len(told.said), object)
    for run in runs:
        final[run.first : run.last + 1] = run.speaker
    ending = {"longest step, s of CPU": round(longest_s, 2), "end, s of CPU": round(time.process_time() - began, 2)}
    result = {"session h": hours, "people": len(clips), **ending, **stability(told, final), "hours": rows}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("long_speakers", result))


if __name__ == "__main__":
    main()
