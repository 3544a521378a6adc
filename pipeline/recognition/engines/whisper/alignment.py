"""Turns Whisper's tokens, their probabilities and their encoder frames into words with times. engine.py calls it.

The attention of the decoder shows where a token *begins*. It cannot show where a word before a pause ends, because the
pause belongs to no token. The loudness of the audio can: a word neither starts nor ends in silence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.languages import UNSPACED, continues_grapheme
from pipeline.recognition.voicing import may_pause
from pipeline.words import Word

ENCODER_FRAME = 320
"""The samples of one encoder frame: 20 ms."""

BROKEN = "\ufffd"
"""What tokens decode to that hold a part of a character: a character may span several tokens."""

_OPENING = frozenset("\"'“‘¿¡([{«「『（")  # noqa: RUF001  quotation marks as people write them
_SPOKEN_MARKS = frozenset("&%@#")  # marks that are spoken as words, like the symbols of Unicode (+ = €)
_LONGEST_CHARACTER = 8  # more tokens than a character has: each is a byte of UTF-8 at least
_STEP = 160  # samples of one loudness value: 10 ms
_LOUD = 0.3  # sound is what is louder than this share of the way from the quietest to the loudest value, in decibels
_MIN_RANGE_DB = 6.0  # if they differ by less, silence cannot be told from sound
_MIN_WORD = RATE // 25  # samples of the shortest word: 40 ms
_GAP = 30  # steps of silence, 0.3 s: no word has a longer one in it, so sound after it belongs to the next word
_CLICK = 6  # fewer steps of sound before such a silence are too short for a word
_LAST_WORD = RATE // 2  # the most samples by which a last word is extended while the sound continues


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The text of a few tokens that form a word, with the space before it, and how many tokens they are."""

    text: str
    tokens: int


@dataclass(slots=True)
class _TimedWord:
    """A word with the encoder frames of its tokens."""

    text: str
    spaced: bool
    start: int
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
) -> tuple[Word, ...]:
    """Return the words of one window: in order, inside it, none empty, with punctuation joined to its word.

    *path*: pairs (token, frame). Neither ever decreases, and the last pair is that of the token after the text.
    *start*: the position of samples[0].
    *final*: the last word lasts until the sound stops. In a partial it may end earlier, because the next word may have
    begun.

    A word's probability is that of its least probable token: the mean would hide the one that makes a word wrong.
    """
    spoken = _join(pieces, _first_frames(path), probabilities, unspaced=language in UNSPACED)
    loud = loud_steps(samples)
    spans = [_trim(word.start * ENCODER_FRAME, word.end * ENCODER_FRAME, loud) for word in spoken]
    spans = _split_at_silence(spans, loud, [may_pause(word.text) for word in spoken])
    if final and spans:
        spans[-1] = (spans[-1][0], _extend_to_silence(spans[-1][1], loud))
    return tuple(
        Word(word.text, start + first, start + last, round(word.probability, 3), word.spaced, language=language)
        for word, (first, last) in zip(spoken, _separate(spans, len(samples)), strict=True)
    )


def with_whole_characters(tokens: tuple[int, ...], decode: Callable[[Sequence[int]], str]) -> tuple[int, ...]:
    """Return *tokens* without those at the end that are only a part of a character, whose rest has yet to come."""
    while tokens and decode(tokens[-_LONGEST_CHARACTER:]).endswith(BROKEN):
        tokens = tokens[:-1]
    return tokens


def loud_steps(samples: Samples) -> NDArray[np.bool_]:
    """Return for each 10 ms whether there is sound, relative to the quietest and the loudest of this window."""
    steps = -(-len(samples) // _STEP)
    power = np.zeros(steps * _STEP, dtype=np.float32)
    np.square(samples, out=power[: len(samples)])
    decibels = 10 * np.log10(power.reshape(steps, _STEP).mean(axis=1) + 1e-10)
    # numpy's own function for quantiles imports masked arrays, taking 0.1 s.
    places = np.multiply((0.05, 0.95), len(decibels) - 1)
    quiet, full = np.interp(places, np.arange(len(decibels)), np.sort(decibels))
    if full - quiet < _MIN_RANGE_DB:
        return np.ones(steps, dtype=np.bool_)
    return np.asarray(decibels > quiet + _LOUD * (full - quiet))


def _first_frames(path: Sequence[tuple[int, int]]) -> list[int]:
    frames = [path[0][1]] if path else []
    frames += [frame for (before, _), (token, frame) in pairwise(path) if token != before]
    return frames


def _join(
    pieces: Sequence[TextPiece], frames: Sequence[int], probabilities: Sequence[float], *, unspaced: bool
) -> list[_TimedWord]:
    """Return words joined with the marks around them. A mark extends the time of its word, not its probability."""
    spoken: list[_TimedWord] = []
    opening: str | None = None
    token = 0
    lone_space = False  # scripts without spaces have one between clauses
    for piece in pieces:
        text, ends = piece.text.replace(BROKEN, "").strip(), token + piece.tokens
        after_space = piece.text.startswith(" ") or lone_space
        lone_space = piece.text.isspace()
        spaced = not unspaced or (after_space and bool(spoken))
        begins = opening is not None or after_space or not spoken
        if text and all(mark in _OPENING for mark in text) and (unspaced or after_space):
            opening = (opening or "") + text
        elif _is_word(text) and (begins or (unspaced and not continues_grapheme(spoken[-1].text, text))):
            probability = min(probabilities[token:ends])
            spoken.append(_TimedWord((opening or "") + text, spaced, frames[token], frames[ends], probability))
            opening = None
        elif spoken:
            spoken[-1].text += text
            spoken[-1].end = frames[ends]
        token = ends
    return spoken


def _is_word(text: str) -> bool:
    """Return whether *text* has letters, digits or spoken symbols."""
    return any(sign.isalnum() or sign in _SPOKEN_MARKS or category(sign).startswith("S") for sign in text)


def _separate(spans: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Return the spans in order, without overlap, within 0..limit, and not shorter than _MIN_WORD if there is room.

    The attention may show a short word in the same frame as its neighbour. It then gets a part of that longer word.
    """
    bounds: list[list[int]] = []
    earliest = 0
    for first, last in spans:
        begin = min(max(first, earliest), limit)
        earliest = min(max(last, begin), limit)
        bounds.append([begin, earliest])
    for index, bound in enumerate(bounds):
        lacking = _MIN_WORD - (bound[1] - bound[0])
        if lacking <= 0:
            continue
        before = bounds[index - 1] if index else [0, bound[0]]
        after = bounds[index + 1] if index + 1 < len(bounds) else [limit, limit]
        if after[1] - bound[1] >= 2 * _MIN_WORD:
            bound[1] += lacking
            after[0] = max(after[0], bound[1])
        elif bound[0] - before[0] >= 2 * _MIN_WORD:
            bound[0] -= lacking
            before[1] = min(before[1], bound[0])
    return [(first, last) for first, last in bounds]


def _trim(first: int, last: int, loud: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the span without silence at its two ends, or unchanged if there is no sound in it."""
    begin = first // _STEP
    loud_at = np.flatnonzero(loud[begin : -(-last // _STEP)])
    if not len(loud_at):
        return first, last
    return max(first, (begin + int(loud_at[0])) * _STEP), min(last, (begin + int(loud_at[-1]) + 1) * _STEP)


def _split_at_silence(
    spans: Sequence[tuple[int, int]], loud: NDArray[np.bool_], paused: Sequence[bool]
) -> list[tuple[int, int]]:
    """Return the spans, each cut at a long silence in it. The sound after the silence goes to the next word.

    The attention often finds a word after a pause too late. Then its first sounds lie in the span of the word before.
    Words that may have a pause in them (*paused*) are not cut.
    """
    apart = list(spans)
    for index, (first, last) in enumerate(apart):
        if paused[index]:
            continue
        step = first // _STEP
        loud_at = step + np.flatnonzero(loud[step : -(-last // _STEP)])
        pauses = np.flatnonzero(np.diff(loud_at) > _GAP)
        if not len(pauses) or pauses[0] + 1 < _CLICK:
            continue
        apart[index] = (first, (int(loud_at[pauses[0]]) + 1) * _STEP)
        if index + 1 < len(apart) and pauses[-1] == pauses[0]:
            following = apart[index + 1]
            apart[index + 1] = (min(following[0], int(loud_at[pauses[0] + 1]) * _STEP), following[1])
    return apart


def _extend_to_silence(last: int, loud: NDArray[np.bool_]) -> int:
    """Return *last*, moved to where the sound at that place stops, by _LAST_WORD at most."""
    step = last // _STEP
    after = loud[step : step + _LAST_WORD // _STEP]
    quiet = np.flatnonzero(~after)
    return max(last, (step + (int(quiet[0]) if len(quiet) else len(after))) * _STEP)
