"""Corrects the word times of live hypotheses with the voice detector, and drops words that nobody spoke.

The word times of a model are inexact at silence. A word before a pause ends too early, a word after it starts too
early, and the first word may have no length at the edge of the window. stream.py uses this module.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.audio import WINDOW
from pipeline.words import Word

MIN_FREE_FRAMES = 2
"""Words at a silent place are kept only if this many frames of speech near them belong to no other word."""


class Voicing:
    """Holds which frames of some audio have speech. Frame *n* has the WINDOW samples from start + n * WINDOW."""

    def __init__(self, start: int, voiced: Sequence[bool]) -> None:
        self._start = start
        self._voiced = voiced
        self._end = start + len(voiced) * WINDOW

    def place(self, words: Sequence[Word]) -> list[Word]:
        """Return the *words* that somebody spoke, with corrected times. They must be in order, and stay so."""
        spoken = [word for word in words if self._touches(word)]
        bounds = iter([*(word.start for word in spoken[1:]), self._end])
        placed: list[Word] = []
        strays: list[Word] = []  # words at silent places since the last one at speech
        for word in words:
            if not self._touches(word):
                strays.append(word)
                continue
            fitted = self._fit(word, next(bounds))
            if strays and fitted.start > word.start:
                # The word has its start from the same silence as they do, so they share its speech.
                placed += _spread([*strays, word], fitted.start, fitted.end)
            else:
                placed += [*self._move_to_speech(strays, placed, word.start), fitted]
            strays = []
        return placed + self._move_to_speech(strays, placed, self._end)

    def _touches(self, word: Word) -> bool:
        """Return whether there is speech at the place of *word*, give or take a frame."""
        frames = self._frames(word.start - WINDOW, word.end + WINDOW)
        return True in self._voiced[frames.start : frames.stop]

    def _fit(self, word: Word, bound: int) -> Word:
        """Return *word* without silence at its ends, or extended to where its sound stops, at most to *bound*."""
        frames = self._voiced_frames(word.start, word.end)
        if not frames:
            return word
        pause = self._find_pause(frames[-1])
        start = max(word.start, self._at(frames[0]))
        end = max(start, word.end if pause is None else min(self._at(pause), max(bound, word.end)))
        return word if (start, end) == (word.start, word.end) else replace(word, start=start, end=end)

    def _move_to_speech(self, strays: list[Word], before: Sequence[Word], bound: int) -> list[Word]:
        """Return words at silent places, moved to the free speech between their neighbours, if there is enough."""
        if not strays:
            return []
        free = self._voiced_frames(before[-1].end if before else self._start, bound)
        if len(free) < MIN_FREE_FRAMES:
            return []
        return _spread(strays, self._at(free[0]), self._at(free[-1] + 1))

    def _voiced_frames(self, start: int, end: int) -> list[int]:
        """Return those of _frames() with speech."""
        return [frame for frame in self._frames(start, end) if self._voiced[frame]]

    def _frames(self, start: int, end: int) -> range:
        """Return the frames that lie in start..end by more than half, or the frame of *start* == *end*."""
        half = WINDOW // 2
        first, last = (start - self._start + half) // WINDOW, (end - self._start + half) // WINDOW
        return range(max(0, first), min(len(self._voiced), max(last, first + 1)))

    def _find_pause(self, frame: int) -> int | None:
        """Return the first frame without speech after *frame*, or None if speech goes on to the end."""
        try:
            return self._voiced.index(False, frame)
        except ValueError:
            return None

    def _at(self, frame: int) -> int:
        return self._start + frame * WINDOW


def _spread(words: Sequence[Word], start: int, end: int) -> list[Word]:
    """Return *words* spread over start..end, with times in proportion to the lengths of their texts."""
    total = sum(len(word.text) for word in words)
    spread, done = [], 0
    for word in words:
        begin = start + (end - start) * done // total
        done += len(word.text)
        spread.append(replace(word, start=begin, end=start + (end - start) * done // total))
    return spread
