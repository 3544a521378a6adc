"""Cuts a transcript into sentences and paragraphs, by its marks, its pauses and its voices. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pipeline.audio import position, seconds
from pipeline.languages import SENTENCE_ENDS
from pipeline.words import Segment, Word, join_words, speaker_members, speaker_on

PAUSE = position(1.5)
"""A pause after a sentence that ends a paragraph."""

MANY_WORDS = 100
"""After this many words the next end of a sentence ends the paragraph."""

MOST_WORDS = 200
"""After this many words without an end of a sentence, the next segment begins a paragraph."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences of one voice. There is at least one, and a sentence has at least one word."""

    sentences: tuple[tuple[Word, ...], ...]
    channel: int | None
    voice: str | None = None  # as in Segment

    @property
    def speaker(self) -> str | None:
        return self.voice or speaker_on(self.channel)

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for sentence in self.sentences for word in sentence)


def paragraphs_of(segments: Sequence[Segment]) -> list[Paragraph]:
    """Return all words of *segments*, in order, as paragraphs."""
    found: list[Paragraph] = []
    sentences: list[tuple[Word, ...]] = []
    count = 0
    rows = list(_sentences(segments))
    for at, (sentence, speaking, is_last) in enumerate(rows):
        sentences.append(sentence)
        count += len(sentence)
        after = rows[at + 1] if at + 1 < len(rows) else None
        ended = sentence[-1].text.endswith(SENTENCE_ENDS)
        if (
            after is None
            or after[1] != speaking
            or (ended and (after[0][0].start - sentence[-1].end >= PAUSE or count >= MANY_WORDS))
            or (is_last and count >= MOST_WORDS)
        ):
            found.append(Paragraph(tuple(sentences), *speaking))
            sentences, count = [], 0
    return found


def paragraph_objects(segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return the paragraphs as the JSON file and records have them. Times are in seconds."""
    return [
        {
            "start": seconds(paragraph.words[0].start),
            "end": seconds(paragraph.words[-1].end),
            **speaker_members(paragraph.channel, paragraph.voice),
            "sentences": [
                {"text": join_words(words), "start": seconds(words[0].start), "end": seconds(words[-1].end)}
                for words in paragraph.sentences
            ],
        }
        for paragraph in paragraphs_of(segments)
    ]


_Speaking: TypeAlias = tuple[int | None, str | None]
"""The channel and the voice of a segment."""


def _sentences(segments: Sequence[Segment]) -> Iterator[tuple[tuple[Word, ...], _Speaking, bool]]:
    """Yield every sentence with its speaker, and whether it ends with its segment.

    A sentence continues in the next segment of the same voice, unless there is a long pause.
    """
    run: list[Word] = []
    for at, segment in enumerate(segments):
        after = segments[at + 1] if at + 1 < len(segments) else None
        for number, word in enumerate(segment.words):
            run.append(word)
            is_last = number + 1 == len(segment.words)
            breaks = is_last and (after is None or _speaker_of(after) != _speaker_of(segment) or len(run) >= MOST_WORDS)
            if word.text.endswith(SENTENCE_ENDS) or breaks:
                yield tuple(run), _speaker_of(segment), is_last
                run = []


def _speaker_of(segment: Segment) -> _Speaking:
    return segment.channel, segment.voice
