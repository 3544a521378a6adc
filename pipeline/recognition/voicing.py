"""Corrects the word times of live hypotheses with the voice detector, and drops words that nobody spoke.

The word times of a model are inexact at silence. A word before a pause ends too early, a word after it starts too
early, and the first word may have no length at the edge of the window. stream.py uses this module.
"""

from collections.abc import Sequence

from pipeline.audio import WINDOW
from pipeline.words import Word

MIN_FREE_FRAMES = 2
"""Words at a silent place are kept only if this many frames of speech near them belong to no other word."""


def place_in_speech(words: Sequence[Word], start: int, end: int, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Return the *words* that somebody spoke, with corrected times. *spans* of the audio in start..end have speech."""
    first = start // WINDOW
    voiced = bytearray(-(-end // WINDOW) - first)
    for begin, stop in spans:
        at, after = begin // WINDOW - first, -(-stop // WINDOW) - first
        voiced[at:after] = b"\1" * (after - at)
    return tuple(Voicing(first * WINDOW, bytes(voiced)).place(words))


class Voicing:
    """Holds which frames of some audio have speech. Frame *n* has the WINDOW samples from start + n * WINDOW."""

    def __init__(self, start: int, voiced: bytes) -> None:
        """*voiced* has a byte for each frame: 1 if it has speech, else 0."""
        self._start = start
        self._voiced = voiced
        self._end = start + len(voiced) * WINDOW

    def place(self, words: Sequence[Word]) -> list[Word]:
        """Return the *words* that somebody spoke, with corrected times. They must be in order, and stay so."""
        touching = [self._touches(word) for word in words]
        starts = [word.start for word, touches in zip(words, touching, strict=True) if touches]
        bounds = iter([*starts[1:], self._end])
        placed: list[Word] = []
        strays: list[Word] = []  # words at silent places since the last one at speech
        for word, touches in zip(words, touching, strict=True):
            if not touches:
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
        return self._voiced.find(1, *self._frames(word.start - WINDOW, word.end + WINDOW)) >= 0

    def _fit(self, word: Word, bound: int) -> Word:
        """Return *word* without silence at its ends, or extended to where its sound stops, at most to *bound*."""
        frames = self._frames(word.start, word.end)
        first = self._voiced.find(1, *frames)
        if first < 0:
            return word
        pause = self._voiced.find(0, self._voiced.rfind(1, *frames))
        start = max(word.start, self._at(first))
        end = max(start, word.end if pause < 0 else min(self._at(pause), max(bound, word.end)))
        return word if (start, end) == (word.start, word.end) else word.at(start, end)

    def _move_to_speech(self, strays: list[Word], before: Sequence[Word], bound: int) -> list[Word]:
        """Return words at silent places, moved to the free speech between their neighbours, if there is enough."""
        if not strays:
            return []
        frames = self._frames(before[-1].end if before else self._start, bound)
        if self._voiced.count(1, *frames) < MIN_FREE_FRAMES:
            return []
        return _spread(strays, self._at(self._voiced.find(1, *frames)), self._at(self._voiced.rfind(1, *frames) + 1))

    def _frames(self, start: int, end: int) -> tuple[int, int]:
        """Return the first frame that lies in start..end by more than half, or that of *start* == *end*, and their end.

        Both are indices, and the frames between them may be none.
        """
        half = WINDOW // 2
        first, last = (start - self._start + half) // WINDOW, (end - self._start + half) // WINDOW
        return max(0, first), max(0, last, first + 1)

    def _at(self, frame: int) -> int:
        return self._start + frame * WINDOW


def _spread(words: Sequence[Word], start: int, end: int) -> list[Word]:
    """Return *words* spread over start..end, with times in proportion to the lengths of their texts."""
    total = sum(len(word.text) for word in words)
    spread, done = [], 0
    for word in words:
        begin = start + (end - start) * done // total
        done += len(word.text)
        spread.append(word.at(begin, start + (end - start) * done // total))
    return spread
