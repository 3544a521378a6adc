"""Decides which words of a live stream will never change, from successive hypotheses about growing audio.

Theory. Each hypothesis is about the audio of the one before it and some more. Words near the end of the audio still
change, because a word may be cut off there, and because the words after it help the model to choose. So a word is
committed when two hypotheses in a row have it at the same place (LocalAgreement-2). There are two exceptions:

- A word with a high probability is committed by one hypothesis, if its end is far enough from the end of the audio.
- A word with a low probability waits for a third hypothesis, or until it is so far from the end that later hypotheses
  no longer improve it.

Two words are the same if they are equal without case and punctuation and their times are close. Their index does not
matter, since a hypothesis may begin with an additional word.

The audio of each hypothesis starts elsewhere, so its text and its times seldom are the same: a word is not new just
because it differs, or is late. People say "no, no, no". So each hypothesis is aligned with the committed words in order
(find_new_words), and each repetition is compared at its own place. What a model repeats without having heard it, its
engine leaves out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pipeline.audio import RATE, position
from pipeline.languages import SENTENCE_ENDS, plain
from pipeline.recognition.voicing import longest_time, may_pause, spread
from pipeline.words import Word

T = TypeVar("T")

TAIL = 8
"""How many of the last final words a new hypothesis is compared with."""

MISPLACED = 2
"""How many words at the beginning of a turn may be placed before the pause before it."""

NEAR = position(0.2)
"""How far apart two hypotheses may put the same word, where no other one is like it."""

JUMP = position(2)
"""How far apart two hypotheses of a live stream may put the same word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementOptions:
    """All lengths in samples. Figures are of tiny.en on English clips of four people (decisions.md)."""

    # A word this close to the end of the audio may still become a longer word. 0.2 to 0.6 s changed the delay alone.
    guard: int = position(0.4)
    sure: float = 0.8  # one hypothesis is enough for a word of this probability ...
    sure_guard: int = position(1.0)  # ... that ends this long before the audio does
    edge: int = position(0.2)  # a word that ends this close to the end of the audio is not shown: it may be cut off
    shown: int = 1  # a word is shown when this many hypotheses in a row have it
    # A word less probable than this is shown when two have it: 0.136 words taken back for each final one, 0.156 with
    # 0.45, of 840 words in three languages.
    shown_sure: float = 0.55
    # A word less probable than this waits until it is *settled*, or *often* hypotheses in a row have it. With 0.5 the
    # p95 of the delay is a second more.
    doubtful: float = 0.35
    often: int = 3
    settled: int = position(3.0)  # this far from the end hypotheses no longer improve, so waiting only adds delay
    patient: bool = False  # each word waits until it is settled, or the turn is over
    apart: int = guard  # how far the same word may move from one hypothesis to the next


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A word that is not committed yet."""

    word: Word
    times: int = 1  # how many hypotheses in a row have it at this place


class Agreement:
    """Holds the committed words of one stream and the pending words of the last hypothesis.

    Each committed word is returned once, in order. It starts at or after the end of the word before it.
    """

    def __init__(self, options: AgreementOptions) -> None:
        self._options = options
        self._earlier: list[Word] = []  # the committed words of earlier turns
        self._committed: list[Word] = []
        self._candidates: tuple[_Candidate, ...] = ()
        self._edge = 0  # pending words that end after this position may be cut off
        self._end = 0
        self._stopped = False  # the last hypothesis ended with the last committed word, and that ends a sentence

    @property
    def pending(self) -> tuple[Word, ...]:
        """The words of the last hypothesis that come after the last committed word."""
        return tuple(candidate.word for candidate in self._candidates)

    @property
    def shown(self) -> tuple[Word, ...]:
        """The pending words, without those at the end that will probably change: doubtful ones, or ones cut off.

        If only one hypothesis has an improbable word, all words after it are hidden too: they change with it. The first
        word is shown even at the end of the audio, so that readers see at once that somebody speaks.
        """
        options = self._options
        often = _count_leading(
            self._candidates,
            lambda one: one.times >= options.shown and (one.times > 1 or one.word.probability >= options.shown_sure),
        )
        pending = self.pending[:often]
        stay = (
            count
            for count, word in enumerate(pending, 1)
            if word.probability >= options.doubtful and (count == 1 or word.end <= self._edge)
        )
        return pending[: max(stay, default=0)]

    @property
    def earlier(self) -> Sequence[Word]:
        """The committed words of earlier turns."""
        return self._earlier

    @property
    def committed(self) -> Sequence[Word]:
        """The committed words that are not released yet, because a window may contain them again."""
        return [*self._earlier, *self._committed]

    def committed_from(self, position: int) -> Sequence[Word]:
        """Return the committed words whose middle is after *position*."""
        return [word for word in self.committed if word.start + word.end > 2 * position]

    @property
    def end(self) -> int:
        """The position before which no word will be committed any more."""
        return self._end

    def receive(
        self,
        words: Sequence[Word],
        *,
        until: int,
        paused: bool = False,
        doubted: bool = False,
        held: bool = False,
    ) -> tuple[Word, ...]:
        """Take the next hypothesis about audio that ends at *until*, and return the words that are now committed.

        *paused*: the audio ends in silence, so its last word is complete. *doubted*: one hypothesis is never enough.
        *held*: all words wait, because they may be of another language.
        """
        fresh = [self._with_history(word) for word in self.select_fresh(words, until)]
        self._edge = until if paused else until - self._options.edge
        count = self._count_certain(fresh, until, paused=paused, doubted=doubted)
        if held:
            count = 0
        elif self._options.patient:
            count = min(count, _count_leading(fresh, lambda one: one.word.end <= until - self._options.settled))
        return self._commit(fresh, count)

    def conclude(self, words: Sequence[Word], *, until: int, guard: int = 0) -> tuple[Word, ...]:
        """Take the last hypothesis about audio that ends at *until*, and commit its words up to *guard* before that."""
        words = self.select_fresh(words, until)
        count = _count_leading(words, lambda word: word.end <= until - guard)
        return self._commit([replace(self._with_history(word), times=1) for word in words], count)

    def settle(self, position: int) -> None:
        """Commit no more words before *position*: later hypotheses can only add words after it."""
        self._end = max(self._end, position)

    def part(self) -> None:
        """End the turn: words that come from now on are new, even if they are the same as before."""
        self._earlier += self._committed
        self._committed, self._stopped = [], False

    def release(self, position: int) -> None:
        """Forget the committed words whose middle is before *position*, because their audio is gone."""
        for words in (self._earlier, self._committed):
            del words[: _count_leading(words, lambda word: word.start + word.end < 2 * position)]

    def _commit(self, fresh: Sequence[_Candidate], count: int) -> tuple[Word, ...]:
        committed = tuple(candidate.word for candidate in fresh[:count])
        self._candidates = tuple(fresh[count:])
        if committed:
            self._committed.extend(committed)
            self._end = committed[-1].end
            self._stopped = not self._candidates and committed[-1].text.endswith(SENTENCE_ENDS)
        return committed

    def select_fresh(self, words: Sequence[Word], until: int) -> list[Word]:
        """Return the words after the committed ones, in order and clipped to the time between those and *until*."""
        fresh: list[Word] = []
        floor = self._end
        if until < floor:
            return fresh
        for word in find_new_words(self._committed, words, self._end):
            backwards = word.end <= floor - self._options.apart
            if backwards or word.start >= until:
                continue
            start = min(max(word.start, floor), until)
            floor = min(max(word.end, start), until)
            fresh.append(word if (start, floor) == (word.start, word.end) else word.at(start, floor))
        if fresh and self._stopped:  # the model gets no full stop that was a guess at a pause (without_end())
            fresh[0] = replace(fresh[0], text=fresh[0].text[:1].upper() + fresh[0].text[1:])
        return fresh

    def _with_history(self, word: Word) -> _Candidate:
        """Return *word* with the number of hypotheses in a row that have it at the same place.

        If one of them begins the word with a capital, it keeps that: they often differ in where a sentence begins.
        """
        before = [old for old in self._candidates if are_same(word, old.word, self._options.apart)]
        capital = next((old.word.text[:1] for old in before if old.word.text[:1].isupper()), "")
        if capital.casefold() == word.text[:1].casefold():
            word = replace(word, text=capital + word.text[1:])
        return _Candidate(word, 1 + max((old.times for old in before), default=0))

    def _count_certain(self, fresh: Sequence[_Candidate], until: int, *, paused: bool, doubted: bool) -> int:
        """Return how many of the *fresh* words will not change, given the hypotheses before."""
        options = self._options
        guard, sure_guard = (0, 0) if paused else (options.guard, options.sure_guard)

        def certain(candidate: _Candidate) -> bool:
            word = candidate.word
            if word.end > until - guard:
                return False
            settled = word.end <= until - options.settled
            if candidate.times > 1:
                believed = word.probability >= options.doubtful or candidate.times >= options.often
                return paused or settled or believed
            sure = word.probability >= options.sure and word.end <= until - sure_guard
            return not doubted and (sure or settled)

        return _count_leading(fresh, certain)


def _count_leading(items: Sequence[T], holds: Callable[[T], bool]) -> int:
    """Return how many items at the front satisfy *holds*."""
    return next((index for index, item in enumerate(items) if not holds(item)), len(items))


def find_new_words(committed: Sequence[Word], words: Sequence[Word], end: int) -> Sequence[Word]:
    """Return those of *words* that come after the final ones.

    *committed*: the last final words.
    *end*: the position before which no word becomes final any more.

    Each place between two of *words* gets a point for each word of *committed* before it, in order; those that end
    before the first of *words* are not in its audio, and would count the next "no" of many as one of them. It loses two
    points for each second between it and *end*, unless the last two final words come right before it: the last one may
    have been stretched over words that had not come yet. New words begin at the first place with the most points. A
    word counts as no longer than it can take, unless people pause in it: a model stretches words over the silence and
    words after them.
    """
    ends = [word.end if may_pause(word.text) else min(word.end, word.start + longest_time(word.text)) for word in words]
    heard = [word for word in committed[-TAIL:] if words and word.end > words[0].start]
    repeated = _repeated_counts(heard, words)

    def score(place: int) -> float:
        late = max(0, ends[place - 1] - end) if place else 0
        early = end - words[place].start if place < len(words) else 0
        apart = max(late, early)
        if apart and ends_with(committed, words[:place]):
            apart = 0
        return repeated[place] - 2 * apart / RATE

    return words[max(range(len(words) + 1), key=score) :]


def _repeated_counts(committed: Sequence[Word], words: Sequence[Word]) -> list[int]:
    """Return for each place between two *words* how many of *committed* come before it, in order (LCS)."""
    row = [0] * (len(words) + 1)
    forms = [plain(word.text) for word in words]
    for old in committed:
        if (form := plain(old.text)) not in forms:
            continue
        before, row = row, [0]
        for at, new in enumerate(words):
            same = form == forms[at] and are_same(old, new, JUMP)
            row.append(before[at] + 1 if same else max(row[-1], before[at + 1]))
    return row


def ends_with(committed: Sequence[Word], words: Sequence[Word]) -> bool:
    """Return whether *words* end with the last two words of *committed*, the first of these at the same place.

    The last one may be at another place: a model may move the last word before a pause to the end of the pause.
    """
    if min(len(committed), len(words)) < 2:  # noqa: PLR2004
        return False
    (before, last), (other, end) = committed[-2:], words[-2:]
    if plain(last.text) != plain(end.text) or abs(before.start - other.start) > NEAR:
        return False
    return plain(before.text) == plain(other.text) != plain(last.text)


def select_of_turn(words: Sequence[Word], earlier: Sequence[Word], turn: int) -> Sequence[Word]:
    """Return *words* without those before the *turn*, the position where its first word may begin.

    Times are inexact at a pause: the last word of the turn before may be placed where this turn begins, and the first
    ones of this turn where that one ended. *earlier* ends with the last word of the turn before.
    """
    before = sum(word.start + word.end < 2 * turn for word in words)
    ends = range(before + 1, max(0, before - MISPLACED) - 1, -1)
    said = next((count for count in ends if ends_with(earlier, words[:count])), before)
    if said >= before or before == len(words):
        return words[max(said, before) :]
    following = words[before]
    return (*spread(words[said : before + 1], following.start, following.end), *words[before + 1 :])


def are_same(one: Word, other: Word, apart: int) -> bool:
    """Return whether both are the same word, with times at most *apart*."""
    near = abs(one.start + one.end - other.start - other.end) <= 2 * apart
    return near and plain(one.text) == plain(other.text)
