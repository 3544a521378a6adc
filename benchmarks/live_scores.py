"""What a reader of live words saw and when -> latency, accuracy and steadiness. Pure; the same for every server.

The definitions are those of benchmarks/README.md. Words are matched to the reference by text alone, because not every
server gives times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.measure import spread
from pipeline.audio import RATE
from pipeline.recognition.scoring import matches, spoken, word_errors
from pipeline.recognition.turns import TurnOptions

AHEAD = 10
"""Reference words beyond the length of a partial that are searched for it."""

LAST_S = 1.5
"""The end of a stream, of which nothing may be lost: words may be misheard there as elsewhere, but not be missing."""

PAUSE_S = 0.5
"""Silence between two words that makes them belong to two utterances."""

ENDPOINTING_S = TurnOptions().endpointing / RATE
"""The silence after which our sessions close an utterance: no server can close it sooner."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One word as it was said; seconds on the stream's clock."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One word as a reader got it; times where the server gives them."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One moment: words that became permanent, and what is shown after them. Seconds on the stream's clock."""

    at: float
    final: tuple[Shown, ...] = ()
    partial: tuple[str, ...] | None = None  # None: nothing was said of it; final words took the place of its first
    closed: bool = False  # an utterance ended with this


@dataclass(slots=True)
class Scores:
    """Of one stream, or of many together."""

    said: int = 0
    errors: int = 0
    offline_errors: int = 0
    matched: int = 0
    offline_matched: int = 0
    lost_at_end: int = 0
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

    def add(self, truth: Sequence[Truth], seen: Sequence[Seen], *, offline: str, since: float = 0.0) -> None:
        """Score one stream; words that end before *since* count for accuracy alone.

        *offline* is what the same engine says of the whole recording.
        """
        stream = _Stream(truth, seen)
        self._accuracy(stream, spoken(offline))
        self.finals += len(stream.finals)
        self.erased += _erased(seen)
        self._words(stream, since)
        self._utterances(stream, since)

    def table(self) -> dict[str, Any]:
        """Everything, in seconds and shares, rounded."""
        offline = {
            "wer_offline": _share(self.offline_errors, self.said),
            "wer_gap": round((self.errors - self.offline_errors) / max(1, self.said), 4),
            "coverage_of_offline": _share(self.matched, self.offline_matched),
        }
        return {
            "words": self.said,
            "errors": self.errors,
            "wer": _share(self.errors, self.said),
            "coverage": _share(self.matched, self.said),
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
        self.errors += word_errors(stream.said, [text for _, text, _ in stream.finals])
        self.offline_errors += word_errors(stream.said, offline)
        self.matched += len(matched)
        self.offline_matched += len(offline_matched)
        self.lost_at_end += stream.lost_at_end(offline_matched)

    def _words(self, stream: "_Stream", since: float) -> None:
        shown_at = stream.first_shown()
        for row, column in stream.column.items():
            word = stream.truth[row]
            if word.end < since:
                continue
            at, _, shown = stream.finals[column]
            self.commit.append(at - word.end)
            self.first_seen.append(min(at, shown_at.get(row, at)) - word.end)
            if shown.start is not None and shown.end is not None:
                self.start_error.append(abs(shown.start - word.start))
                self.end_error.append(abs(shown.end - word.end))

    def _utterances(self, stream: "_Stream", since: float) -> None:
        closings = [one.at for one in stream.seen if one.closed]
        for rows in stream.utterances():
            first, last = stream.truth[rows[0]], stream.truth[rows[-1]]
            known = [row for row in rows if row in stream.column]
            if first.start < since or not known:
                continue
            self.first_commit.append(stream.finals[stream.column[known[0]]][0] - first.start)
            delays = [at - first.start for at in stream.times(rows)]
            self.laal.append(_laal(delays, len(rows), last.end - first.start))
            partial = next((one.at for one in stream.seen if one.at > first.start and (one.partial or one.final)), None)
            if partial is not None:
                self.first_partial.append(partial - first.start)
            closed = next((at for at in closings if at >= stream.finals[stream.column[known[-1]]][0]), None)
            if closed is not None and known[-1] == rows[-1]:
                self.final.append(closed - last.end)


class _Stream:
    """The words of one stream beside its truth. *column* maps rows of the truth to the final words that say them."""

    def __init__(self, truth: Sequence[Truth], seen: Sequence[Seen]) -> None:
        self.truth = [replace(word, text=text) for word in truth for text in spoken(word.text)]
        self.said = [word.text for word in self.truth]
        self.seen = seen
        self.finals = [(one.at, text, word) for one in seen for word in one.final for text in spoken(word.text)]
        self.column = dict(matches(self.said, [text for _, text, _ in self.finals]))

    def first_shown(self) -> dict[int, float]:
        """When each word of the truth was first part of a partial, where it is expected after the final words."""
        rows = {column: row for row, column in self.column.items()}
        shown: dict[int, float] = {}
        finals = expected = 0
        for one in self.seen:
            for _ in (text for word in one.final for text in spoken(word.text)):
                expected = max(expected, rows.get(finals, -1) + 1)
                finals += 1
            partial = [text for word in one.partial or () for text in spoken(word)]
            for row, _ in matches(self.said[expected : expected + len(partial) + AHEAD], partial):
                shown.setdefault(expected + row, one.at)
        return shown

    def lost_at_end(self, heard: set[int]) -> int:
        """How many words fewer came out after LAST_S before the end than were *heard* there, rows of the truth."""
        end = max((word.end for word in self.truth), default=0.0)
        tail = next((row for row, word in enumerate(self.truth) if word.end > end - LAST_S), len(self.truth))
        before = max((column for row, column in self.column.items() if row < tail), default=-1)
        return max(0, sum(row >= tail for row in heard) - (len(self.finals) - 1 - before))

    def times(self, rows: Sequence[int]) -> list[float]:
        """When the final words of an utterance came: those that say its words, and what was heard between them."""
        said_by = {column: row for row, column in self.column.items()}
        row, found = 0, []
        for column, (at, _, _) in enumerate(self.finals):
            row = said_by.get(column, row)
            if rows[0] <= row <= rows[-1]:
                found.append(at)
        return found

    def utterances(self) -> list[list[int]]:
        """The rows of the truth, parted at pauses."""
        parted: list[list[int]] = []
        for row, word in enumerate(self.truth):
            if not row or word.start - self.truth[row - 1].end >= PAUSE_S:
                parted.append([])
            parted[-1].append(row)
        return parted


def _erased(seen: Sequence[Seen]) -> int:
    """Words of partials that the next partial or the final words deleted or replaced."""
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
    """Length-adaptive average lagging (Papi et al. 2022) of one utterance of *length* seconds with *said* words.

    *delays* are those of its final words, at least one, in seconds since it began.
    """
    pace = length / max(len(delays), said)
    counted = next((i + 1 for i, delay in enumerate(delays) if delay >= length), len(delays))
    return sum(delay - i * pace for i, delay in enumerate(delays[:counted])) / counted


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
