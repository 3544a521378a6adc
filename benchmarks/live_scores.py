"""Scores what a reader of live words saw and when: latency, accuracy and stability. Pure; the same for every server.

The definitions are those of benchmarks/README.md. Words are matched to the reference in the form that
benchmarks/normalising.py gives them, and not by time, because not every server gives times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measure import spread
from benchmarks.normalising import tokens
from benchmarks.scoring import matches, spoken_words, word_errors
from pipeline.audio import RATE
from pipeline.recognition.turns import TurnOptions

AHEAD = 10
"""How many more reference words than a partial has are searched for it."""

LAST_S = 1.5
"""The last seconds of a stream, in which no word may be missing, though it may be wrong."""

PAUSE_S = 0.5
"""Silence between two words that makes them belong to two utterances."""

EDGE_S = 1.0
"""The beginning and the end of an utterance, where a live recogniser loses words most easily."""

ALIKE_LETTERS = 3
"""A shorter word is said twice only when it is the very same."""

ENDPOINTING_S = TurnOptions().endpointing / RATE
"""The silence after which our sessions close an utterance: no server can close it sooner."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One word of the reference, with times in seconds of the stream's clock."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One word as a reader got it, with times if the server gives them."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One moment: the words that became final, and the words shown after them. Seconds of the stream's clock."""

    at: float
    final: tuple[Shown, ...] = ()
    partial: tuple[str, ...] | None = None  # None: nothing was said of it; final words took the place of its first
    closed: bool = False  # an utterance ended with this


@dataclass(slots=True)
class Scores:
    """The scores of one stream, or of many together."""

    said: int = 0
    errors: int = 0
    offline_errors: int = 0
    matched: int = 0
    offline_matched: int = 0
    lost_at_end: int = 0
    lost_first: int = 0
    lost_last: int = 0
    said_twice: int = 0
    offline_said_twice: int = 0
    finals: int = 0
    erased: int = 0
    commit: list[float] = field(default_factory=list)
    first_seen: list[float] = field(default_factory=list)
    first_partial: list[float] = field(default_factory=list)
    first_commit: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    start_error: list[float] = field(default_factory=list)
    end_error: list[float] = field(default_factory=list)
    laal: list[float] = field(default_factory=list)

    def add(
        self,
        truth: Sequence[Truth],
        seen: Sequence[Seen],
        *,
        offline: str,
        since: float = 0.0,
        language: str | None = None,
        edges: tuple[int, int] = (0, 0),
    ) -> None:
        """Score one stream. Words that end before *since* count for accuracy only.

        *offline* is what the same engine recognises in the whole recording. *edges* counts the words that are cut at
        the start and the end of the stream; recognising them is not an error.
        """
        stream = _Stream(truth, seen, language, edges)
        whole = spoken_words(offline, language)
        self._accuracy(stream, whole[within_edges(stream.said, whole, edges)])
        self.finals += len(stream.finals)
        self.erased += _count_erased(seen)
        self._words(stream, since)
        self._utterances(stream, since)

    def table(self) -> dict[str, Any]:
        """Return all scores, in seconds and shares, rounded."""
        offline = {
            "wer_offline": _share(self.offline_errors, self.said),
            "wer_gap": round((self.errors - self.offline_errors) / max(1, self.said), 4),
            "coverage_of_offline": _share(self.matched, self.offline_matched),
            "said_twice_offline": self.offline_said_twice,
            "lost_first_s": self.lost_first,
            "lost_last_s": self.lost_last,
        }
        return {
            "words": self.said,
            "errors": self.errors,
            "wer": _share(self.errors, self.said),
            "coverage": _share(self.matched, self.said),
            "said_twice": self.said_twice,
            **(offline if self.offline_matched else {}),
            "lost_at_end": self.lost_at_end,
            "commit_s": spread(self.commit),
            "first_seen_s": spread(self.first_seen),
            "first_partial_s": spread(self.first_partial),
            "first_commit_s": spread(self.first_commit),
            "final_s": spread(self.final),
            "final_beyond_endpointing_s": spread([final - ENDPOINTING_S for final in self.final]),
            "laal_s": round(sum(self.laal) / max(1, len(self.laal)), 3),
            "erasure": _share(self.erased, self.finals),
            "start_error_s": spread(self.start_error),
            "end_error_s": spread(self.end_error),
        }

    def _accuracy(self, stream: "_Stream", offline: list[str]) -> None:
        matched = set(stream.column)
        offline_matched = {row for row, _ in matches(stream.said, offline)}
        self.said += len(stream.said)
        self.errors += word_errors(stream.said, stream.heard)
        self.offline_errors += word_errors(stream.said, offline)
        self.said_twice += count_said_twice(stream.said, stream.heard)
        self.offline_said_twice += count_said_twice(stream.said, offline)
        self.matched += len(matched)
        self.offline_matched += len(offline_matched)
        self.lost_at_end += stream.count_lost_at_end(offline_matched)
        for rows in stream.utterances():
            first, last = stream.truth[rows[0]].start, stream.truth[rows[-1]].end
            opening = [row for row in rows if stream.truth[row].start < first + EDGE_S]
            closing = [row for row in rows if stream.truth[row].end > last - EDGE_S]
            self.lost_first += stream.count_lost(opening, offline_matched)
            self.lost_last += stream.count_lost(closing, offline_matched)

    def _words(self, stream: "_Stream", since: float) -> None:
        shown_at = stream.first_shown()
        for row, column in stream.column.items():
            word = stream.truth[row]
            if word.end < since:
                continue
            final = stream.finals[column]
            self.commit.append(final.at - word.end)
            self.first_seen.append(min(final.at, shown_at.get(row, final.at)) - word.end)
            for errors, known, heard in (
                (self.start_error, stream.exact[row].start, final.shown.start),
                (self.end_error, stream.exact[row].end, final.shown.end),
            ):
                if known is not None and heard is not None:
                    errors.append(abs(heard - known))

    def _utterances(self, stream: "_Stream", since: float) -> None:
        closings = [one.at for one in stream.seen if one.closed]
        for rows in stream.utterances():
            first, last = stream.truth[rows[0]], stream.truth[rows[-1]]
            known = [row for row in rows if row in stream.column]
            if first.start < since or not known:
                continue
            self.first_commit.append(stream.finals[stream.column[known[0]]].at - first.start)
            delays = [at - first.start for at in stream.times(rows)]
            self.laal.append(_laal(delays, len(rows), last.end - first.start))
            partial = next((one.at for one in stream.seen if one.at > first.start and (one.partial or one.final)), None)
            if partial is not None:
                self.first_partial.append(partial - first.start)
            closed = next((at for at in closings if at >= stream.finals[stream.column[known[-1]]].at), None)
            if closed is not None and known[-1] == rows[-1]:
                self.final.append(closed - last.end)


def within_edges(said: Sequence[str], heard: Sequence[str], edges: tuple[int, int]) -> slice:
    """Return the part of *heard* to compare: words at the ends are left out if that makes fewer errors."""
    parts = [
        slice(before, max(0, len(heard) - after)) for before in range(edges[0] + 1) for after in range(edges[1] + 1)
    ]
    return min(parts, key=lambda part: word_errors(said, heard[part]))


def count_said_twice(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return how many words of *heard* repeat their neighbours, exactly or nearly, and were not said."""
    matched = {column for _, column in matches(said, heard)}
    count = at = 0
    while at < len(heard):
        free = next((to for to in range(at, len(heard)) if to in matched), len(heard)) - at
        repeated = next((size for size in range(free, 0, -1) if _repeats(heard, at, size)), 0)
        count += repeated
        at += repeated or 1
    return count


def _repeats(heard: Sequence[str], at: int, size: int) -> bool:
    """Return whether the *size* words from *at* on equal those before them or those after them."""
    these = heard[at : at + size]
    before, behind = heard[max(0, at - size) : at], heard[at + size : at + 2 * size]
    return any(len(these) == len(those) and all(map(_alike, these, those)) for those in (before, behind))


def _alike(one: str, other: str) -> bool:
    """Return whether the words are equal or differ in one letter, as "than" and "then" do."""
    if one == other or min(len(one), len(other)) < ALIKE_LETTERS or one.isdecimal() or other.isdecimal():
        return one == other
    return word_errors(one, other) <= 1


def timed_tokens(words: Sequence[Truth] | Sequence[Shown], language: str | None) -> list[Shown]:
    """Return the tokens of *words*. A start or end is None if no word starts or ends there: "$20" is two tokens."""
    found = tokens([word.text for word in words], language)
    starts = [not at or found[at - 1].last < token.first for at, token in enumerate(found)]
    ends = [at + 1 == len(found) or token.last < found[at + 1].first for at, token in enumerate(found)]
    return [
        Shown(token.text, words[token.first].start if starts[at] else None, words[token.last].end if ends[at] else None)
        for at, token in enumerate(found)
    ]


@dataclass(frozen=True, slots=True)
class _Final:
    """One token of the final words."""

    shown: Shown
    at: float  # when all of it was final
    words: int  # final words up to it, itself included


class _Stream:
    """The words of one stream and its reference. *column* maps rows of the reference to matching final words."""

    def __init__(
        self, truth: Sequence[Truth], seen: Sequence[Seen], language: str | None, edges: tuple[int, int]
    ) -> None:
        said = tokens([word.text for word in truth], language)
        self.truth = [Truth(token.text, truth[token.first].start, truth[token.last].end) for token in said]
        self.said = [word.text for word in self.truth]
        self.exact = timed_tokens(truth, language)
        self.seen = seen
        self._language = language
        words = [(one.at, word) for one in seen for word in one.final]
        heard = tokens([word.text for _, word in words], language)
        finals = [
            _Final(shown, words[token.last][0], token.last + 1)
            for token, shown in zip(heard, timed_tokens([word for _, word in words], language), strict=True)
        ]
        self.finals = finals[within_edges(self.said, [token.text for token in heard], edges)]
        self.heard = [final.shown.text for final in self.finals]
        self.column = dict(matches(self.said, self.heard))

    def first_shown(self) -> dict[int, float]:
        """Return when each word of the reference first appeared in a partial, at its place after the final words."""
        rows = {column: row for row, column in self.column.items()}
        shown: dict[int, float] = {}
        words = column = expected = 0
        for one in self.seen:
            words += len(one.final)
            while column < len(self.finals) and self.finals[column].words <= words:
                expected = max(expected, rows.get(column, -1) + 1)
                column += 1
            partial = [token.text for token in tokens(one.partial or (), self._language)]
            for row, _ in matches(self.said[expected : expected + len(partial) + AHEAD], partial):
                shown.setdefault(expected + row, one.at)
        return shown

    def count_lost(self, rows: Sequence[int], heard: set[int]) -> int:
        """Return how many of the neighbouring *rows* are *heard* in the whole recording but have no word here.

        A word that was recognised wrongly is not lost.
        """
        before = max((row for row in self.column if row < rows[0]), default=-1)
        behind = min((row for row in self.column if row > rows[-1]), default=len(self.truth))
        said_between = behind - before - 1
        heard_between = self.column.get(behind, len(self.finals)) - self.column.get(before, -1) - 1
        return max(0, min(sum(row in heard and row not in self.column for row in rows), said_between - heard_between))

    def count_lost_at_end(self, heard: set[int]) -> int:
        """Return how many words fewer there are in the last LAST_S than *heard* has there, as rows of the reference."""
        end = max((word.end for word in self.truth), default=0.0)
        tail = next((row for row, word in enumerate(self.truth) if word.end > end - LAST_S), len(self.truth))
        before = max((column for row, column in self.column.items() if row < tail), default=-1)
        return max(0, sum(row >= tail for row in heard) - (len(self.finals) - 1 - before))

    def times(self, rows: Sequence[int]) -> list[float]:
        """Return when the final words of an utterance came: the matching ones, and all between them."""
        said_by = {column: row for row, column in self.column.items()}
        row, found = 0, []
        for column, final in enumerate(self.finals):
            row = said_by.get(column, row)
            if rows[0] <= row <= rows[-1]:
                found.append(final.at)
        return found

    def utterances(self) -> list[list[int]]:
        """Return the rows of the reference, separated at pauses."""
        parted: list[list[int]] = []
        for row, word in enumerate(self.truth):
            if not row or word.start - self.truth[row - 1].end >= PAUSE_S:
                parted.append([])
            parted[-1].append(row)
        return parted


def _count_erased(seen: Sequence[Seen]) -> int:
    """Return how many words of partials were deleted or replaced by the next partial or the final words."""
    erased = 0
    shown: tuple[str, ...] = ()
    for one in seen:
        partial = shown[len(one.final) :] if one.partial is None else one.partial
        now = (*(word.text for word in one.final), *partial)
        changed = (i for i, old in enumerate(shown) if now[i : i + 1] != (old,))
        erased += len(shown) - next(changed, len(shown))
        shown = partial
    return erased


def _laal(delays: Sequence[float], said: int, length: float) -> float:
    """Return the length-adaptive average lagging (Papi et al. 2022) of an utterance of *length* s with *said* words.

    *delays* are those of its final words, at least one, in seconds since it began.
    """
    pace = length / max(len(delays), said)
    counted = next((i + 1 for i, delay in enumerate(delays) if delay >= length), len(delays))
    return sum(delay - i * pace for i, delay in enumerate(delays[:counted])) / counted


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
