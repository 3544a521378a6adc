"""Which words are translated together. Pure: final words in, units out.

A unit ends at a mark of a sentence or a clause, at a pause, where the language changes, or after MOST_WORDS words. What
waits while a translator is busy is joined into one unit, so that a slow translator gives longer units and not growing
delay. Words are never dropped: those that have no translation wait here.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass

from pipeline.audio import position
from pipeline.languages import CLAUSE_ENDS, SENTENCE_ENDS
from pipeline.words import Word, join_words

MOST_WORDS = 15
"""A live unit ends here without a mark. Words of scripts without spaces are short and count half."""

MOST_JOINED_WORDS, LONGEST_JOINED = 60, position(28.0)
"""The bounds of a unit that is joined of several, and of a sentence in a file: a window of Whisper."""

LEAST_WORDS = 3
"""A clause with fewer words goes with the next one: alone it says too little to be translated well."""

PAUSE = position(0.7)
"""A silence as long as this ends a unit."""


@dataclass(frozen=True, slots=True)
class NumberedWord:
    """A final word. *number* is the one that readers know it by. Its times are on the clock of the event loop."""

    number: int
    word: Word
    channel: int | None = None
    heard_at: float | None = None  # when its end was heard; None in files
    final_at: float | None = None  # None: unknown


@dataclass(frozen=True, slots=True)
class Unit:
    """Words of one channel and one language that are translated together. There is at least one."""

    words: tuple[NumberedWord, ...]
    after: int | None = None  # the number of the word before it on its channel; None: there is none

    @property
    def first(self) -> int:
        return self.words[0].number

    @property
    def last(self) -> int:
        return self.words[-1].number

    @property
    def start(self) -> int:
        return self.words[0].word.start

    @property
    def end(self) -> int:
        return max(one.word.end for one in self.words)

    @property
    def channel(self) -> int | None:
        return self.words[0].channel

    @property
    def language(self) -> str | None:
        return self.words[0].word.language

    @property
    def text(self) -> str:
        return join_words(one.word for one in self.words)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of redacted words in it."""
        return tuple(one.word.text for one in self.words if one.word.redacted)

    def with_more(self, other: "Unit") -> "Unit":
        return Unit((*self.words, *other.words), self.after)

    def may_be_joined(self, other: "Unit") -> bool:
        """Return whether *other* can be translated with this one: it follows at once and both together are short."""
        return (
            (self.channel, self.last, self.language) == (other.channel, other.after, other.language)
            and length(self.words) + length(other.words) <= MOST_JOINED_WORDS
            and other.end - self.start <= LONGEST_JOINED
        )


class Backlog:
    """The words of one target that have no translation yet."""

    def __init__(self, target: str, *, spoken: str | None = None, live: bool = True, by_sound: bool = False) -> None:
        """*spoken*: the language of words that do not say theirs.

        *live*: units may end at a clause, and are joined; otherwise each is a sentence.
        *by_sound*: the sound is translated and not the words, so a redacted word is a unit of its own.
        """
        self._target = target
        self._spoken = spoken
        self._live = live
        self._by_sound = by_sound
        self._open: dict[int | None, list[NumberedWord]] = {}  # by channel
        self._last: dict[int | None, int] = {}  # by channel, the number of the last word before those
        self._ready: deque[Unit] = deque()
        self._taken: list[Unit] = []  # what the last unit was joined of

    @property
    def ready(self) -> bool:
        """Whether there is a unit to translate."""
        return bool(self._ready)

    def add(self, words: Iterable[NumberedWord], *, done: Container[tuple[int | None, int]] = ()) -> None:
        """Add final words, those of each channel in order. Words in the target's language need no translation.

        *done*: the channels and numbers of words that have a translation.
        """
        for one in words:
            opened = self._open.setdefault(one.channel, [])
            if opened and self._parts(opened[-1].word, one.word):
                self.close(one.channel)
            if (one.word.language or self._spoken) == self._target or (one.channel, one.number) in done:
                self.close(one.channel)
                self._last[one.channel] = one.number
                continue
            opened.append(one)
            if self._is_complete(opened):
                self.close(one.channel)

    def reach(self, channel: int | None, decided: int) -> None:
        """Note that no further word of a channel starts before the position *decided*."""
        opened = self._open.get(channel)
        if opened and decided - opened[-1].word.end >= PAUSE:
            self.close(channel)

    def close(self, channel: int | None) -> None:
        """End the unit that has begun on a channel: the speaker has finished."""
        if opened := self._open.get(channel):
            self._ready.append(Unit(tuple(opened), self._last.get(channel)))
            self._last[channel] = opened[-1].number
            opened.clear()

    def close_all(self) -> None:
        """End what has begun: no further word comes."""
        for channel in self._open:
            self.close(channel)

    def take(self, *, joined: bool = True) -> Unit | None:
        """Remove and return the next unit; None if there is none. *joined*: with what waits after it, if it is live."""
        if not self._ready:
            return None
        unit = self._ready.popleft()
        self._taken = [unit]
        for other in [*self._ready] if joined and self._live else ():
            if unit.may_be_joined(other) and not (self._by_sound and (unit.labels or other.labels)):
                unit = unit.with_more(other)
                self._taken.append(other)
                self._ready.remove(other)
        return unit

    def put_back(self, *, last: bool = False) -> None:
        """Let the unit that take() returned last wait again, before all others or as the *last* of them."""
        if last:
            self._ready.extend(self._taken)
        else:
            self._ready.extendleft(reversed(self._taken))
        self._taken = []

    def sort(self) -> None:
        """Let what waits be taken in the order in which it was said."""
        self._ready = deque(sorted(self._ready, key=lambda unit: unit.first))

    def waiting(self) -> list[Unit]:
        """Return everything that was not taken."""
        return [*self._ready, *(Unit(tuple(words)) for words in self._open.values() if words)]

    def _parts(self, before: Word, word: Word) -> bool:
        """Return whether a unit ends between two words of a channel that follow each other."""
        redacted = self._by_sound and (before.redacted or word.redacted)
        return redacted or before.language != word.language or word.start - before.end >= PAUSE

    def _is_complete(self, words: list[NumberedWord]) -> bool:
        text = words[-1].word.text.rstrip("\"'\u201d\u2019\u00bb)]")
        if text.endswith(SENTENCE_ENDS):
            return True
        if not self._live:
            return length(words) >= MOST_JOINED_WORDS or words[-1].word.end - words[0].word.start >= LONGEST_JOINED
        return (text.endswith(CLAUSE_ENDS) and len(words) >= LEAST_WORDS) or length(words) >= MOST_WORDS


def length(words: Iterable[NumberedWord]) -> float:
    """Return how many words these are: those of scripts without spaces count half."""
    return sum(1.0 if one.word.spaced else 0.5 for one in words)


def spans_of(units: Iterable[Unit]) -> list[tuple[int, int]]:
    """Return from where to where *units* reach, in positions, those that touch or overlap as one."""
    spans = sorted((unit.start, unit.end) for unit in units)
    joined = spans[:1]
    for start, end in spans[1:]:
        if start - joined[-1][1] < PAUSE:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
