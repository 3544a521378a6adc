"""Keeps some seconds of each voice of a live stream, from which its speakers are found again after a restart.

Audio is kept, and no embedding: after a restart the embeddings are computed from it again.
"""

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import orjson

from pipeline.audio import RATE, Samples
from pipeline.speakers.frames import OFFSET, STEP, Window

Excerpts: TypeAlias = Mapping[int | None, Mapping[str, Samples]]
"""The stored speech of a stream, by channel (or None for all mixed) and label."""

MOST = 8 * RATE
"""The most samples of one voice that are kept."""

SHORTEST = RATE // 2
"""Samples: a shorter stretch of speech is not kept."""

UNSETTLED = RATE
"""Samples at the end of a window whose speaker may still change."""

_LOUDEST = 32767  # of 16-bit PCM


@dataclass(frozen=True, slots=True)
class Stretch:
    """Speech of one voice alone, from a position of the channel."""

    start: int
    samples: Samples

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


@dataclass(frozen=True, slots=True)
class RedactedSpans:
    """The starts and ends of redacted speech, in positions of the channel. After *known_to* they are not known yet."""

    spans: Sequence[tuple[int, int]]
    known_to: int


NOTHING_REDACTED = RedactedSpans((), sys.maxsize)


class SpeechOfVoices:
    """The stretches that are kept of one channel."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._reached = 0  # the end of the last stretch

    def collect(self, window: Window, samples: Samples) -> None:
        """Add the turns of *window*, whose audio is *samples*, without what earlier windows have added."""
        base = window.start * STEP
        for turn in sorted(window.turns, key=lambda turn: turn.first):
            start = max(base + turn.first * STEP + OFFSET, self._reached)
            end = min(base + turn.after * STEP + OFFSET, base + len(samples) - UNSETTLED)
            if end - start >= SHORTEST:
                self._stretches.append(Stretch(start, samples[start - base : end - base].copy()))
                self._reached = end

    def by_label(
        self, label_of: Callable[[Stretch], str | None], recent: int, hidden: RedactedSpans = NOTHING_REDACTED
    ) -> dict[str, Samples]:
        """Return up to MOST samples of each label, the longest stretches first, and forget all others.

        Speech after position *recent* is kept, because it may turn out to be another voice's. Redacted speech is
        forgotten, and speech that may still be redacted is not returned.
        """
        kept: dict[str, list[Stretch]] = {}
        others = [stretch for stretch in self._stretches if stretch.end > hidden.known_to]
        audible = [
            part
            for stretch in self._stretches
            if stretch.end <= hidden.known_to
            for part in _audible(stretch, hidden.spans)
        ]
        for stretch in sorted(audible, key=lambda one: -len(one.samples)):
            label = label_of(stretch)
            if label is not None and _length(own := kept.setdefault(label, [])) < MOST:
                own.append(stretch)
            elif stretch.start >= recent:
                others.append(stretch)
        self._stretches = [*others, *(stretch for own in kept.values() for stretch in own)]
        return {label: np.concatenate([one.samples for one in own])[:MOST] for label, own in kept.items()}


def _audible(stretch: Stretch, spans: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Return the parts of a stretch outside of *spans* that are long enough to be kept."""
    parts, at = [], stretch.start
    for start, end in sorted(spans):
        if start < stretch.end and end > at:
            parts.append((at, start))
            at = end
    parts.append((at, stretch.end))
    return [
        Stretch(first, stretch.samples[first - stretch.start : last - stretch.start])
        for first, last in parts
        if last - first >= SHORTEST
    ]


def _length(stretches: Sequence[Stretch]) -> int:
    return sum(len(one.samples) for one in stretches)


def stored_excerpts(excerpts: Excerpts) -> bytes:
    """Return the excerpts as JSON: rows of channel, label, and the samples as 16-bit PCM in base64."""
    rows = [
        (channel, label, base64.b64encode(_pcm(samples)).decode())
        for channel, voices in excerpts.items()
        for label, samples in voices.items()
    ]
    return orjson.dumps(rows)


def read_excerpts(body: bytes) -> dict[int | None, dict[str, Samples]]:
    """Return what stored_excerpts() was given."""
    found: dict[int | None, dict[str, Samples]] = {}
    for channel, label, pcm in orjson.loads(body):
        samples = np.frombuffer(base64.b64decode(pcm), "<i2").astype(np.float32)
        found.setdefault(channel, {})[label] = samples / np.float32(_LOUDEST)
    return found


def _pcm(samples: Samples) -> bytes:
    return np.round(samples.clip(-1, 1) * _LOUDEST).astype("<i2").tobytes()
