"""Tokens, their probabilities and the frames they were heard in -> words with times.

The decoder's attention says when a token *begins*; where a word ends before a pause it cannot say, because the pause
belongs to no token. The sound itself can: a word neither starts nor ends in silence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.words import Word

ENCODER_FRAME = 320
"""Samples of one encoder frame: 20 ms."""

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages written without spaces between words."""

_OPENING = frozenset("\"'“‘¿¡([{«「『（")  # noqa: RUF001  (the real marks)
_SAID = frozenset("&%@#")  # marks that are words; so are the symbols of Unicode: + = € ...
_STEP = 160  # samples of one loudness value: 10 ms
_LOUD = 0.3  # of the way from the quietest to the loudest value, in decibels
_MIN_RANGE_DB = 6.0  # less than this between them: nothing can be told apart
_MIN_WORD = RATE // 25  # samples of the shortest word: 40 ms
_GAP = 30  # steps of silence, 0.3 s, that no word has in it: what sounds after them belongs to the next
_CLICK = 6  # steps of sound before such a silence that are too short for a word
_LAST_WORD = RATE // 2  # the most that a last word is drawn out while the sound goes on


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What one word's tokens decode to, with the space before it, and how many tokens they are."""

    text: str
    tokens: int


@dataclass(slots=True)
class _Spoken:
    text: str
    spaced: bool
    start: int  # frames
    end: int
    probability: float


def words_of(
    pieces: Sequence[TextPiece],
    path: Sequence[tuple[int, int]],
    probabilities: Sequence[float],
    samples: Samples,
    *,
    start: int,
    language: str,
    final: bool,
    lead: int = 0,
) -> tuple[Word, ...]:
    """The words of one window: in order, inside it, none empty, punctuation joined to its word.

    *path* holds (token, frame) pairs, both never decreasing, and ends with the token after the last. *start* is the
    position of samples[0], before which *lead* samples of silence were heard. A word's probability is that of its
    least probable token, to three decimals. In a *final* window the last word lasts until the sound stops; in a partial
    one the next word may already have begun.
    """
    spoken = _joined(pieces, _first_frames(path), probabilities, unspaced=language in UNSPACED)
    loud = loud_steps(samples)
    spans = [
        _inside(max(0, said.start * ENCODER_FRAME - lead), max(0, said.end * ENCODER_FRAME - lead), loud)
        for said in spoken
    ]
    spans = _at_gaps(spans, loud)
    if final and spans:
        spans[-1] = (spans[-1][0], _until_quiet(spans[-1][1], loud))
    return tuple(
        Word(said.text, start + first, start + last, round(said.probability, 3), said.spaced)
        for said, (first, last) in zip(spoken, _parted(spans, len(samples)), strict=True)
    )


def loud_steps(samples: Samples) -> NDArray[np.bool_]:
    """For each 10 ms: is there sound, measured between the window's own quietest and loudest?"""
    steps = -(-len(samples) // _STEP)
    power = np.zeros(steps * _STEP, dtype=np.float32)
    np.square(samples, out=power[: len(samples)])
    decibels = 10 * np.log10(power.reshape(steps, _STEP).mean(axis=1) + 1e-10)
    quiet, full = np.percentile(decibels, (5, 95))
    if full - quiet < _MIN_RANGE_DB:
        return np.ones(steps, dtype=np.bool_)
    return np.asarray(decibels > quiet + _LOUD * (full - quiet))


def _first_frames(path: Sequence[tuple[int, int]]) -> list[int]:
    """The frame where each token begins."""
    frames = [path[0][1]] if path else []
    frames += [frame for (before, _), (token, frame) in pairwise(path) if token != before]
    return frames


def _joined(
    pieces: Sequence[TextPiece], frames: Sequence[int], probabilities: Sequence[float], *, unspaced: bool
) -> list[_Spoken]:
    """Words with the punctuation around them. Marks lend a word their time, never their probability."""
    spoken: list[_Spoken] = []
    opening: str | None = None
    token = 0
    for piece in pieces:
        text, ends = piece.text.strip(), token + piece.tokens
        spaced = not unspaced or piece.text.startswith(" ")
        if text and all(mark in _OPENING for mark in text) and (unspaced or piece.text.startswith(" ")):
            opening = (opening or "") + text
        elif _is_word(text) and (opening is not None or unspaced or piece.text.startswith(" ") or not spoken):
            probability = min(probabilities[token:ends])
            spoken.append(_Spoken((opening or "") + text, spaced, frames[token], frames[ends], probability))
            opening = None
        elif spoken:
            spoken[-1].text += text
            spoken[-1].end = frames[ends]
        token = ends
    return spoken


def _is_word(text: str) -> bool:
    """Letters, digits, or symbols that are spoken."""
    return any(sign.isalnum() or sign in _SAID or category(sign).startswith("S") for sign in text)


def _parted(spans: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """The spans in order, none over another, all within 0..most, and none shorter than _MIN_WORD where there is room.

    The attention can step over a short word: two of them begin in the same frame. It then gets a part of its longer
    neighbour.
    """
    bounds: list[list[int]] = []
    earliest = 0
    for first, last in spans:
        begin = min(max(first, earliest), most)
        earliest = min(max(last, begin), most)
        bounds.append([begin, earliest])
    for index, bound in enumerate(bounds):
        lacking = _MIN_WORD - (bound[1] - bound[0])
        if lacking <= 0:
            continue
        before = bounds[index - 1] if index else [0, bound[0]]
        after = bounds[index + 1] if index + 1 < len(bounds) else [most, most]
        if after[1] - bound[1] >= 2 * _MIN_WORD:
            bound[1] += lacking
            after[0] = max(after[0], bound[1])
        elif bound[0] - before[0] >= 2 * _MIN_WORD:
            bound[0] -= lacking
            before[1] = min(before[1], bound[0])
    return [(first, last) for first, last in bounds]


def _inside(first: int, last: int, loud: NDArray[np.bool_]) -> tuple[int, int]:
    """The span without the silence at its two ends; unchanged where there is no sound in it."""
    begin = first // _STEP
    heard = np.flatnonzero(loud[begin : -(-last // _STEP)])
    if not len(heard):
        return first, last
    return max(first, (begin + int(heard[0])) * _STEP), min(last, (begin + int(heard[-1]) + 1) * _STEP)


def _at_gaps(spans: Sequence[tuple[int, int]], loud: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The spans, none with a long silence in it: what comes after the silence is the beginning of the next word.

    The attention often finds a word after a pause only once it has sounded for a while, and gives its first sounds to
    the word before the pause.
    """
    apart = list(spans)
    for index, (first, last) in enumerate(apart):
        step = first // _STEP
        heard = step + np.flatnonzero(loud[step : -(-last // _STEP)])
        pauses = np.flatnonzero(np.diff(heard) > _GAP)
        if not len(pauses) or pauses[0] + 1 < _CLICK:
            continue
        apart[index] = (first, (int(heard[pauses[0]]) + 1) * _STEP)
        if index + 1 < len(apart) and pauses[-1] == pauses[0]:
            following = apart[index + 1]
            apart[index + 1] = (min(following[0], int(heard[pauses[0] + 1]) * _STEP), following[1])
    return apart


def _until_quiet(last: int, loud: NDArray[np.bool_]) -> int:
    """*last*, moved to where the sound that is still going on there stops; by _LAST_WORD at most."""
    step = last // _STEP
    after = loud[step : step + _LAST_WORD // _STEP]
    quiet = np.flatnonzero(~after)
    return max(last, (step + (int(quiet[0]) if len(quiet) else len(after))) * _STEP)
