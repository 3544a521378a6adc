"""The embedded recogniser's segments -> words of the stream, or none where nobody seems to have spoken."""

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

LONGEST_WORD = position(1.5)
"""Over noise a word is stretched for seconds, for want of another. Spoken ones stay below 0.9 s."""

SPARSE, UNLIKELY = 0.2, -0.7
"""Words over less than this share of a window, with less than this mean log-probability, were music or noise."""

UNSURE = 0.5
"""Probability of a word of a partial: it has none before the utterance ends, and is not to be believed alone."""

LEAST = 1e-6  # a posterior of 0 has no logarithm

_FILLER = re.compile(r"<.*>|\[.*\]|\+\+.*\+\+")  # <s>, <sil>, [NOISE], ++BREATH++
_VARIANT = re.compile(r"\(\d+\)$")  # of pronunciation: and(2)
_PRONOUN = re.compile(r"i('\w+)?")  # i, i'm: the dictionary knows no capitals


def heard(request: DecodeRequest, segments: Iterable[Segment]) -> Heard:
    """What *segments* say of the window of *request*."""
    entries = [segment for segment in segments if not _FILLER.fullmatch(segment[0])]
    words = tuple(_words(request, entries))
    if not words:
        return Heard((), "en", 1.0, avg_logprob=0.0, no_speech_prob=1.0, rejected="no_speech" if entries else None)
    probabilities = [word.probability for word in words]
    mean = sum(map(math.log, probabilities)) / len(words)
    covered = sum(word.end - word.start for word in words)
    if request.final and covered < SPARSE * len(request.samples) and mean < UNLIKELY:
        return Heard((), "en", 1.0, avg_logprob=mean, no_speech_prob=1.0, rejected="no_speech")
    return Heard(words, "en", 1.0, avg_logprob=mean, no_speech_prob=1.0 - max(probabilities))


def _words(request: DecodeRequest, entries: Iterable[Segment]) -> Iterator[Word]:
    window_end = request.start + len(request.samples)
    for entry, first, last, posterior in entries:
        start = request.start + first * FRAME
        end = min(request.start + (last + 1) * FRAME, window_end)
        if start < end <= start + LONGEST_WORD:
            probability = min(max(posterior, LEAST), 1.0) if request.final else UNSURE
            yield Word(_written(entry), start, end, probability)


def _written(entry: str) -> str:
    word = _VARIANT.sub("", entry)
    return word.capitalize() if _PRONOUN.fullmatch(word) else word
