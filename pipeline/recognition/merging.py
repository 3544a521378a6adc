"""Finds where a new hypothesis of a live stream goes on after the words that are final already. Pure.

The audio of each hypothesis starts elsewhere, so its text and its times seldom are the same. So a word is not new just
because it differs, or is late. Hypotheses are compared word by word, in order: people do say "no, no, no, no".
"""

from collections.abc import Sequence

from pipeline.audio import RATE, position
from pipeline.recognition.spoken_form import longest_time, may_pause, plain
from pipeline.words import Word

TAIL = 8
"""How many of the last final words a new hypothesis is compared with."""

MISPLACED = 2
"""How many words at the beginning of a turn may be placed before the pause before it."""

NEAR = position(0.2)
"""How far apart two hypotheses may put the same word, where no other one is like it."""

JUMP = position(2)
"""How far apart two hypotheses of a live stream may put the same word."""


def find_new_words(committed: Sequence[Word], words: Sequence[Word], end: int) -> Sequence[Word]:
    """Return those of *words* that come after the final ones.

    *committed*: the last final words.
    *end*: the position before which no word becomes final any more.

    Each place between two of *words* gets a point for each word of *committed* before it, in order; those that end
    before the first of *words* are not in its audio, and would count the next "no" of many as one of them. It loses two
    points for each second between it and *end*, unless the last two final words come right before it: the last one may
    have been stretched over words that were not heard yet. New words begin at the first place with the most points. A
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


def spread(words: Sequence[Word], start: int, end: int) -> list[Word]:
    """Return *words* spread over start..end, with times in proportion to the lengths of their texts."""
    total = sum(len(word.text) for word in words)
    spread, done = [], 0
    for word in words:
        begin = start + (end - start) * done // total
        done += len(word.text)
        spread.append(word.at(begin, start + (end - start) * done // total))
    return spread


def are_same(one: Word, other: Word, apart: int) -> bool:
    """Return whether both are the same word, with times at most *apart*."""
    near = abs(one.start + one.end - other.start - other.end) <= 2 * apart
    return near and plain(one.text) == plain(other.text)
