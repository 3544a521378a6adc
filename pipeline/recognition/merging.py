"""Merges two hypotheses about the same audio, so that no word is lost and none comes twice.

Audio is recognised again wherever the first answer may be incomplete: where somebody speaks and there is no word, in
each partial after the one before it, in a final after its partials, and after another server took a session over.

Theory. The audio of a second hypothesis starts elsewhere, so its text seldom is the same: "526-018-1590" comes back as
"one five nine zero", "$450,000" as "$50,000", and a sentence with other punctuation. So a word is not new just because
it differs. There are three cases:

- Both hypotheses have it: it is kept once. They are aligned by units (spoken_form.py), in order. Two units are the same
  if they are equal and their words have about the same time, because people do say "no, no, no, no".
- Only one has it, at a time where the other has nothing: it fills a gap.
- Both have something at the same time and differ: one is wrong. The first hypothesis had more audio around it, so it
  stays, unless the second has all of its units and more.

merge() tries to replace every run of the first hypothesis, also an empty one, by every run of the second. It takes the
replacement with the lowest cost: for units that come twice, units that are lost, and words at the same time.
find_new_words() does the same for final words, which nothing can replace: it finds where a new hypothesis continues
after them. That may be in the middle of a word.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, groupby, product
from typing import TypeAlias

from pipeline.audio import RATE, position
from pipeline.recognition.spoken_form import (
    FASTEST,
    MAX_CACHED,
    Unit,
    longest_time,
    may_pause,
    sound_of,
    units_of,
    usual_time,
)
from pipeline.words import Word

Span: TypeAlias = tuple[int, int]
"""Start and end: positions, or indices of a run of words."""

NEAR = position(0.2)
"""How far apart two hypotheses may put the same word."""

REACH = position(2)
"""Words of the first hypothesis are compared if they lie within this distance of the second one."""

TAIL = 8
"""How many of the last final words a new hypothesis is compared with."""

JUMP = position(2)
"""How far apart two hypotheses of a live stream may put the same unit."""

MET = 0.5
"""The points of a place at which the last final unit ends. A matching word gives 1; times in numbers may be wrong."""

ALIKE = 0.5
"""The points of another form of a final word: "it's" for "it", or "4" for "for"."""

FIGURES = 2
"""How many of the last final figures must match to find where a longer number goes on."""

TWICE, LOST, CROWDED = 2.0, 1.0, 4.0
"""The costs of a unit that comes twice, of a unit that is lost, and of a second in which two words are said at once."""

CROWDED_WORDS = 0.6
"""Words that take a smaller share of their usual time than this have wrong times."""

_SEPARATORS = "-.,:/ "  # between the figures of a number

CHANGE = 0.01
"""The cost of a changed word, and of a second out of order. It decides between ways that cost the same otherwise."""


def merge(first: Sequence[Word], again: Sequence[Word], span: Span, *, near: int = NEAR) -> tuple[Word, ...]:
    """Return the words of the *first* hypothesis, changed by the words of the second one, *again*, in *span*.

    *span*: words of *again* outside it help to align, but are not inserted.
    *near*: how far apart both hypotheses may place the same word.

    Both are in order, and so is the result. A word that reaches into the next one is shortened.
    """
    first = _with_crowded_words_moved(first, again, span)
    here = [at for at, word in enumerate(first) if word.end >= span[0] - REACH and word.start <= span[1] + REACH]
    begin = here[0] if here else sum(word.start < span[0] for word in first)
    end = here[-1] + 1 if here else begin
    merged = _Comparison(first[begin:end], again, span, near).cheapest()
    return _in_order((*first[:begin], *merged, *first[end:]))


def _with_crowded_words_moved(first: Sequence[Word], again: Sequence[Word], span: Span) -> Sequence[Word]:
    """Return *first*, in which words after *span* that have too little time are moved to where *again* has them.

    A model that leaves out speech may place the rest of a sentence after it: "I", and five seconds later "would like to
    pay by card" in half a second. A word that *again* lacks moves to the next one that it has.
    """
    begin = sum(word.start < span[1] for word in first)
    end = _end_of_crowd(first, begin)
    free = [replace(word, start=span[0]) for word in first[begin:end]]
    ours, theirs = units_of(free), units_of(again)
    pairs = align_units(ours, theirs, free, again, NEAR)
    places = {ours[row].word: again[theirs[column].word] for row, column in pairs}
    moved: list[Word] = []
    for number in range(max(places, default=-1), -1, -1):
        place = places.get(number)
        start, stop = (place.start, place.end) if place else (moved[-1].start, moved[-1].start)
        moved.append(replace(first[begin + number], start=start, end=stop))
    return (*first[:begin], *moved[::-1], *first[begin + len(moved) :])


def _end_of_crowd(words: Sequence[Word], begin: int) -> int:
    """Return where the run of words from *begin* on ends that have too little time; *begin* if the first has enough."""
    end, usual = begin, 0.0
    while end < len(words):
        usual += usual_time(words[end].text)
        if words[end].end - words[begin].start >= usual * RATE * (CROWDED_WORDS if end > begin else CROWDED_WORDS / 2):
            break
        end += 1
    return end


def find_new_words(committed: Sequence[Word], words: Sequence[Word], end: int) -> tuple[list[Word], int]:
    """Return those of *words* that come after the final ones, and how many whole words come before them.

    *committed*: the last final words.
    *end*: the position before which no word becomes final any more.

    Each place between two units of *words* gets a point for each word of *committed* before it, in order, and MET if
    the last of them ends there. It loses two points for each second between it and *end*. New words begin at the place
    with the most points. A word without a pause in it counts as no longer than it can take.
    """
    tail = units_of(committed[-TAIL:])
    units = units_of([word if may_pause(word.text) else _without_tail(word) for word in words])
    repeated = _repeated_counts(tail, units)

    def score(split: int) -> float:
        before = units[split - 1].end if split else end
        behind = units[split].start if split < len(units) else end
        met = bool(tail) and split > 0 and tail[-1].text == units[split - 1].text and _near(tail[-1], units[split - 1])
        late = 0 if _is_anchored(tail, units[:split]) else before - end
        return repeated[split] + MET * met - 2 * max(0, late, end - behind) / RATE

    split = max((at for at in range(len(units) + 1) if _may_part(tail, units, at)), key=score)
    count = units[split - 1].word + 1 if split else 0
    following = units[split].word if split < len(units) else len(words)
    while count < following and words[count].start + words[count].end <= 2 * end:
        count += 1  # a word without units, such as "dot", was final before
    if not split or split == len(units) or units[split].word != units[split - 1].word:
        return list(words[count:]), count
    rest = _cut(words[count - 1], units[split - 1].upto or 0, units[split].start)
    return [*rest, *words[count:]], count - len(rest)


def ends_with(committed: Sequence[Word], words: Sequence[Word]) -> bool:
    """Return whether *words* end with the last two units of *committed*, the first of these at the same place.

    The last one may be at another place: a model may move the last word before a pause to the end of the pause.
    """
    return _is_anchored(units_of(committed[-TAIL:]), units_of(words))


def _is_anchored(tail: Sequence[Unit], units: Sequence[Unit]) -> bool:
    texts = [old.text for old in tail[-2:]]
    same = len(set(texts)) == 2 and texts == [new.text for new in units[-2:]]  # noqa: PLR2004  two different ones
    return same and abs(tail[-2].start - units[-2].start) <= NEAR


def _repeated_counts(tail: Sequence[Unit], units: Sequence[Unit]) -> list[float]:
    """Return for each place between two *units* how many words of *tail* come before it, in order (LCS)."""
    counts = Counter(unit.word for unit in tail)
    row = [0.0] * (len(units) + 1)
    for old in tail:
        before, row = row, [0.0]
        for column, new in enumerate(units):
            most = max(row[-1], before[column + 1])
            if _near(old, new) and (alike := _likeness(old.text, new.text)):
                most = max(most, before[column] + alike / counts[old.word])
            row.append(most)
    return row


@lru_cache(MAX_CACHED)
def _likeness(old: str, new: str) -> float:
    """Return how alike the texts of two units are: 1 for the same word, ALIKE for another form of it, else 0."""
    if old == new:
        return 1.0
    short, long = sorted((old, new), key=len)
    longer = len(short) > 1 and not (old.isdecimal() or new.isdecimal()) and long.startswith(short)
    return ALIKE if longer or sound_of(old) == sound_of(new) else 0.0


def _near(old: Unit, new: Unit) -> bool:
    """Return whether both are at about the same place of a live stream."""
    return abs(old.start + old.end - new.start - new.end) <= 2 * JUMP


def _may_part(tail: Sequence[Unit], units: Sequence[Unit], at: int) -> bool:
    """Return whether words can be parted before unit *at*: between two words, or where final words end within one.

    So "526-018" is parted after a final "526", "5 2 6" or "26", and not after a final "36". The whole last final word
    must come before *at*: a model may stretch "8888" over the pause after it, and nothing new begins in its middle.
    """
    if not 0 < at < len(units) or units[at - 1].word != units[at].word:
        return True
    if units[at - 1].upto is None or not tail:
        return False
    front = sum(unit.word == units[at].word for unit in units[:at])
    whole = sum(unit.word == tail[-1].word for unit in tail)
    count = max(whole, min(FIGURES, front))
    return [unit.sound for unit in tail[-count:]] == [unit.sound for unit in units[max(0, at - count) : at]]


def _cut(word: Word, upto: int, start: int) -> list[Word]:
    """Return *word* without its text before *upto*, if anything is left."""
    text = word.text[upto:].lstrip(_SEPARATORS)
    return [replace(word, text=text, start=start)] if text else []


def _without_tail(word: Word) -> Word:
    """Return *word* without the time that it cannot take."""
    _, end = spoken_span(word)
    return word if end == word.end else replace(word, end=end)


def spoken_span(word: Word) -> Span:
    """Return the longest span that *word* can take: a model stretches words over the silence and words after them."""
    return word.start, min(word.end, word.start + longest_time(word.text))


def align_units(
    first: Sequence[Unit], again: Sequence[Unit], words: Sequence[Word], other: Sequence[Word], near: int
) -> list[Span]:
    """Return pairs of indices of equal units, in order: as many pairs as possible, and among those the nearest.

    The units of a pair can be said at most *near* apart. The time of a unit within its word is only a guess.
    """
    ours, theirs = _possible_spans(first, words), _possible_spans(again, other)
    best = [[0.0] * (len(again) + 1) for _ in range(len(first) + 1)]
    for row, one in enumerate(first, 1):
        for column, two in enumerate(again, 1):
            best[row][column] = max(best[row - 1][column], best[row][column - 1])
            apart = _distance(ours[row - 1], theirs[column - 1])
            if one.text == two.text and apart <= near:
                far = abs(one.start + one.end - two.start - two.end) / (1000 * RATE)
                best[row][column] = max(best[row][column], best[row - 1][column - 1] + 1 - min(far, 0.01))
    pairs: list[Span] = []
    row, column = len(first), len(again)
    while row and column:
        if best[row][column] == best[row - 1][column]:
            row -= 1
        elif best[row][column] == best[row][column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            pairs.append((row, column))
    return pairs[::-1]


class _Comparison:
    """Two hypotheses, and for each word of one the words of the other that have the same units.

    A word of the second hypothesis is split if the first has only a part of it.
    """

    def __init__(self, first: Sequence[Word], again: Sequence[Word], span: Span, near: int) -> None:
        self._first, self._near = first, near
        ours, theirs = units_of(first), units_of(again)
        pairs = align_units(ours, theirs, first, again, near)
        there, here = dict(pairs), {column: row for row, column in pairs}
        self._pieces = list(_pieces(again, theirs, here))
        piece_of = {number: at for at, piece in enumerate(self._pieces) for number in piece.units}
        self._in_again: list[list[int | None]] = [[] for _ in first]  # for each unit of a word: the piece that has it
        for number, unit in enumerate(ours):
            self._in_again[unit.word].append(piece_of[there[number]] if number in there else None)
        # For each unit of a piece: the word of the first hypothesis that has it, and whether it lies in *span*.
        self._in_first = [
            [
                (
                    ours[here[number]].word if number in here else None,
                    _is_inside(theirs[number], span, NEAR if piece.is_part or _is_alone(piece.word, first) else 0),
                )
                for number in piece.units
            ]
            for piece in self._pieces
        ]

    def cheapest(self) -> tuple[Word, ...]:
        """Return the words after the cheapest replacement: a run of the second hypothesis for a run of the first."""
        rows = list(combinations_with_replacement(range(len(self._first) + 1), 2))
        runs = list(combinations(range(len(self._pieces) + 1), 2))
        ways = [((0, 0), (0, 0)), *((row, run) for row, run in product(rows, runs) if self._keeps_order(row, run))]
        (begin, end), (start, stop) = min(ways, key=lambda way: self._cost(*way))
        return (*self._first[:begin], *_join_pieces(self._pieces[start:stop]), *self._first[end:])

    def _keeps_order(self, row: Span, run: Span) -> bool:
        """Return whether the words stay in order if *run* takes the place of *row*."""
        return max(self._too_early(row, run), self._too_late(row, run)) <= self._near

    def _too_early(self, row: Span, run: Span) -> int:
        """Return by how many samples the first word of *run* starts before the word that it would follow."""
        return max(0, self._first[row[0] - 1].start - self._pieces[run[0]].word.start) if row[0] else 0

    def _too_late(self, row: Span, run: Span) -> int:
        """Return by how many samples the last word of *run* starts after the word that would follow it."""
        follows = row[1] < len(self._first)
        return max(0, self._pieces[run[1] - 1].word.start - self._first[row[1]].start) if follows else 0

    def _cost(self, row: Span, run: Span) -> float:
        twice = lost = crowded = 0
        for number, units in enumerate(self._in_first):
            inserted = run[0] <= number < run[1]
            for pair, inside in units:
                remains = pair is not None and not row[0] <= pair < row[1]
                twice += inserted and remains
                lost += not inserted and not remains and inside
        for number in range(*row):
            lost += sum(pair is None or not run[0] <= pair < run[1] for pair in self._in_again[number])
        for number in (*range(row[0]), *range(row[1], len(self._first))):
            crowded += sum(_overlap(self._first[number], piece.word) for piece in self._pieces[run[0] : run[1]])
        changed: float = row[1] - row[0] + run[1] - run[0]
        if run[0] < run[1]:
            changed += (self._too_early(row, run) + self._too_late(row, run)) / RATE
        return TWICE * twice + LOST * lost + CROWDED * crowded / RATE + CHANGE * changed


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word of the second hypothesis. If the first has only a part of it, that part or the rest."""

    word: Word
    units: range
    whole: Word  # of which it is a part
    begin: int  # where its text begins in that of *whole*
    end: int

    @property
    def is_part(self) -> bool:
        """Whether it is less than its word, so that its times are guesses."""
        return self.begin > 0 or self.end < len(self.whole.text)


def _pieces(words: Sequence[Word], units: Sequence[Unit], known: Container[int]) -> Iterator[_Piece]:
    """Yield the pieces of *words*. *known* has the indices of those of their *units* that the first hypothesis has."""
    numbers = iter(range(len(units) + 1))
    at = next(numbers)
    for index, word in enumerate(words):
        first, begin = at, 0
        while at < len(units) and units[at].word == index:
            at = next(numbers)
            goes_on = at < len(units) and units[at].word == index
            upto = units[at - 1].upto
            if goes_on and (upto is None or (at in known) == (at - 1 in known)):
                continue
            end = upto if goes_on and upto is not None else len(word.text)
            text = word.text[begin:end].strip(_SEPARATORS) if begin or goes_on else word.text
            piece = replace(word, text=text, start=units[first].start, end=units[at - 1].end)
            yield _Piece(piece, range(first, at), word, begin, end)
            first, begin = at, end
        if first == at and not begin:
            yield _Piece(word, range(at, at), word, 0, len(word.text))  # nothing in it is spoken


def _join_pieces(pieces: Sequence[_Piece]) -> Iterator[Word]:
    """Yield the words of the pieces. Neighbouring pieces of one word become one word again."""
    for _, group in groupby(pieces, key=lambda piece: id(piece.whole)):
        run = list(group)
        if len(run) == 1:
            yield run[0].word
        else:
            text = run[0].whole.text[run[0].begin : run[-1].end].lstrip(_SEPARATORS)
            yield replace(run[0].word, text=text, end=run[-1].word.end)


def _is_inside(unit: Unit, span: Span, near: int) -> bool:
    """Return whether the middle of *unit* lies in *span*, or at most *near* away."""
    return span[0] - near <= (unit.start + unit.end) // 2 < span[1] + near


def _is_alone(word: Word, others: Sequence[Word]) -> bool:
    """Return whether none of *others* is said while *word* is."""
    return not any(_overlap(word, other) for other in others)


def _overlap(one: Word, other: Word) -> int:
    """Return for how long both words are said at the same time."""
    (start, end), (begin, stop) = spoken_span(one), spoken_span(other)
    return max(0, min(end, stop) - max(start, begin))


def _possible_spans(units: Sequence[Unit], words: Sequence[Word]) -> list[Span]:
    """Return where each unit can be within its word, if the units before and after it there are said very fast."""
    spans: list[Span] = []
    for number, group in groupby(units, key=lambda unit: unit.word):
        word, of = words[number], len(list(group))
        each = min(FASTEST, (word.end - word.start) // of)
        spans += [(word.start + each * at, word.end - each * (of - 1 - at)) for at in range(of)]
    return spans


def _distance(one: Span, other: Span) -> int:
    """Return the silence between two spans, 0 if they overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def _in_order(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words with ends that reach at most to the start of the next, and starts that never go back."""
    ordered: list[Word] = []
    for word in words:
        last = ordered[-1] if ordered else None
        if last is None or word.start >= last.end:
            ordered.append(word)
        elif word.start >= last.start:
            ordered[-1:] = [replace(last, end=word.start), word]
        else:
            ordered.append(replace(word, start=last.end, end=max(word.end, last.end)))
    return tuple(ordered)
