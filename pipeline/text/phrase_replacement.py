"""Replaces phrases by those that users want. Pure.

Words are compared by units: letters and figures without case, marks and accents that stand apart, so that composed and
decomposed characters are the same. A sign such as % is a unit of its own; + and # belong to the letters before them. In
scripts without spaces every character is a unit, so a phrase is found however the recogniser cut the words.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pipeline.languages import plain
from pipeline.words import Word, join_words

MAX_CACHED = 4096

_EDGES = re.compile(r"^(\W*)((?:.*\w)?)(\W*)$", re.DOTALL)
_SENTENCE_END = re.compile(r"""(?<![.?!])([.?!。？！])["'”’)]*$""")  # noqa: RUF001  the marks of Chinese too
_MARKS = ".,?!;:。，、？！"  # noqa: RUF001  the marks of Chinese too
_SIGNS = "%‰&@$€£¥₹°=*/<>+#"
_UNIT = re.compile(rf"[\w'’\u0300-\u1dff]+[+#]*|[{_SIGNS}]")  # noqa: RUF001  an apostrophe
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")  # scripts without spaces
_NEXT_TO_NUMBERS = frozenset("%‰$€£¥₹°")  # signs that are written without a space, and no part of a word


@dataclass(frozen=True, slots=True)
class Unit:
    """What is compared of a word, and where it stands in the composed text of the word."""

    text: str
    start: int
    stop: int

    @property
    def is_free(self) -> bool:
        """Whether a phrase may begin or end beside it within a word."""
        return self.text in _NEXT_TO_NUMBERS or bool(_UNSPACED.match(self.text))


@lru_cache(MAX_CACHED)
def units_of(text: str) -> tuple[Unit, ...]:
    """Return the units of a word or phrase, in order; none for marks alone."""
    found: list[Unit] = []
    for match in _UNIT.finditer(unicodedata.normalize("NFC", text)):
        part = match[0]
        if _UNSPACED.search(part):
            signs = ((plain(sign), match.start() + at) for at, sign in enumerate(part))
            found += [
                Unit(sign, at, at + 1) for sign, at in signs if any(map(str.isalnum, sign)) or _UNSPACED.match(sign)
            ]
        elif part[0] in _SIGNS:
            found.append(Unit(plain(part), match.start(), match.end()))
        elif any(map(str.isalnum, part)):
            letters = part.rstrip("+#")
            found.append(Unit(plain(letters) + part[len(letters) :], match.start(), match.end()))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """A unit of one of several words."""

    unit: Unit
    word: int


@dataclass(frozen=True, slots=True)
class _Match:
    """The places *first* to *last* (inclusive) of a phrase, and what is written for it."""

    first: _Place
    last: _Place
    wanted: str


class Replacer:
    """Writes the wanted text for whole words, whatever their case. The longest phrase wins."""

    def __init__(self, replacements: Sequence[str]) -> None:
        """*replacements* have the form "recognised:wanted". Of several for the same phrase the first one counts."""
        pairs = [one.partition(":") for one in reversed(replacements)]
        self._replacements: Mapping[tuple[str, ...], str] = {
            tuple(unit.text for part in phrase.split() for unit in units_of(part)): wanted
            for phrase, _, wanted in pairs
        }
        self._longest = max(map(len, self._replacements), default=0)
        self._beginnings = {phrase[:count] for phrase in self._replacements for count in range(1, len(phrase))}

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may begin a phrase that is not complete; len(words) if none may."""
        places = self._last_places(words)
        for at, place in enumerate(places):
            if tuple(one.unit.text for one in places[at:]) in self._beginnings and self._may_begin(places, at):
                return place.word
        return len(words)

    def ends(self, words: Sequence[Word]) -> bool:
        """Return whether the last of *words* ends a phrase."""
        places = self._last_places(words)
        return any(tuple(one.unit.text for one in places[at:]) in self._replacements for at in range(len(places)))

    def apply(self, words: Sequence[Word], before: str) -> list[Word]:
        """Return *words*, which come after the word *before*, with the wanted text.

        The words of a phrase become one word with the same time and marks. If nothing is left of them, only a mark that
        ends a sentence stays.
        """
        written: list[Word] = []
        at = 0
        for matches in _by_words(self._matches(_places(words))):
            first, stop = matches[0].first.word, matches[-1].last.word + 1
            written += words[at:first]
            some = words[first:stop]
            text = _with_wanted([unicodedata.normalize("NFC", word.text) for word in some], matches, first)
            if any(one.wanted for one in matches) or units_of(text):
                written.append(_joined(some, text))
            else:
                end = _SENTENCE_END.search(some[-1].text)
                last = written[-1].text if written else before
                if end is not None and last and last[-1] not in _MARKS:
                    written.append(replace(_joined(some, end[1]), spaced=False))
            at = stop
        return [*written, *words[at:]]

    def _last_places(self, words: Sequence[Word]) -> list[_Place]:
        """Return the places in the last words that a phrase may take, and one before them."""
        count, first = 0, len(words)
        while first > 0 and count < self._longest:
            first -= 1
            count += len(units_of(words[first].text))
        return [replace(place, word=place.word + first) for place in _places(words[first:])]

    def _matches(self, places: Sequence[_Place]) -> list[_Match]:
        found: list[_Match] = []
        at = 0
        while at < len(places):
            length = next((count for count in range(self._longest, 0, -1) if self._fits(places, at, at + count)), 0)
            if length:
                phrase = tuple(place.unit.text for place in places[at : at + length])
                found.append(_Match(places[at], places[at + length - 1], self._replacements[phrase]))
            at += length or 1
        return found

    def _fits(self, places: Sequence[_Place], start: int, stop: int) -> bool:
        if stop > len(places) or tuple(place.unit.text for place in places[start:stop]) not in self._replacements:
            return False
        ends = stop == len(places) or _are_apart(places[stop - 1], places[stop])
        return ends and self._may_begin(places, start)

    def _may_begin(self, places: Sequence[_Place], at: int) -> bool:
        return at == 0 or _are_apart(places[at - 1], places[at])


def _places(words: Sequence[Word]) -> list[_Place]:
    return [_Place(unit, number) for number, word in enumerate(words) for unit in units_of(word.text)]


def _are_apart(one: _Place, other: _Place) -> bool:
    """Return whether a phrase may end between two units."""
    return one.word != other.word or one.unit.is_free or other.unit.is_free


def _by_words(matches: Sequence[_Match]) -> list[list[_Match]]:
    """Return *matches* in groups, of which no two have a word in common."""
    groups: list[list[_Match]] = []
    for match in matches:
        if groups and groups[-1][-1].last.word == match.first.word:
            groups[-1].append(match)
        else:
            groups.append([match])
    return groups


def _with_wanted(texts: Sequence[str], matches: Sequence[_Match], first: int) -> str:
    """Return *texts*, those of the words from number *first* on, with what is written for the *matches* in them."""
    written, at, number = "", 0, 0
    for match in matches:
        written += texts[number][at : match.first.unit.start]
        written += _spaced(written, match.wanted)
        number, at = match.last.word - first, match.last.unit.stop
        if match.wanted and match.wanted[-1].isalnum() and texts[number][at : at + 1].isalnum():
            written += "" if _UNSPACED.search(match.wanted[-1] + texts[number][at]) else " "
    return written + texts[number][at:]


def _spaced(before: str, wanted: str) -> str:
    """Return *wanted*, with a space before it if it would be one word with what stands *before* it: "50 percent"."""
    joins = before[-1:].isalnum() and wanted[:1].isalnum() and not _UNSPACED.search(before[-1] + wanted[0])
    return f" {wanted}" if joins else wanted


def as_one(words: Sequence[Word], text: str) -> Word:
    """Return *words* as one word with this text, their time and the marks around them. *heard* has their own text."""
    first, last = _EDGES.match(words[0].text), _EDGES.match(words[-1].text)
    assert first is not None
    assert last is not None
    return _joined(words, f"{first[1]}{text}{last[3]}")


def _joined(words: Sequence[Word], text: str) -> Word:
    return replace(
        words[0],
        text=text,
        end=words[-1].end,
        probability=min(word.probability for word in words),
        heard=join_words([replace(word, text=word.heard or word.text) for word in words]),
    )
