"""Where a model says its words are, corrected by where somebody spoke.

Alignment is loose around silence: a word before a pause ends early, one after it starts early, and a first word may
shrink to nothing at the edge of the window. The voice detector knows better. It also knows words that nobody spoke.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.audio import WINDOW
from pipeline.words import Word

MIN_FREE_FRAMES = 2
"""Frames of voice, not claimed by another word, that words heard in silence need to be believed."""


class Voicing:
    """Which frames of a stretch of audio hold speech: frame *n* has the WINDOW samples from start + n * WINDOW."""

    def __init__(self, start: int, voiced: Sequence[bool]) -> None:
        self._start = start
        self._voiced = voiced
        self._end = start + len(voiced) * WINDOW

    def placed(self, words: Sequence[Word]) -> list[Word]:
        """The *words* that somebody spoke, where they were spoken. *words* are in order and stay so."""
        spoken = [word for word in words if self._touches(word)]
        bounds = iter([*(word.start for word in spoken[1:]), self._end])
        placed: list[Word] = []
        strays: list[Word] = []  # words in silence since the last one in speech
        for word in words:
            if not self._touches(word):
                strays.append(word)
                continue
            fitted = self._fitted(word, next(bounds))
            if strays and fitted.start > word.start:
                placed += _spread(
                    [*strays, word], fitted.start, fitted.end
                )  # it claims the silence: they share its voice
            else:
                placed += [*self._housed(strays, placed, word.start), fitted]
            strays = []
        return placed + self._housed(strays, placed, self._end)

    def _touches(self, word: Word) -> bool:
        """Whether there is voice where *word* is said to be, give or take a frame."""
        return bool(self._voices(word.start - WINDOW, word.end + WINDOW))

    def _fitted(self, word: Word, bound: int) -> Word:
        """*word* without the silence at its ends; where its sound goes on until a pause, up to there or to *bound*."""
        voices = self._voices(word.start, word.end)
        if not voices:
            return word
        last = voices[-1]
        while last + 1 < len(self._voiced) and self._voiced[last + 1]:
            last += 1
        pauses = last + 1 < len(self._voiced)
        start = max(word.start, self._at(voices[0]))
        end = min(self._at(last + 1), max(bound, word.end)) if pauses else word.end
        return replace(word, start=start, end=max(start, end))

    def _housed(self, strays: list[Word], before: Sequence[Word], bound: int) -> list[Word]:
        """Words said to be in silence, moved to the voice between their neighbours; none if there is not enough."""
        free = self._voices(before[-1].end if before else self._start, bound)
        return (
            _spread(strays, self._at(free[0]), self._at(free[-1] + 1))
            if strays and len(free) >= MIN_FREE_FRAMES
            else []
        )

    def _voices(self, start: int, end: int) -> list[int]:
        """The frames with voice that lie in start..end by more than half, or hold *start* where that is one place."""
        half = WINDOW // 2
        first, last = (start - self._start + half) // WINDOW, (end - self._start + half) // WINDOW
        frames = range(max(0, first), min(len(self._voiced), max(last, first + 1)))
        return [frame for frame in frames if self._voiced[frame]]

    def _at(self, frame: int) -> int:
        return self._start + frame * WINDOW


def _spread(words: Sequence[Word], start: int, end: int) -> list[Word]:
    """*words* one after the other over start..end, each as long as its text."""
    total = sum(len(word.text) for word in words)
    spread, done = [], 0
    for word in words:
        begin = start + (end - start) * done // total
        done += len(word.text)
        spread.append(replace(word, start=begin, end=start + (end - start) * done // total))
    return spread
