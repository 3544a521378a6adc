"""Searches an archive of transcripts: which words a text has, what a query asks for, and where it is said. Pure.

Accents and case make no difference, and marks are no part of words. Scripts without spaces are taken sign by sign, so a
query in them finds what follows each other, as a phrase does.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from pipeline.audio import seconds
from pipeline.languages import is_unspaced
from pipeline.words import Word, join_words

MOST_MATCHES = 5
"""The matches that are shown of one transcript."""

LINE_WORDS = 8
"""The words before and after a match that are shown with it."""

LONGEST_TERM = 64
"""The signs of a word by which it is found. Longer ones are noise."""

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_PHRASE = re.compile(r'"([^"]*)"')


def terms_of(text: str) -> list[str]:
    """Return the words of *text* in the form in which they are compared, in order."""
    if text.isascii():
        return [word[:LONGEST_TERM] for word in _ASCII_WORD.findall(text.lower())]
    folded = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(sign for sign in folded if not unicodedata.combining(sign) or is_unspaced(sign))
    terms: list[str] = []
    word = ""
    for sign in unicodedata.normalize("NFC", plain):
        if sign.isalnum() and not is_unspaced(sign):
            word += sign
            continue
        if word:
            terms.append(word[:LONGEST_TERM])
        word = ""
        if sign.isalnum():
            terms.append(sign)
    return [*terms, word[:LONGEST_TERM]] if word else terms


def index_terms(text: str) -> set[str]:
    """Return what *text* is found by: its words, and each two in a row, so that phrases are found fast."""
    terms = terms_of(text)
    return {*terms, *map(" ".join, pairwise(terms))}


@dataclass(frozen=True, slots=True)
class Query:
    """What a person looks for: every word must be said, and the words of each phrase one after the other."""

    phrases: tuple[tuple[str, ...], ...]  # also single words

    @classmethod
    def of(cls, text: str) -> "Query":
        """Read a query: words, and phrases in quotes."""
        phrases = [tuple(terms_of(phrase)) for phrase in _PHRASE.findall(text)]
        phrases += [tuple(terms_of(word)) for word in _PHRASE.sub(" ", text).replace('"', " ").split()]
        return cls(tuple(phrase for phrase in dict.fromkeys(phrases) if phrase))

    def terms(self) -> set[str]:
        """Return index terms that every text has in which the phrases are."""
        return {term for phrase in self.phrases for term in (map(" ".join, pairwise(phrase)) if phrase[1:] else phrase)}

    def fits(self, text: str) -> bool:
        """Return whether every phrase is in *text*."""
        terms = terms_of(text)
        return all(_places(terms, phrase) for phrase in self.phrases)

    def matches(self, words: Iterable[Word]) -> list[dict[str, Any]]:
        """Return the first places of the phrases: seconds, the matched text, and the line around it.

        No more of *words* is read than that takes.
        """
        rest, seen = iter(words), list[Word]()
        terms, owners = list[str](), list[int]()
        places = list[tuple[int, int]]()
        for number, word in enumerate(rest):
            seen.append(word)
            for term in terms_of(word.text):
                terms.append(term)
                owners.append(number)
                ends = (phrase for phrase in self.phrases if phrase[-1] == term)
                found = {len(phrase) for phrase in ends if tuple(terms[-len(phrase) :]) == phrase}
                places += [(owners[-size], number) for size in sorted(found)]
            if len(places) >= MOST_MATCHES:
                break
        seen += islice(rest, LINE_WORDS)
        return [
            {
                "start": seconds(seen[first].start),
                "end": seconds(seen[last].end),
                "before": join_words(seen[max(0, first - LINE_WORDS) : first]),
                "text": join_words(seen[first : last + 1]),
                "after": join_words(seen[last + 1 : last + 1 + LINE_WORDS]),
            }
            for first, last in dict.fromkeys(places[:MOST_MATCHES])
        ]


def _places(terms: Sequence[str], phrase: tuple[str, ...]) -> list[int]:
    """Return where *phrase* begins in *terms*."""
    first = phrase[0]
    return [at for at, term in enumerate(terms) if term == first and tuple(terms[at : at + len(phrase)]) == phrase]
