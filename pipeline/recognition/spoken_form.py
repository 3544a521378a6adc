"""Brings words into the form in which they were spoken, to compare two hypotheses about the same audio.

A recogniser may write the same speech in many ways: "450,000", "$450,000", "four hundred and fifty thousand dollars" or
"4 5 0 0 0 0"; "S-M-I-T-H", "SMITH" or "S. M. I. T. H.". Here each becomes a row of units, the smallest parts that a
recogniser may write together or apart. A unit is one figure of a number, one letter of a spelled word, or one word
without case and punctuation. Number words become figures where the profile of the language has them, in others they
stay words. A word that does not say its language counts as English, whose number words are hardly words of others.
merging.py compares units, coverage.py asks how long they take.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import regex

from pipeline.audio import position
from pipeline.language_profiles import ENGLISH_FORMS, SpokenForms, columns, profile_of
from pipeline.words import Word

MAX_CACHED = 4096
"""Words whose parts are remembered: a live word is compared many times before it is final."""

FASTEST = position(0.12)
"""Nobody says a figure or a short word in less time."""

_WORD, _LETTER = position(0.4), position(0.09)  # the longest time of a word: a fixed part, and a part for each letter
_FIGURE = position(0.5)  # of a figure, a currency sign or a percent sign
_CAPITAL = position(0.4)  # of a letter that is spelled
_DOT = position(0.35)  # of the dot in "example.com"

_SIGNS = frozenset("$£€%&@+°")  # marks that are said as words
_ENGLISH = "en"
FIGURE_SOUNDS = frozenset(ENGLISH_FORMS.sounds.values())
"""The sounds of figures that are words, too."""

_TEN, _HUNDRED, _THOUSAND, _ANY = 10, 100, 1000, 10**15
_TENS_VALUES = range(20, 100, 10)

_LETTERS = r"\p{L}[\p{L}\p{M}\u200c\u200d]*"
_PIECE = regex.compile(
    rf"[0-9]+(?:,[0-9]{{3}})*(?:st|nd|rd|th)?(?![a-z])|[0-9]+|{_LETTERS}(?:['’]{_LETTERS})*|[$£€%&@+°]"  # noqa: RUF001
)
_CLASSES_OF_VOWELS = frozenset({0, 7, 9, *range(84, 133)})  # of Unicode: with nukta, virama, and what is Thai or Lao
_CODE = 3  # letters that are spelled if they stand next to figures
_SPELLED = re.compile(r"[A-Z]{1,6}")
_WWW = re.compile(r"\b[Ww]{3}\b")  # said as three letters
_SAID_DOT = re.compile(r"(?<=[^\W_]{2})[.](?=[^\W\d_]{2})")


class Unit(NamedTuple):
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
        """The sound_of() its text."""
        return sound_of(self.text)


def sound_of(text: str) -> str:
    """Return the same for texts of units that sound alike: "four" may be recognised as "for"."""
    return ENGLISH_FORMS.sounds.get(text, text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the text of one word, before number words are read."""

    text: str
    upto: int | None


def units_of(words: Sequence[Word]) -> list[Unit]:
    """Return the units of *words* in order. A word gives none if nothing in it is spoken, such as a lone dash."""
    spelled: list[tuple[_Part, int]] = []
    for language, group in groupby(enumerate(words), key=lambda pair: pair[1].language):
        forms = _forms(language)
        parts = [(part, number) for number, word in group for part in _parts(word.text, language)]
        spelled += parts if forms is None else _read_numbers(parts, forms)
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
    """Return the letters and figures of *text*, without case and punctuation, and without accents that stand apart.

    Vowel signs stay: of Hindi or Thai they are half of the letters.
    """
    return "".join(
        sign for sign in unicodedata.normalize("NFKC", text).casefold() if sign.isalnum() or _is_vowel_sign(sign)
    )


def _is_vowel_sign(sign: str) -> bool:
    """Return whether *sign* is a mark that is no accent: those of Latin, Hebrew and Arabic have other classes."""
    return unicodedata.category(sign) in {"Mn", "Mc"} and unicodedata.combining(sign) in _CLASSES_OF_VOWELS


@lru_cache(MAX_CACHED)
def longest_time(text: str) -> int:
    """Return the most samples in which the word *text* is said. Figures, signs, spelled letters and dots take long."""
    figures = sum(sign.isdecimal() or sign in _SIGNS for sign in text)
    capitals = sum(len(found[0]) for found in (_SPELLED if text.isupper() else _WWW).finditer(text))
    dots = len(_SAID_DOT.findall(text))
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)  # each is a syllable or more
    letters = len(text) + wide - figures - capitals - dots
    return _WORD + _LETTER * letters + _FIGURE * figures + _CAPITAL * capitals + _DOT * dots


def usual_time(text: str) -> float:
    """Return the seconds that *text* usually takes, fitted to synthetic phrases of nine voices."""
    units = units_of([Word(word, 0, 0, 0.0) for word in text.split()])
    return sum(0.31 if unit.is_figure else 0.16 + 0.03 * columns(unit.text) for unit in units)


@lru_cache(MAX_CACHED)
def may_pause(text: str) -> bool:
    """Return whether people pause within the word *text*, because it has several figures or spelled letters."""
    return sum(part.text.isdecimal() or len(part.text) == 1 for part in _parts(text, None)) > 1


@lru_cache(MAX_CACHED)
def is_number(text: str, language: str | None = None) -> bool:
    """Return whether the word *text* is a number or a part of one, with or without a currency."""
    forms = _forms(language)
    texts = {part.text for part in _parts(text, language)}
    known = {text for text in texts if text.isdecimal() or (forms and (text in forms.values or text in forms.scales))}
    return bool(known) and texts - known <= (_SIGNS if forms is None else set(forms.signs.values()))


@lru_cache(MAX_CACHED)
def may_go_on(text: str, language: str | None = None) -> bool:
    """Return whether a number may go on after the word *text*, as after "point"."""
    forms = _forms(language)
    return forms is not None and plain(text) in forms.goes_on


def _forms(language: str | None) -> SpokenForms | None:
    return profile_of(language or _ENGLISH).forms


@lru_cache(MAX_CACHED)
def _parts(text: str, language: str | None) -> tuple[_Part, ...]:
    """Return the figures, spelled letters, signs and words in the text of one word."""
    forms = _forms(language)
    folded = _with_plain_figures(unicodedata.normalize("NFKC", text))
    same = len(folded) == len(text)
    parts: list[_Part] = []
    for found in _PIECE.finditer(folded):
        piece, upto = found[0], found.end() if same else None
        if piece in _SIGNS:
            parts.append(_Part(piece if forms is None else forms.signs[piece], upto))
        elif piece[0].isdecimal():
            figures = [at for at, sign in enumerate(piece) if sign.isdecimal()]
            ends = [found.start() + at + 1 for at in figures]
            parts += [_Part(piece[at], end if same else None) for at, end in zip(figures, ends, strict=True)]
        elif _SPELLED.fullmatch(piece) or _WWW.fullmatch(piece) or _is_glued(folded, found.span()):
            parts += [_Part(sign.casefold(), None) for sign in piece[:-1]]
            parts.append(_Part(piece[-1].casefold(), upto))
        else:
            word = plain(piece)
            if forms is None or word not in forms.unsaid:
                parts.append(_Part(word if forms is None else forms.same.get(word, word), upto))
    return tuple(parts)


def _with_plain_figures(text: str) -> str:
    """Return *text* with the figures of any script, such as Arabic ones, as 0 to 9."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text)


def _is_glued(text: str, piece: tuple[int, int]) -> bool:
    """Return whether the letters of *piece* are a part of a code such as "gnz7379"."""
    start, end = piece
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return end - start <= _CODE and any(sign.isdecimal() for sign in around)


def _read_numbers(parts: Sequence[tuple[_Part, int]], forms: SpokenForms) -> Iterator[tuple[_Part, int]]:
    """Yield the parts with number words as figures, each with the index of its word."""
    at = 0
    while at < len(parts):
        text = parts[at][0].text
        if text not in forms.values and text not in forms.scales and text not in forms.zeros:  # almost all words
            yield parts[at]
            at += 1
            continue
        value, after = _zeros(parts, at, forms), at + 1
        if value is None:
            value, after = _number(parts, at, forms)
        if value is None:
            yield parts[at]
            at += 1
            continue
        yield from _spread_figures(value, parts[at:after], forms)
        at = after


def _spread_figures(value: str, parts: Sequence[tuple[_Part, int]], forms: SpokenForms) -> Iterator[tuple[_Part, int]]:
    """Yield the figures of *value*, each with the index of the word that says it.

    "Eighty" says 8 and 0, but only 8 before "four". "Hundred" says the zeros that no word after it replaces. So a word
    has the same figures wherever the number is cut off.
    """
    scale = unit = 1
    starts = [(0, parts[0][1])]
    for part, number in reversed(parts):
        size = forms.scales.get(part.text)
        if size is not None:
            unit = size * scale if size == _HUNDRED else size
            scale = scale if size == _HUNDRED else size
            starts.insert(1, (len(value) - len(str(unit)) + 1, number))
        elif part.text in forms.values:
            starts.insert(1, (len(value) - len(str(forms.values[part.text] * unit)), number))
    for place, figure in enumerate(value):
        yield _Part(figure, None), next(number for start, number in reversed(starts) if start <= place)


def _zeros(parts: Sequence[tuple[_Part, int]], at: int, forms: SpokenForms) -> str | None:
    """Return the zeros of a scale after figures, as in "8 million"; None for anything else."""
    scale = forms.scales.get(parts[at][0].text)
    return str(scale)[1:] if scale and at and parts[at - 1][0].text.isdecimal() else None


def _number(parts: Sequence[tuple[_Part, int]], at: int, forms: SpokenForms) -> tuple[str | None, int]:
    """Return the figures of the number in words that begins at *at*, and where it ends; None if none begins there."""
    text = parts[at][0].text
    before = at and parts[at - 1][0].text
    if text in forms.zeros and at + 1 < len(parts) and _is_figure(parts[at + 1][0].text, forms):
        return "0", at + 1
    if text in forms.zeros and before and _is_figure(before, forms):
        return "0", at + 1
    if text not in forms.values:
        return None, at
    total = group = 0
    room, last_scale = _ANY, _ANY  # what comes next must be below these
    here = at
    while here < len(parts):
        text = parts[here][0].text
        value, scale = forms.values.get(text), forms.scales.get(text, _ANY)
        if value is not None and (here == at or 0 < value < room):
            group += value
            room = _TEN if value in _TENS_VALUES else 0
        elif scale == _HUNDRED and 0 < group < _HUNDRED:
            group, room = group * _HUNDRED, _HUNDRED
        elif scale != _HUNDRED and group > 0 and scale < last_scale:
            last_scale = scale
            total, group, room = total + group * scale, 0, _THOUSAND
        elif not (text in forms.within and _goes_on(parts, here, forms)):
            break
        here += 1
    return str(total + group), here


def _goes_on(parts: Sequence[tuple[_Part, int]], at: int, forms: SpokenForms) -> bool:
    """Return whether the word "and" at this place is within a number, as in "a hundred and five"."""
    after = parts[at + 1][0].text if at + 1 < len(parts) else ""
    return parts[at - 1][0].text in forms.scales and after in forms.values


def _is_figure(text: str, forms: SpokenForms) -> bool:
    return text.isdecimal() or forms.values.get(text, _TEN) < _TEN
