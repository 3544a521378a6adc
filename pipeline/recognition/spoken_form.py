"""Brings words into the form in which they were spoken, to compare two hypotheses about the same audio.

A recogniser may write the same speech in many ways: "450,000", "$450,000", "four hundred and fifty thousand dollars" or
"4 5 0 0 0 0"; "S-M-I-T-H", "SMITH" or "S. M. I. T. H.". Here each becomes a row of units, the smallest parts that a
recogniser may write together or apart. A unit is one figure of a number, one letter of a spelled word, or one word
without case and punctuation. Only English number words become figures; in other languages they stay words. merging.py
compares units, coverage.py asks how long they take.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.audio import position
from pipeline.words import Word

MAX_CACHED = 4096
"""Words whose parts are remembered: a live word is compared many times before it is final."""

FASTEST = position(0.12)
"""Nobody says a figure or a short word in less time."""

_WORD, _LETTER = position(0.4), position(0.09)  # the longest time of a word: a fixed part, and a part for each letter
_FIGURE = position(0.5)  # of a figure, a currency sign or a percent sign
_CAPITAL = position(0.4)  # of a letter that is spelled
_DOT = position(0.35)  # of the dot in "example.com"

_SIGNS = {"$": "dollar", "£": "pound", "€": "euro", "%": "percent", "&": "and", "@": "at", "+": "plus", "°": "degree"}
_SAME = {
    "dollars": "dollar",
    "pounds": "pound",
    "euros": "euro",
    "cents": "cent",
    "degrees": "degree",
    "okay": "ok",
    "mister": "mr",
    "doctor": "dr",
}
_SOUNDS = {"4": "for", "2": "to", "too": "to", "8": "ate", "1": "won", "0": "oh", "o": "oh"}
FIGURE_SOUNDS = frozenset(_SOUNDS.values())
"""The sounds of figures that are words, too."""

_UNSAID = frozenset({"dot"})  # "silver dot com" is also written "silver.com"
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)  # fmt: skip
_VALUES = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 10 * tens for tens, word in enumerate(_TENS, start=2)},
    **{word: value for value, word in enumerate(_ORDINALS, start=1) if word not in ("first", "second")},
    **{f"{word[:-1]}ieth": 10 * tens for tens, word in enumerate(_TENS, start=2)},
}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}

_TEN, _HUNDRED, _THOUSAND, _ANY = 10, 100, 1000, 10**15
_TENS_VALUES = range(20, 100, 10)

_PIECE = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:st|nd|rd|th)?(?![a-z])|[0-9]+|[^\W\d_]+(?:['’][^\W\d_]+)*|[$£€%&@+°]")  # noqa: RUF001
_CODE = 3  # letters that are spelled if they stand next to figures
_SPELLED = re.compile(r"[A-Z]{1,6}")
_WWW = re.compile(r"\b[Ww]{3}\b")  # said as three letters
_SAID_DOT = re.compile(r"(?<=[^\W_]{2})[.](?=[^\W\d_]{2})")


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of speech. *start* and *end* are positions; if a word has several units they are guesses."""

    text: str
    word: int  # index of the word that it is part of
    start: int
    end: int
    upto: int | None  # where it ends in the text of the word; None where the text cannot be parted there

    @property
    def is_figure(self) -> bool:
        return self.text.isdecimal()

    @property
    def sound(self) -> str:
        """The same for words that sound alike: "four" may be recognised as "for"."""
        return _SOUNDS.get(self.text, self.text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the text of one word, before number words are read."""

    text: str
    upto: int | None


def units_of(words: Sequence[Word]) -> list[Unit]:
    """Return the units of *words* in order. A word gives none if nothing in it is spoken, such as a lone dash."""
    parts = [(part, number) for number, word in enumerate(words) for part in _parts(word.text)]
    spelled = list(_read_numbers(parts))
    counts = [0] * len(words)
    for _, number in spelled:
        counts[number] += 1
    units, seen = [], [0] * len(words)
    for part, number in spelled:
        word, at, of = words[number], seen[number], counts[number]
        seen[number] += 1
        length = word.end - word.start
        start, end = word.start + length * at // of, word.start + length * (at + 1) // of
        units.append(Unit(part.text, number, start, end, part.upto))
    return units


@lru_cache(MAX_CACHED)
def plain(text: str) -> str:
    """Return the letters and figures of *text*, without case and marks."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", text).casefold() if sign.isalnum())


def longest_time(text: str) -> int:
    """Return the most samples in which the word *text* is said. Figures, signs, spelled letters and dots take long."""
    figures = sum(sign.isdecimal() or sign in _SIGNS for sign in text)
    capitals = sum(len(found[0]) for found in (_SPELLED if text.isupper() else _WWW).finditer(text))
    dots = len(_SAID_DOT.findall(text))
    letters = len(text) - figures - capitals - dots
    return _WORD + _LETTER * letters + _FIGURE * figures + _CAPITAL * capitals + _DOT * dots


def usual_time(text: str) -> float:
    """Return the seconds that *text* usually takes, fitted to synthetic phrases of nine voices."""
    units = units_of([Word(word, 0, 0, 0.0) for word in text.split()])
    return sum(0.31 if unit.is_figure else 0.16 + 0.03 * len(unit.text) for unit in units)


def may_pause(text: str) -> bool:
    """Return whether people pause within the word *text*, because it has several figures or spelled letters."""
    return sum(part.text.isdecimal() or len(part.text) == 1 for part in _parts(text)) > 1


def is_number(text: str) -> bool:
    """Return whether the word *text* is a number or a part of one, with or without a currency."""
    texts = {part.text for part in _parts(text)}
    known = {text for text in texts if text.isdecimal() or text in _VALUES or text in _SCALES}
    return bool(known) and texts - known <= set(_SIGNS.values())


@lru_cache(MAX_CACHED)
def _parts(text: str) -> tuple[_Part, ...]:
    """Return the figures, spelled letters, signs and words in the text of one word."""
    folded = unicodedata.normalize("NFKC", text)
    same = len(folded) == len(text)
    parts: list[_Part] = []
    for found in _PIECE.finditer(folded):
        piece, upto = found[0], found.end() if same else None
        if piece in _SIGNS:
            parts.append(_Part(_SIGNS[piece], upto))
        elif piece[0].isdecimal():
            figures = [at for at, sign in enumerate(piece) if sign.isdecimal()]
            ends = [found.start() + at + 1 for at in figures]
            parts += [_Part(piece[at], end if same else None) for at, end in zip(figures, ends, strict=True)]
        elif _SPELLED.fullmatch(piece) or _WWW.fullmatch(piece) or _is_glued(folded, found.span()):
            parts += [_Part(sign.casefold(), None) for sign in piece[:-1]]
            parts.append(_Part(piece[-1].casefold(), upto))
        else:
            word = plain(piece)
            if word not in _UNSAID:
                parts.append(_Part(_SAME.get(word, word), upto))
    return tuple(parts)


def _is_glued(text: str, piece: tuple[int, int]) -> bool:
    """Return whether the letters of *piece* are a part of a code such as "gnz7379"."""
    start, end = piece
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return end - start <= _CODE and any(sign.isdecimal() for sign in around)


def _read_numbers(parts: Sequence[tuple[_Part, int]]) -> Iterator[tuple[_Part, int]]:
    """Yield the parts with number words as figures, each with the index of its word."""
    at = 0
    while at < len(parts):
        value, after = _zeros(parts, at), at + 1
        if value is None:
            value, after = _number(parts, at)
        if value is None:
            yield parts[at]
            at += 1
            continue
        yield from _spread_figures(value, parts[at:after])
        at = after


def _spread_figures(value: str, parts: Sequence[tuple[_Part, int]]) -> Iterator[tuple[_Part, int]]:
    """Yield the figures of *value*, each with the index of the word that says it.

    "Eighty" says 8 and 0, but only 8 before "four". "Hundred" says the zeros that no word after it replaces. So a word
    has the same figures wherever the number is cut off.
    """
    scale = unit = 1
    starts = [(0, parts[0][1])]
    for part, number in reversed(parts):
        size = _SCALES.get(part.text)
        if size is not None:
            unit = size * scale if part.text == "hundred" else size
            scale = scale if part.text == "hundred" else size
            starts.insert(1, (len(value) - len(str(unit)) + 1, number))
        elif part.text in _VALUES:
            starts.insert(1, (len(value) - len(str(_VALUES[part.text] * unit)), number))
    for place, figure in enumerate(value):
        yield _Part(figure, None), next(number for start, number in reversed(starts) if start <= place)


def _zeros(parts: Sequence[tuple[_Part, int]], at: int) -> str | None:
    """Return the zeros of a scale after figures, as in "8 million"; None for anything else."""
    scale = _SCALES.get(parts[at][0].text)
    return str(scale)[1:] if scale and at and parts[at - 1][0].text.isdecimal() else None


def _number(parts: Sequence[tuple[_Part, int]], at: int) -> tuple[str | None, int]:
    """Return the figures of the number in words that begins at *at*, and where it ends; None if none begins there."""
    text = parts[at][0].text
    before = at and parts[at - 1][0].text
    if text in ("oh", "o") and at + 1 < len(parts) and _is_figure(parts[at + 1][0].text):
        return "0", at + 1
    if text in ("oh", "o") and before and _is_figure(before):
        return "0", at + 1
    if text not in _VALUES:
        return None, at
    total = group = 0
    room, last_scale = _ANY, _ANY  # what comes next must be below these
    here = at
    while here < len(parts):
        text = parts[here][0].text
        value, scale = _VALUES.get(text), _SCALES.get(text, _ANY)
        if value is not None and (here == at or 0 < value < room):
            group += value
            room = _TEN if value in _TENS_VALUES else 0
        elif text == "hundred" and 0 < group < _HUNDRED:
            group, room = group * _HUNDRED, _HUNDRED
        elif text != "hundred" and group > 0 and scale < last_scale:
            last_scale = scale
            total, group, room = total + group * scale, 0, _THOUSAND
        elif not (text == "and" and _goes_on(parts, here)):
            break
        here += 1
    return str(total + group), here


def _goes_on(parts: Sequence[tuple[_Part, int]], at: int) -> bool:
    """Return whether the word "and" at this place is within a number, as in "a hundred and five"."""
    after = parts[at + 1][0].text if at + 1 < len(parts) else ""
    return parts[at - 1][0].text in _SCALES and after in _VALUES


def _is_figure(text: str) -> bool:
    return text.isdecimal() or _VALUES.get(text, _TEN) < _TEN
