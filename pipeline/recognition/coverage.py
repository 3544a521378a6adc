"""Speech that a hypothesis has no words for.

A Whisper can end its answer early, after the first of several sentences, or skip one: nothing in the answer says so.
The voice detector does. Words that the alignment stretches over a pause are cut to what a word can last, and voice
that is then left over for long enough was not heard.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pipeline.audio import position
from pipeline.words import Word

Span: TypeAlias = tuple[int, int]
"""Start and end, positions."""

UNHEARD = position(0.8)
"""Voice without a word that is worth hearing again: less is a drawn-out vowel or a breath."""

PAUSE = position(0.5)
"""Silence that parts two stretches."""

_WORD, _LETTER = position(0.4), position(0.09)  # the longest word: so much, and so much more for each letter


def unheard(words: Sequence[Word], voiced: Sequence[Span]) -> list[Span]:
    """The stretches of *voiced*, spans in order, in which at least UNHEARD of voice has no word of *words*, in order.

    Each begins and ends with voice.
    """
    stretches: list[list[int]] = []  # start, end, voice in it
    for start, end in _without(voiced, list(_spoken(words, voiced))):
        if stretches and start - stretches[-1][1] < PAUSE and not _between(words, stretches[-1][1], start):
            stretches[-1][1] = end
            stretches[-1][2] += end - start
        else:
            stretches.append([start, end, end - start])
    return [(start, end) for start, end, voice in stretches if voice >= UNHEARD]


def _spoken(words: Sequence[Word], voiced: Sequence[Span]) -> Iterator[Span]:
    """Where each word can have been: from its start, or the first voice after it, for as long as a word lasts."""
    for word in words:
        start = next((max(word.start, first) for first, last in voiced if last > word.start), word.start)
        start = min(start, word.end)
        yield start, min(word.end, start + _WORD + _LETTER * len(word.text))


def _without(spans: Sequence[Span], holes: Sequence[Span]) -> Iterator[Span]:
    """What is left of *spans* without *holes*, both in order."""
    for start, end in spans:
        at = start
        for first, last in holes:
            if last <= at or first >= end:
                continue
            if first > at:
                yield at, first
            at = max(at, last)
        if at < end:
            yield at, end


def _between(words: Sequence[Word], start: int, end: int) -> bool:
    """Whether a word begins in start..end."""
    return any(start <= word.start < end for word in words)
