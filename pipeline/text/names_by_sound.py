"""Writes names in place of words that sound like them. Pure.

Names and spoken words are compared as strings of sounds. In English these are the consonants of Metaphone; consonants
that recognisers confuse, such as b and p, count as the same. In other languages they are the letters. Several words may
be one name: "cooper netties" is Kubernetes.

Words of everyday language are recognised well, so they are left alone if only their sound is that of a name: all known
words alone, and the commonest also beside an unknown one. The lists of words in the folder words_by_frequency come from
wordfreq by Robyn Speer (https://github.com/rspeer/wordfreq), whose data is licensed under CC BY-SA 4.0;
`scripts/common_words.py` takes them.

In live streams, words that may be the beginning of a name are held until the rest has come. Their letters must resemble
the name too. By sounds alone nearly every short word begins some name, as "the" begins Terraform.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from jellyfish import levenshtein_distance, metaphone

from pipeline.text.figures import PAUSE, bare
from pipeline.text.phrase_replacement import as_one
from pipeline.words import Word

ENGLISH = "en"
FOLDER = Path(__file__).parent / "words_by_frequency"
LIKE = {"bs": "hr", "sr": "hr", "nn": "no", "gl": "pt"}  # languages without a list, and the nearest that has one
COMMONEST = 3000
MORE_WORDS = 2  # that may be recognised in place of a name, beyond the number of its own words
MAX_WORDS = 6  # compared with a name
MAX_LETTERS = 60  # of a name, and of words that are compared with it
MAX_CACHED = 4096
SOUND_ERRORS, LETTER_ERRORS = 0.2, 0.5
"""The share of sounds that may differ, and the share of letters."""

KNOWN_ERRORS, COMMON_ERRORS = 0.12, 0.25
"""The share of letters that may differ if all words are known, and if one of them is very common."""

NAMES_FROM = 6000  # the place from which on a known word with a capital counts as a name: "Korean" is earlier
SHORT, SHORT_ERRORS = 4, 0.34  # letters of a short name, of which fewer may differ
ABBREVIATION = 4  # the most letters of one, which is no misheard name
LEAST_SOUNDS = 2
BEGUN_ERRORS = 0.4
"""The fewest sounds that may begin a name, and the share of their letters after the first that may differ."""

_ALIKE_LETTERS = str.maketrans({"b": "p", "d": "t", "v": "f", "z": "s", "g": "k", "c": "k", "q": "k", "m": "n"})
_ALIKE = str.maketrans({"B": "P", "D": "T", "V": "F", "Z": "S", "G": "K", "J": "X", "0": "T", "M": "N"})
_SENTENCE_ENDS = (".", "?", "!", "…")
_OWN = re.compile(r"['’]s$")  # noqa: RUF001  both marks are written
_VOWELS = ("A", "E", "I", "O", "U")


@dataclass(frozen=True, slots=True)
class _Name:
    text: str  # as it is to be written
    letters: str
    sounds: str
    words: int
    beginnings: frozenset[str] = frozenset()  # letters of its first word, of its first two, ...


@dataclass(frozen=True, slots=True)
class _Match:
    errors: float
    length: int  # in words
    name: _Name


class NameSpeller:
    """Writes *names* in place of words that sound like them in *language*. If several names fit, the closest wins."""

    def __init__(self, names: Sequence[str], language: str | None) -> None:
        self._english = language in (None, ENGLISH)
        self._ranks = ranks_of(language or ENGLISH) if names else {}
        self._by_sound: Mapping[str, list[_Name]] = defaultdict(list)
        self._longest = 0
        for text in names:
            name = self._name(text)
            if name.sounds and len(name.letters) <= MAX_LETTERS:
                self._by_sound[name.sounds[0]].append(name)
                self._longest = max(self._longest, min(MAX_WORDS, name.words + MORE_WORDS))
        self._matches: dict[tuple[str, ...], _Match | None] = {}

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may begin a name that is not complete; len(words) if none may."""
        for at in range(max(0, len(words) - self._longest + 1), len(words)):
            if _are_near(words[at:]) and self._begins(tuple(_core(word) for word in words[at:])):
                return at
        return len(words)

    def apply(self, words: Sequence[Word], before: str = ".") -> list[Word]:
        """Return *words*, which come after the word *before*, with names in place of words that sound like them.

        A name is one word and keeps the punctuation.
        """
        said = [
            replace(word, text=word.text.lower()) if not last or last.endswith(_SENTENCE_ENDS) else word
            for word, last in zip(words, [before, *(word.text for word in words)], strict=False)
        ]  # the capital at the beginning of a sentence makes no name
        written: list[Word] = []
        at = 0
        while at < len(words):
            length, name = self._best(said, at)
            if name is None or " ".join(map(_core, words[at : at + length])) == name.text:
                written += words[at : at + length]
            else:
                written.append(as_one(words[at : at + length], name.text + _own(words[at + length - 1])))
            at += length
        return written

    def _best(self, words: Sequence[Word], at: int) -> tuple[int, _Name | None]:
        """Return the number of words from *at* on that are a name, and the name; (1, None) if there is none.

        A closer match that begins later wins.
        """
        match = self._match(words, at)
        if match is None:
            return 1, None
        length = match.length
        within = (self._match(words[: at + length], later) for later in range(at + 1, at + length))
        if any(other is not None and other.errors < match.errors for other in within):
            return 1, None
        return length, match.name

    def _match(self, words: Sequence[Word], at: int) -> _Match | None:
        """Return the closest match that begins at *at*; of equally close ones the longest."""
        best: _Match | None = None
        for length in range(1, min(self._longest, len(words) - at) + 1):
            some = words[at : at + length]
            if not _are_near(some):
                break
            match = self._best_match(tuple(map(_core, some)))
            if match is not None and (best is None or match.errors <= best.errors):
                best = match
        return best

    def _best_match(self, parts: tuple[str, ...]) -> _Match | None:
        if parts not in self._matches:
            if len(self._matches) >= MAX_CACHED:
                self._matches.clear()
            self._matches[parts] = self._closest(parts)
        return self._matches[parts]

    def _closest(self, parts: tuple[str, ...]) -> _Match | None:
        if not all(self._begins(parts[:count]) for count in range(1, len(parts))):
            return None
        candidate = self._name(" ".join(parts))
        fit = [
            _Match(errors, len(parts), name)
            for name in self._near(candidate)
            if (errors := _errors(candidate, name)) is not None and self._may_be(parts, candidate, name)
        ]
        return min(fit, key=lambda match: match.errors) if fit else None

    def _may_be(self, parts: Sequence[str], candidate: _Name, name: _Name) -> bool:
        """Return whether words are rare enough to be a misheard name, or have nearly its letters."""
        ranks = [self._rank(piece) for part in parts for piece in part.split("-")]
        known, commonest = None not in ranks, any(rank is not None and rank < COMMONEST for rank in ranks)
        if not (known or commonest) or (candidate.letters == name.letters and not (commonest and len(parts) == 1)):
            return True
        return len(parts) > 1 and _share(candidate.letters, name.letters) <= (KNOWN_ERRORS if known else COMMON_ERRORS)

    def _rank(self, text: str) -> int | None:
        """Return the place of a word among those of the language; None if it is unknown or, by its capital, a name."""
        if text.isdecimal() or (text.isupper() and len(text) <= ABBREVIATION):
            return 0
        rank = self._ranks.get(_everyday(text))
        return None if rank is None or (rank >= NAMES_FROM and text[0].isupper()) else rank

    def _begins(self, parts: tuple[str, ...]) -> bool:
        """Return whether these words may be followed by others that complete a name."""
        candidate = self._name(" ".join(parts))
        return any(candidate.letters in name.beginnings or _begins(candidate, name) for name in self._near(candidate))

    def _near(self, candidate: _Name) -> Sequence[_Name]:
        return self._by_sound.get(candidate.sounds[:1], ())

    def _name(self, text: str) -> _Name:
        parts = text.split()
        beginnings = frozenset(_letters("".join(parts[:count])) for count in range(1, len(parts)))
        return _Name(text, _letters(text), _sounds(text) if self._english else _letters(text), len(parts), beginnings)


@lru_cache(8)
def ranks_of(language: str) -> Mapping[str, int]:
    """Return the common words of *language*, in lower case, by place: 0 is the commonest; {} if none are known."""
    path = FOLDER / f"{LIKE.get(language, language)}.txt"
    if not path.is_file():
        return {}
    return {word: place for place, word in enumerate(path.read_text(encoding="utf-8").split())}


def _begins(candidate: _Name, name: _Name) -> bool:
    """Return whether *candidate* may be the beginning of *name*."""
    return (
        candidate.words < min(MAX_WORDS, name.words + MORE_WORDS)
        and LEAST_SOUNDS <= len(candidate.sounds) < len(name.sounds)
        and _differ(candidate.sounds, name.sounds[: len(candidate.sounds)]) <= SOUND_ERRORS * len(candidate.sounds)
        and _begin_alike(candidate.letters, name.letters)
    )


def _errors(candidate: _Name, name: _Name) -> float | None:
    """Return how much of the sounds and letters differs, or None if that is too much for one name."""
    if len(candidate.letters) > MAX_LETTERS or candidate.words > name.words + MORE_WORDS:
        return None
    sounds, letters = _share(candidate.sounds, name.sounds), _share(candidate.letters, name.letters)
    most = SHORT_ERRORS if len(name.letters) <= SHORT else LETTER_ERRORS
    return sounds + letters if sounds <= SOUND_ERRORS and letters <= most else None


def _begin_alike(letters: str, name: str) -> bool:
    """Return whether *name* begins with about these *letters*."""
    count = len(letters)
    one, other = letters.translate(_ALIKE_LETTERS), name.translate(_ALIKE_LETTERS)
    errors = min(_differ(one, other[:length]) for length in (count - 1, count, count + 1))
    return errors <= BEGUN_ERRORS * (count - 1)


def _share(one: str, other: str) -> float:
    """Return the share of signs in which two texts differ."""
    return _differ(one, other) / max(len(one), len(other))


@lru_cache(MAX_CACHED)
def _differ(one: str, other: str) -> int:
    return int(levenshtein_distance(one, other))


def _are_near(words: Sequence[Word]) -> bool:
    """Return whether words may be one name: there is no pause or mark in them, and none was replaced."""
    return all(word.heard is None for word in words) and all(
        after.start - before.end <= PAUSE and before.text[-1].isalnum() for before, after in pairwise(words)
    )


def _core(word: Word) -> str:
    return _OWN.sub("", word.text.strip('.,?!;:"()[]'))


def _everyday(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold().replace("’", "'"))  # noqa: RUF001  an apostrophe


def _own(word: Word) -> str:
    """Return the 's at the end of a word, which the name keeps; "" if there is none."""
    match = _OWN.search(bare(word.text))
    return match[0] if match else ""


@lru_cache(MAX_CACHED)
def _letters(text: str) -> str:
    """Return the letters and figures of a text, in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in plain if sign.isalnum())


@lru_cache(MAX_CACHED)
def _sounds(text: str) -> str:
    """Return the consonants of an English text as they sound, with "A" for a vowel at its beginning."""
    codes = [str(metaphone(_letters(part))).translate(_ALIKE) for part in text.split()]
    vowel = "A" if codes and codes[0].startswith(_VOWELS) else ""
    return vowel + "".join(code.lstrip("".join(_VOWELS)) for code in codes)
