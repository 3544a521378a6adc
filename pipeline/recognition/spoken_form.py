"""Compares words however they are written, and tells how long they may take. Pure."""

import re
import unicodedata
from functools import lru_cache

from pipeline.audio import position

_MAX_CACHED = 4096  # words that are remembered: a live word is compared many times before it is final
_WORD, _LETTER = position(0.4), position(0.09)  # the longest time of a word: a fixed part, and a part for each letter
_SLOW = position(0.5)  # the longest time of what is said as a word: a figure, a sign, a spelled letter, a dot
_SIGNS = frozenset("$£€%&@+°")  # marks that are said as words
_SAID_DOT = re.compile(r"(?<=[^\W_]{2})[.](?=[^\W\d_]{2})")  # as in "example.com"


@lru_cache(_MAX_CACHED)
def plain(text: str) -> str:
    """Return the letters and figures of *text*, without case, marks and accents that stand apart; else the marks.

    Vowel signs stay: of Hindi or Thai they are half of the letters.
    """
    whole = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in whole if sign.isalnum() or _is_vowel_sign(sign)) or whole


def _is_vowel_sign(sign: str) -> bool:
    """Return whether *sign* is a mark that is no accent, and so belongs to no class of accents."""
    return unicodedata.category(sign) in {"Mn", "Mc"} and not unicodedata.combining(sign)


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
