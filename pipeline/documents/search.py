"""Finds terms in a transcript, whatever their case, marks and spelling of numbers. Pure."""

from collections.abc import Sequence
from typing import Any

from pipeline.audio import seconds
from pipeline.recognition.spoken_form import units_of
from pipeline.words import Segment, Word, join_words


def search_objects(segments: Sequence[Segment], terms: Sequence[str]) -> list[dict[str, Any]]:
    """Return where each of *terms* was said, in the form of the JSON file and of records. Times are in seconds.

    All words of a term must be of one voice. They may lie in two segments.
    """
    voices = dict.fromkeys(segment.channel for segment in segments)
    said = [[word for segment in segments if segment.channel == voice for word in segment.words] for voice in voices]
    rows = [_Spoken(words) for words in said]
    return [{"query": term, "hits": [hit for row in rows for hit in row.hits(term)]} for term in terms]


class _Spoken:
    """The words of one voice, with the places of each unit: a recording of many hours may have many terms."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        self._units = units_of(words)
        self._places: dict[str, list[int]] = {}
        for place, unit in enumerate(self._units):
            self._places.setdefault(unit.text, []).append(place)

    def hits(self, term: str) -> list[dict[str, Any]]:
        """Return the places of *term*, which do not overlap."""
        wanted = [unit.text for unit in units_of([Word(part, 0, 0, 1.0) for part in term.split()])]
        found: list[dict[str, Any]] = []
        reached = 0
        for at in self._places.get(wanted[0], ()) if wanted else ():
            stop = at + len(wanted)
            if at >= reached and [unit.text for unit in self._units[at:stop]] == wanted:
                found.append(_hit(self._words[self._units[at].word : self._units[stop - 1].word + 1]))
                reached = stop
        return found


def _hit(words: Sequence[Word]) -> dict[str, Any]:
    return {
        "start": seconds(words[0].start),
        "end": seconds(words[-1].end),
        "confidence": round(sum(word.probability for word in words) / len(words), 4),
        "snippet": join_words(words),
    }
