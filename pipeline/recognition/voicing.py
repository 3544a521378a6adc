"""How long words may take, and where somebody spoke: corrects word times with the voice detector, in files and live.

The word times of a model are inexact at silence. A word before a pause ends too early or reaches into the pause, even
over it; a word after it starts too early, and the first word may have no length at the edge of the window. So no word
reaches over a silence that the voice detector sees, and words that nobody spoke are dropped.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from pipeline.audio import WINDOW, position
from pipeline.languages import plain
from pipeline.words import Word

_MAX_CACHED = 4096  # words that are remembered: a live word is compared many times before it is final
_WORD, _LETTER = position(0.4), position(0.09)  # the longest time of a word: a fixed part, and a part for each letter
_SLOW = position(0.5)  # the longest time of what is said as a word: a figure, a sign, a spelled letter, a dot
_SIGNS = frozenset("$£€%&@+°")  # marks that are said as words
_SAID_DOT = re.compile(r"(?<=[^\W_]{2})[.](?=[^\W\d_]{2})")  # as in "example.com"

SAID_AGAIN = position(0.1)
"""A word that is the same as the one before it has at least so much speech of its own."""

MIN_FREE_FRAMES = 2
"""Words at a silent place are kept only if this many frames of speech near them belong to no other word."""

PAUSE_FRAMES = 10
"""No word goes on after a silence of this many frames, 0.3 s, except numbers and what is spelled."""

TRAILING_FRAMES = 6
"""The voice detector sees speech for so long after its end. A word with less before a pause is said after the pause."""

AROUND_FRAMES = 6
"""The voice detector may miss so much at both ends of speech; the loudness of the sound shows where words end there."""


def place_in_speech(words: Sequence[Word], start: int, end: int, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Return the *words* that somebody spoke, none of them in a pause or over one.

    *words* begin and end with their sound. *spans* of the audio in start..end certainly have speech. A model may write
    the last word again for the silence after it.
    """
    first = start // WINDOW
    voiced = bytearray(-(-end // WINDOW) - first)
    for begin, stop in spans:
        at = max(0, begin // WINDOW - first - AROUND_FRAMES)
        after = min(len(voiced), -(-stop // WINDOW) - first + AROUND_FRAMES)
        voiced[at:after] = b"\1" * (after - at)
    placed = Voicing(first * WINDOW, bytes(voiced), extends=False).place(words)
    said = placed[:1]
    for before, word in pairwise(placed):
        own = sum(max(0, min(word.end, last) - max(word.start, begin)) for begin, last in spans)
        if plain(before.text) != plain(word.text) or own >= SAID_AGAIN:
            said.append(word)
    return tuple(said)


class Voicing:
    """Holds which frames of some audio have speech. Frame *n* has the WINDOW samples from start + n * WINDOW."""

    def __init__(self, start: int, voiced: bytes, *, extends: bool = True) -> None:
        """*voiced* has a byte for each frame: 1 if it has speech, else 0.

        *extends*: a word may end later, where its speech does.
        """
        self._start = start
        self._voiced = voiced
        self._end = start + len(voiced) * WINDOW
        self._extends = extends

    def place(self, words: Sequence[Word]) -> list[Word]:
        """Return the *words* that somebody spoke, with corrected times. They must be in order, and stay so."""
        words = self._end_at_pauses(words)
        touching = [
            self._touches(word) and not (index > 0 and _is_drawn_out(words[index - 1]) and self._is_mostly_silent(word))
            for index, word in enumerate(words)
        ]
        starts = [word.start for word, touches in zip(words, touching, strict=True) if touches]
        bounds = iter([*starts[1:], self._end])
        placed: list[Word] = []
        strays: list[Word] = []  # words at silent places since the last one at speech
        for word, touches in zip(words, touching, strict=True):
            if not touches:
                strays.append(word)
                continue
            fitted = self._fit(word, next(bounds))
            if strays and placed and _is_drawn_out(placed[-1]):
                before = placed.pop()
                placed += [*spread([before, *strays], before.start, before.end), fitted]
            elif strays and fitted.start > word.start:
                # The word has its start from the same silence as they do, so they share its speech.
                placed += spread([*strays, word], fitted.start, fitted.end)
            else:
                placed += [*self._move_to_speech(strays, placed, word.start), fitted]
            strays = []
        if strays and placed and _is_drawn_out(placed[-1]):
            before = placed.pop()
            return placed + spread([before, *strays], before.start, before.end)
        return placed + self._move_to_speech(strays, placed, self._end)

    def _end_at_pauses(self, words: Sequence[Word]) -> list[Word]:
        """Return *words*, none on both sides of a pause. What is said after the pause belongs to the next word."""
        ended = list(words)
        for index, word in enumerate(ended):
            pause = None if may_pause(word.text) else self._first_pause(word)
            if pause is None:
                continue
            last, first = pause
            before = ended[index - 1] if index else None
            if before is not None and last - word.start < TRAILING_FRAMES * WINDOW and _is_drawn_out(before):
                ended[index - 1 : index + 1] = spread([before, word], before.start, last)
            elif last - word.start < TRAILING_FRAMES * WINDOW:
                ended[index] = word.at(first, max(first, word.end))
                continue
            else:
                ended[index] = word.at(word.start, last)
            if index + 1 < len(ended) and first < ended[index + 1].start <= word.end:
                ended[index + 1] = ended[index + 1].at(first, ended[index + 1].end)
        return ended

    def _first_pause(self, word: Word) -> tuple[int, int] | None:
        """Return where the first pause within *word* begins and ends: after speech of it, and before more."""
        start, end = self._frames(word.start, word.end)
        voiced = [frame for frame in range(start, min(end, len(self._voiced))) if self._voiced[frame]]
        pauses = ((one + 1, other) for one, other in pairwise(voiced) if other - one > PAUSE_FRAMES)
        return next(((self._at(last), self._at(first)) for last, first in pauses), None)

    def _touches(self, word: Word) -> bool:
        """Return whether there is speech at the place of *word*, give or take a frame."""
        return self._voiced.find(1, *self._frames(word.start - WINDOW, word.end + WINDOW)) >= 0

    def _is_mostly_silent(self, word: Word) -> bool:
        return 2 * WINDOW * self._voiced.count(1, *self._frames(word.start, word.end)) < word.end - word.start

    def _fit(self, word: Word, bound: int) -> Word:
        """Return *word* without silence at its ends, or extended to where its sound stops, at most to *bound*."""
        frames = self._frames(word.start, word.end)
        first = self._voiced.find(1, *frames)
        if first < 0:
            return word
        pause = self._voiced.find(0, self._voiced.rfind(1, *frames))
        start = max(word.start, self._at(first))
        latest = max(bound, word.end) if self._extends else word.end
        end = max(start, word.end if pause < 0 else min(self._at(pause), latest))
        return word if (start, end) == (word.start, word.end) else word.at(start, end)

    def _move_to_speech(self, strays: list[Word], before: Sequence[Word], bound: int) -> list[Word]:
        """Return words at silent places, moved to the most free speech between their neighbours, if there is enough."""
        if not strays:
            return []
        start, end = self._frames(before[-1].end if before else self._start, bound)
        runs: list[list[int]] = []
        for frame in range(start, min(end, len(self._voiced))):
            if self._voiced[frame] and runs and frame - runs[-1][1] <= PAUSE_FRAMES:
                runs[-1][1] = frame
            elif self._voiced[frame]:
                runs.append([frame, frame])
        first, last = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
        if self._voiced.count(1, first, last + 1) < MIN_FREE_FRAMES:
            return []
        return spread(strays, self._at(first), self._at(last + 1))

    def _frames(self, start: int, end: int) -> tuple[int, int]:
        """Return the first frame that lies in start..end by more than half, or that of *start* == *end*, and their end.

        Both are indices, and the frames between them may be none.
        """
        half = WINDOW // 2
        first, last = (start - self._start + half) // WINDOW, (end - self._start + half) // WINDOW
        return max(0, first), max(0, last, first + 1)

    def _at(self, frame: int) -> int:
        return self._start + frame * WINDOW


def _is_drawn_out(word: Word) -> bool:
    """Return whether *word* lasts too long: it has been drawn over words after it."""
    return word.end - word.start > longest_time(word.text)


def spread(words: Sequence[Word], start: int, end: int) -> list[Word]:
    """Return *words* spread over start..end, with times in proportion to the lengths of their texts."""
    total = sum(len(word.text) for word in words)
    spread, done = [], 0
    for word in words:
        begin = start + (end - start) * done // total
        done += len(word.text)
        spread.append(word.at(begin, start + (end - start) * done // total))
    return spread


@lru_cache(_MAX_CACHED)
def longest_time(text: str) -> int:
    """Return the most samples in which the word *text* is said. Figures, signs, spelled letters and dots take long."""
    slow = _count_spelled(text) + sum(sign in _SIGNS for sign in text) + len(_SAID_DOT.findall(text))
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)  # each is a syllable or more
    return _WORD + _LETTER * (len(text) + wide - slow) + _SLOW * slow


@lru_cache(_MAX_CACHED)
def may_pause(text: str) -> bool:
    """Return whether people pause within the word *text*, because it has several figures or spelled letters."""
    return _count_spelled(text) > 1


def _count_spelled(text: str) -> int:
    """Return how many figures *text* has, and letters that are spelled: those of a word in capitals."""
    return sum(sign.isdecimal() or (sign.isalpha() and text.isupper()) for sign in text)
