"""Successive hypotheses about growing audio -> the words that will never change.

Two hypotheses that say the same word at the same place are believed (LocalAgreement-2), but words are compared
without case and punctuation, by place in time and not by index, and a word far enough from the edge of the audio is
believed at once when the model is sure of it. README.md holds the measurements behind the numbers.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.audio import position
from pipeline.words import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementOptions:
    guard: int = position(0.4)  # a word this close to the audio's end may still turn into a longer one
    sure: float = 0.8  # probability that makes one hypothesis enough ...
    sure_guard: int = position(1.0)  # ... this far from the audio's end
    edge: int = position(0.2)  # a word that ends this close to the audio's end is not shown: it is often half a word
    doubtful: float = 0.35  # a word less probable than this waits, whatever agrees with it, until it is settled
    settled: int = position(2.0)  # this far from the end the hypotheses no longer improve: waiting only adds delay
    apart: int = position(0.4)  # how far the same word may move from one hypothesis to the next
    jump: int = position(2.0)  # ends that leap further are a sign of lost alignment: agreement only
    loop: int = 4  # so many repetitions of the same words in a row are a loop, not speech, until a final says so too
    fastest: int = position(0.12)  # a loop with less time than this for a word was never spoken


class Agreement:
    """The committed words of one stream and what is heard after them.

    Committed words are handed out once, in order: each starts at or after the end of the one before it.
    """

    def __init__(self, options: AgreementOptions) -> None:
        self._options = options
        self._parted: list[Word] = []  # kept words of turns that are over
        self._kept: list[Word] = []
        self._pending: tuple[Word, ...] = ()
        self._edge = 0  # of the audio in which words are shown
        self._end = 0

    @property
    def pending(self) -> tuple[Word, ...]:
        """What the last hypothesis says after the last committed word."""
        return self._pending

    @property
    def shown(self) -> tuple[Word, ...]:
        """The pending words without those at their end that will probably change: doubtful, or at the audio's edge.

        A first word is shown wherever it ends, so that the reader sees at once that somebody speaks.
        """
        stay = (
            count
            for count, word in enumerate(self._pending, 1)
            if word.probability >= self._options.doubtful and (count == 1 or word.end <= self._edge)
        )
        return self._pending[: max(stay, default=0)]

    @property
    def kept(self) -> Sequence[Word]:
        """The committed words that have not been released: those a window may hear again."""
        return [*self._parted, *self._kept]

    @property
    def end(self) -> int:
        """Nothing that starts before here will be committed any more."""
        return self._end

    def receive(
        self, words: Sequence[Word], *, until: int, paused: bool = False, doubted: bool = False
    ) -> tuple[Word, ...]:
        """Take the next hypothesis over audio that ends at *until*; give the words that are now certain.

        *paused*: the audio ends in silence, so that its last word is whole. *doubted*: however sure the model is of a
        word, one hypothesis is not enough.
        """
        fresh = self._fresh(words, until)
        self._edge = until if paused else until - self._options.edge
        return self._commit(fresh, self._certain(fresh, until, paused=paused, doubted=doubted))

    def conclude(self, words: Sequence[Word], *, until: int, guard: int = 0) -> tuple[Word, ...]:
        """Take the last hypothesis over audio that ends at *until*; give its words up to *guard* before that."""
        fresh = self._fresh(words, until)
        fresh = fresh[: self._loop(fresh, fastest=self._options.fastest)]
        return self._commit(fresh, _leading(fresh, lambda word: word.end <= until - guard))

    def settle(self, position: int) -> None:
        """Everything before *position* is decided: later hypotheses can only add words after it."""
        self._end = max(self._end, position)

    def part(self) -> None:
        """The turn is over: what is said from now on may be the same words again."""
        self._parted += self._kept
        self._kept = []

    def release(self, position: int) -> None:
        """Give up the committed words whose middle lies before *position*: their audio is gone."""
        for words in (self._parted, self._kept):
            del words[: _leading(words, lambda word: word.start + word.end < 2 * position)]

    def _commit(self, fresh: Sequence[Word], count: int) -> tuple[Word, ...]:
        committed, self._pending = tuple(fresh[:count]), tuple(fresh[count:])
        if committed:
            self._kept.extend(committed)
            self._end = committed[-1].end
        return committed

    def _fresh(self, words: Sequence[Word], until: int) -> list[Word]:
        """The words after the committed ones, in order of time, between those and *until*."""
        fresh: list[Word] = []
        floor = self._end
        if until < floor:
            return fresh
        for word in words[self._repeated(words) :]:
            backwards = word.end <= floor - self._options.apart
            if backwards or word.start >= until:
                continue
            start = min(max(word.start, floor), until)
            floor = min(max(word.end, start), until)
            fresh.append(replace(word, start=start, end=floor))
        return fresh

    def _repeated(self, words: Sequence[Word]) -> int:
        """How many words at the front say again what is committed.

        The split that puts most of the last committed words just before it wins; a second away from the end of the
        last one weighs like two words.
        """

        def score(split: int) -> float:
            heard = reversed(words[:split])
            same = sum(_same(old, new, self._options.jump) for old, new in zip(reversed(tail), heard, strict=False))
            before = words[split - 1].end if split else self._end
            after = words[split].start if split < len(words) else self._end
            gap = max(0, before - self._end, self._end - after)
            return same - 2 * gap / position(1.0)

        tail = self._kept[-5:]
        return max(range(len(words) + 1), key=score)

    def _certain(self, fresh: Sequence[Word], until: int, *, paused: bool, doubted: bool) -> int:
        """How many of the *fresh* words will not change, given the hypothesis before."""
        options = self._options
        limit = self._loop(fresh)
        hold = doubted or _lost(fresh, until, options.jump)
        guard, sure_guard = (0, 0) if paused else (options.guard, options.sure_guard)

        def certain(word: Word) -> bool:
            if word.end > until - guard:
                return False
            settled = word.end <= until - options.settled
            if any(_same(word, old, options.apart) for old in self._pending):
                return paused or settled or word.probability >= options.doubtful
            sure = word.probability >= options.sure and word.end <= until - sure_guard
            return not hold and (sure or settled)

        return _leading(fresh[:limit], certain)

    def _loop(self, fresh: Sequence[Word], fastest: int | None = None) -> int:
        """How many *fresh* words come before a repetition loop; with *fastest*, only loops quicker than that count.

        A loop may begin among the committed words, and its first round is believed.
        """
        words, times = [*self._kept, *fresh], self._options.loop
        texts = [normalised(word.text) for word in words]
        for start in range(len(texts)):
            for size in range(1, (len(texts) - start) // times + 1):
                stop = start + size * times
                if texts[start : stop - size] != texts[start + size : stop]:
                    continue
                if fastest is None or words[stop - 1].end - words[start].start < fastest * (stop - start):
                    return max(0, start + size - len(self._kept))
        return len(fresh)


def normalised(text: str) -> str:
    """The word without case and punctuation, or the text itself where nothing else is left."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum()) or folded


def _same(one: Word, other: Word, apart: int) -> bool:
    """Whether both say the same word at the same place, give or take *apart*."""
    near = abs(one.start + one.end - other.start - other.end) <= 2 * apart
    return near and normalised(one.text) == normalised(other.text)


def _lost(words: Sequence[Word], until: int, jump: int) -> bool:
    """Whether the times show that alignment was lost: a leap, or three words piled up on the audio's last frames."""
    leaps = any(after.end - before.end > jump for before, after in pairwise(words))
    return leaps or sum(word.start >= until - position(0.1) for word in words) >= 3  # noqa: PLR2004 - three


def _leading(words: Sequence[Word], holds: Callable[[Word], bool]) -> int:
    """How many words at the front satisfy *holds*."""
    return next((index for index, word in enumerate(words) if not holds(word)), len(words))
