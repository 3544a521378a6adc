"""Passes the events of a live stream, or the segments of a file, through the text stage. Pure.

pipeline/live_stream.py and pipeline/batch.py pass on its result only. So no other part sees a redacted word.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pipeline.events import (
    Event,
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    TurnEnded,
    Warned,
    WordsCommitted,
)
from pipeline.text.stage import NUMBER_WORDS_UNKNOWN, Placed, TextStage
from pipeline.words import Segment, Word


class TextRewriter:
    """Turns events into those that readers may see. A segment is closed when none of its words is held."""

    def __init__(self, stage: TextStage, *, one_language: bool = False) -> None:
        """*one_language*: all text is in the language of the *stage*, whatever is spoken, as in a translation."""
        self.stage = stage
        self._one_language = one_language
        self._closing: deque[SegmentClosed] = deque()
        self._words: dict[int, list[Word]] = {}  # by segment, those that were committed
        self._index = 0
        self._shown = False  # whether the last partial had words
        self._warned = 0  # how many warnings were given

    def rewrite(self, events: Iterable[Event], *, decided: int, language: str | None = None) -> list[Event]:
        """Return the events that readers may see now that *events* have come.

        All words before the position *decided* have come. *language* is the known or guessed language of the words.
        """
        rewritten = list(self._emit(self._change_language(language)))
        rewritten += [shown for event in events for shown in self._take(event)]
        return [*rewritten, *self._emit(self.stage.reach(decided)), *self._warn()]

    def flush(self) -> list[Event]:
        """Return the held events at the end of the stream."""
        return list(self._emit(self.stage.release()))

    def _take(self, event: Event) -> Iterator[Event]:
        match event:
            case WordsCommitted():
                decided: list[Placed] = []
                for word in event.words:
                    decided += [*self._change_language(word.language), *self.stage.add(word, event.segment)]
                yield from self._emit(decided)
            case SegmentClosed():
                self._closing.append(event)
                yield from self._emit(self.stage.end_segment())
            case TurnEnded() | Finalized():
                yield from self._emit(self.stage.flush())
                yield event
            case Partial():
                words = tuple(self.stage.preview(event.words))
                if words or self._shown:
                    self._shown = bool(words)
                    yield replace(event, words=words)
            case LanguageDetected():
                yield from self._emit(self._change_language(event.language))
                yield event
            case _:
                yield event

    def _warn(self) -> list[Event]:
        """Return a warning for each new language some of whose words are not known."""
        unknown = list(self.stage.unknown_words)[self._warned :]
        self._warned += len(unknown)
        return [Warned(code, _warning(code, language)) for code, language in unknown]

    def _change_language(self, language: str | None) -> Sequence[Placed]:
        """Note the language of the words that follow, if it is known. Return what is decided because of it."""
        return () if language is None or self._one_language else self.stage.change_language(language)

    def _emit(self, decided: Iterable[Placed]) -> Iterator[Event]:
        """Yield the decided words by segment, and the end of each segment that is complete."""
        run: list[Word] = []
        current: int | None = None
        for word, segment in decided:
            if segment != current:
                yield from self._commit(run, current)
                yield from self._close(before=segment)
                run, current = [], segment
            run.append(word)
        yield from self._commit(run, current)
        yield from self._close()

    def _commit(self, words: list[Word], segment: int | None) -> Iterator[Event]:
        if words and segment is not None:
            yield WordsCommitted(tuple(words), self._index, segment)
            self._index += len(words)
            self._words.setdefault(segment, []).extend(words)
            self._shown = False

    def _close(self, *, before: int | None = None) -> Iterator[Event]:
        """Yield the ends of the segments before number *before*; with None those of segments without held words."""
        while self._closing:
            first = self._closing[0]
            if first.id >= before if before is not None else self.stage.holds(first.id):
                return
            self._closing.popleft()
            words = self._words.pop(first.id, None)
            if words:
                yield replace(first, segment=replace(first.segment, words=tuple(words)))


def _warning(code: str, language: str) -> str:
    """Return the text of a warning about words that are not known in *language*."""
    if code == NUMBER_WORDS_UNKNOWN:
        return (
            f"number words are not known in {language}: numerals leave them as they are, and redaction hides numbers "
            "only where they are written in figures"
        )
    return (
        f'the words for "@" and "dot" are not known in {language}: redaction hides e-mail addresses only where they '
        "are written with these signs or said with the English words"
    )


class SegmentRewriter:
    """Passes the segments of a file through the text stage."""

    def __init__(self, stage: TextStage, *, one_language: bool = False) -> None:
        """See TextRewriter."""
        self._rewriter = TextRewriter(stage, one_language=one_language)
        self._stage = stage
        self._count = 0

    @property
    def complete(self) -> bool:
        """Whether no word is held that may go on, so that a chunk of the file may end here."""
        return self._stage.complete

    @property
    def notes(self) -> list[str]:
        """The warnings about languages some of whose words are not known, as notes of a chunk."""
        return [f"{code}: {_warning(code, language)}" for code, language in self._stage.unknown_words]

    def rewrite(self, segments: Iterable[Segment], *, language: str | None, reached: int) -> list[Segment]:
        """Return the segments that are complete now, in order. Words that follow start at *reached* or later."""
        rewritten = self._rewriter.rewrite((), decided=0, language=language)
        rewritten += [closed for segment in segments for closed in self._one(segment)]
        rewritten += self._rewriter.rewrite((), decided=reached)
        return [event.segment for event in rewritten if isinstance(event, SegmentClosed)]

    def flush(self) -> list[Segment]:
        """Return the held words as segments."""
        return [event.segment for event in self._rewriter.flush() if isinstance(event, SegmentClosed)]

    def _one(self, segment: Segment) -> list[Event]:
        number = self._count
        self._count += 1
        committed = WordsCommitted(segment.words, 0, number)
        return self._rewriter.rewrite([committed, SegmentClosed(number, segment)], decided=segment.start)
