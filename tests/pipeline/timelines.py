"""Stores the parts of a file as a server does."""

from collections.abc import Sequence

from pipeline.timeline import Entry, entries_of, pack, unpack
from pipeline.transcription import Transcription
from pipeline.words import Chunk


def stored_parts(parts: Sequence[Chunk]) -> list[Chunk]:
    """Return *parts* as they come back from a timeline."""
    stored: list[Entry] = []
    for part in parts:
        place = Transcription.of(stored).place
        stored += entries_of(part, words=place.words, segments=place.segments, shown=True)
    return Transcription.of([unpack(pack(entry)) for entry in stored]).chunks()
