"""Finds where a new hypothesis of a live stream goes on after the words that are final already. Pure.

The audio of each hypothesis starts elsewhere, so its text seldom is the same: "526-018-1590" comes back as "one five
nine zero", "$450,000" as "$50,000", and a sentence with other punctuation. So a word is not new just because it
differs. Hypotheses are compared by units (spoken_form.py), in order: two units are the same if they are equal and their
words have about the same time, because people do say "no, no, no, no". New words may begin in the middle of a word.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from pipeline.audio import RATE, position
from pipeline.recognition.spoken_form import MAX_CACHED, Unit, longest_time, may_pause, sound_of, units_of
from pipeline.words import Word

Span: TypeAlias = tuple[int, int]
"""Start and end, as positions."""

NEAR = position(0.2)
"""How far apart two hypotheses may put the same word."""

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

_SEPARATORS = "-.,:/ "  # between the figures of a number


def find_new_words(committed: Sequence[Word], words: Sequence[Word], end: int) -> tuple[list[Word], int]:
    """Return those of *words* that come after the final ones, and how many whole words come before them.

    *committed*: the last final words.
    *end*: the position before which no word becomes final any more.

    Each place between two units of *words* gets a point for each word of *committed* before it, in order, and MET if
    the last of them ends there. It loses two points for each second between it and *end*. New words begin at the place
    with the most points. A word without a pause in it counts as no longer than it can take.
    """
    tail = units_of(committed[-TAIL:])
    meets = min(end, *(unit.start for unit in tail)) - JUMP if tail else 0
    passed = next((count for count, word in enumerate(words) if word.end >= meets), len(words))
    new, count = _new_after(tail, words[passed:], end)
    return new, passed + count


def _new_after(tail: Sequence[Unit], words: Sequence[Word], end: int) -> tuple[list[Word], int]:
    """Return what find_new_words() does, for words of which none comes long before the final ones of *tail*."""
    units = units_of([word if may_pause(word.text) else _without_tail(word) for word in words])
    repeated = _repeated_counts(tail, units)

    def score(split: int) -> float:
        before = units[split - 1].end if split else end
        behind = units[split].start if split < len(units) else end
        met = bool(tail) and split > 0 and _is_repeated(tail[-1], units[split - 1])
        late = 0 if _is_anchored(tail, units[max(0, split - 2) : split]) else before - end
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
    places = [unit.start + unit.end for unit in units]
    row = [0.0] * (len(units) + 1)
    for old in tail:  # every answer comes here, so this is written for speed
        before, row, most = row, [0.0], 0.0
        first, last = old.start + old.end - 2 * JUMP, old.start + old.end + 2 * JUMP
        for column, place in enumerate(places):
            most = max(most, before[column + 1])
            if first <= place <= last and (alike := _likeness(old.text, units[column].text)):
                most = max(most, before[column] + alike / counts[old.word])
            row.append(most)
    return row


def _is_repeated(old: Unit, new: Unit) -> bool:
    """Return whether both have the same text at about the same place of a live stream."""
    return old.text == new.text and abs(old.start + old.end - new.start - new.end) <= 2 * JUMP


@lru_cache(MAX_CACHED)
def _likeness(old: str, new: str) -> float:
    """Return how alike the texts of two units are: 1 for the same word, ALIKE for another form of it, else 0."""
    if old == new:
        return 1.0
    short, long = sorted((old, new), key=len)
    longer = len(short) > 1 and not (old.isdecimal() or new.isdecimal()) and long.startswith(short)
    return ALIKE if longer or sound_of(old) == sound_of(new) else 0.0


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
