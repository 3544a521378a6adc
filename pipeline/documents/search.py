"""Finds terms in a transcript, whatever their case and marks. Pure.

In scripts without spaces a term is found wherever its signs follow each other, however the recogniser cut the words.

A word that the text stage has replaced is found by its new text and by the recognised one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from pipeline.audio import seconds
from pipeline.text.wording import units_of
from pipeline.words import Segment, Word, join_words

MAX_HITS = 1000
"""The most hits of one term. A hundred terms may each fit every word of hours of speech."""


def search_objects(segments: Sequence[Segment], terms: Sequence[str]) -> list[dict[str, Any]]:
    """Return where each of *terms* was said, in the form of the JSON file and of records. Times are in seconds.

    Of a term the first MAX_HITS are returned. All words of a hit are of one channel. They may lie in two segments.
    """
    numbers = dict.fromkeys(segment.channel for segment in segments)
    channels = [
        _Channel([word for one in segments if one.channel == number for word in one.words]) for number in numbers
    ]
    return [
        {"query": term, "hits": list(islice((hit for channel in channels for hit in channel.hits(term)), MAX_HITS))}
        for term in terms
    ]


class _Channel:
    """The words of one channel, as they are written and as they were recognised."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        self._rows = [_Row(words)]
        if any(word.heard for word in words):
            self._rows.append(_Row([replace(word, text=word.heard or word.text) for word in words]))

    def hits(self, term: str) -> Iterator[dict[str, Any]]:
        """Yield the places of *term*, which do not overlap."""
        wanted = [text for text, _ in _comparable([Word(part, 0, 0, 1.0) for part in term.split()])]
        reached = 0
        for start, stop in sorted({place for row in self._rows for place in row.places(wanted)}):
            if start >= reached:
                yield _hit(self._words[start:stop])
                reached = stop


class _Row:
    """The units of words, with the places of each: a recording of many hours may have many terms."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._units = list(_comparable(words))
        self._places: dict[str, list[int]] = {}
        for place, (text, _) in enumerate(self._units):
            self._places.setdefault(text, []).append(place)

    def places(self, wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield (first word, word after the last) of each place with the units *wanted*. No places share a unit."""
        reached = 0
        for at in self._places.get(wanted[0], ()) if wanted else ():
            stop = at + len(wanted)
            if at >= reached and [text for text, _ in self._units[at:stop]] == wanted:
                yield self._units[at][1], self._units[stop - 1][1] + 1
                reached = stop


def _comparable(words: Sequence[Word]) -> Iterator[tuple[str, int]]:
    """Yield the units of *words*, each with the index of its word."""
    for number, word in enumerate(words):
        yield from ((unit.text, number) for unit in units_of(word.text))


def _hit(words: Sequence[Word]) -> dict[str, Any]:
    return {
        "start": seconds(words[0].start),
        "end": seconds(words[-1].end),
        "confidence": round(sum(word.probability for word in words) / len(words), 4),
        "snippet": join_words(words),
    }
