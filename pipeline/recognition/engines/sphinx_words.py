"""The embedded recogniser's segments -> words of the stream."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from pipeline.audio import RATE, position
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.words import Word

Segment: TypeAlias = tuple[str, int, int, float]
"""An entry of the dictionary, its first and its last frame since the window's start, its posterior probability."""

FRAME = RATE // 100
"""Samples of one of the recogniser's frames."""

LONGEST_WORD = position(2)
"""Nobody speaks a word for so long: over noise and music one is stretched for want of another."""

UNSURE = 0.5
"""Probability of a word of a partial. It has none before the utterance ends, and is not to be believed alone."""

_FILLER = re.compile(r"<.*>|\[.*\]|\+\+.*\+\+")  # <s>, <sil>, [NOISE], ++BREATH++
_VARIANT = re.compile(r"\(\d+\)$")  # of pronunciation: and(2)


def heard(request: DecodeRequest, segments: Iterable[Segment]) -> Heard:
    """What *segments* say of the window of *request*."""
    segments = [segment for segment in segments if not _FILLER.fullmatch(segment[0])]
    words = tuple(_words(request, segments))
    if not words:
        rejected = "no_speech" if segments else None
        return Heard((), "en", 1.0, avg_logprob=0.0, no_speech_prob=1.0, rejected=rejected)
    mean = sum(math.log(word.probability) for word in words) / len(words)
    return Heard(words, "en", 1.0, avg_logprob=mean, no_speech_prob=0.0)


def _words(request: DecodeRequest, segments: Iterable[Segment]) -> Iterator[Word]:
    window_end = request.start + len(request.samples)
    for entry, first, last, posterior in segments:
        start = request.start + first * FRAME
        end = min(request.start + (last + 1) * FRAME, window_end)
        if start < end <= start + LONGEST_WORD:
            probability = min(max(posterior, 1e-6), 1.0) if request.final else UNSURE
            yield Word(_VARIANT.sub("", entry), start, end, probability)
