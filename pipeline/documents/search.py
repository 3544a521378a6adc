"""Finds terms in a transcript, whatever their case, marks and spelling of numbers. Pure."""

from collections.abc import Sequence
from typing import Any

from pipeline.audio import seconds
from pipeline.recognition.spoken_form import Unit, units_of
from pipeline.words import Segment, Word, written


def search_objects(segments: Sequence[Segment], terms: Sequence[str]) -> list[dict[str, Any]]:
    """Return where each of *terms* was said, as the JSON file and records have it. Times are in seconds.

    A term is found in the words of one voice, also over the end of a segment.
    """
    voices = dict.fromkeys(segment.channel for segment in segments)
    said = [[word for segment in segments if segment.channel == voice for word in segment.words] for voice in voices]
    rows = [(words, units_of(words)) for words in said]
    return [{"query": term, "hits": [hit for row in rows for hit in _hits(*row, term)]} for term in terms]


def _hits(words: Sequence[Word], units: Sequence[Unit], term: str) -> list[dict[str, Any]]:
    wanted = [unit.text for unit in units_of([Word(part, 0, 0, 1.0) for part in term.split()])]
    texts = [unit.text for unit in units]
    hits = []
    at = _next(texts, wanted, 0) if wanted else None
    while at is not None:
        stop = at + len(wanted)
        found = words[units[at].word : units[stop - 1].word + 1]
        hits.append(
            {
                "start": seconds(found[0].start),
                "end": seconds(found[-1].end),
                "confidence": round(sum(word.probability for word in found) / len(found), 4),
                "snippet": written(found),
            }
        )
        at = _next(texts, wanted, stop)
    return hits


def _next(texts: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    """Return the next place from *start* on where *wanted* stands in *texts*; None if there is none."""
    return next(
        (at for at in range(start, len(texts) - len(wanted) + 1) if list(texts[at : at + len(wanted)]) == list(wanted)),
        None,
    )
