"""Scores what a reader of live words saw and when: latency, accuracy and stability, the same for every server.

Word errors are those of scoring.py on the whole text. For latency each final word is matched to the reference by its
spelling and place, not by time, because not every server gives times; a word that was heard wrongly has no latency.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.intervals import interval
from benchmarks.measure import spread
from benchmarks.scoring import matches, spoken_words, word_errors
from benchmarks.tracks import Truth

AHEAD = 10
"""How many more reference words than a partial has are searched for it."""

LAST_S = 1.5
"""The last seconds of a stream, in which no word may be missing, though it may be wrong."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One word as a reader got it, with times in seconds if the server gives them."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One moment: the words that became final, and the words shown after them. Seconds of the stream's clock."""

    at: float
    final: tuple[Shown, ...] = ()
    partial: tuple[str, ...] | None = None  # None: nothing was said of it; final words took the place of its first


def plain(words: Sequence[Truth] | Sequence[Shown]) -> list[str]:
    """Return each word in the form in which it is matched, one string for each: nothing for times to get lost in."""
    return ["".join(spoken_words(word.text)) or "-" for word in words]


@dataclass(slots=True)
class Scores:
    """The scores of one stream, or of many together. Lists of seconds have one entry for each right word."""

    errors: list[int] = field(default_factory=list)  # of each stream
    words: list[int] = field(default_factory=list)
    offline_errors: int = 0
    matched: int = 0
    offline_matched: int = 0
    lost_at_end: int = 0
    finals: int = 0
    erased: int = 0
    commit_s: list[float] = field(default_factory=list)
    first_seen_s: list[float] = field(default_factory=list)
    start_error_s: list[float] = field(default_factory=list)
    end_error_s: list[float] = field(default_factory=list)

    def add(
        self,
        truth: Sequence[Truth],
        seen: Sequence[Seen],
        *,
        offline: str,
        since: float = 0.0,
        language: str | None = None,
    ) -> None:
        """Score one stream.

        *offline*: what the same engine recognises in the whole recording; "" if that is not known.
        *since*: words that end earlier count for accuracy alone, because the server was still warming up.
        *language*: see scoring.spoken_words().
        """
        final = [(one.at, word) for one in seen for word in one.final]
        text = " ".join(word.text.strip() for _, word in final)
        said = spoken_words(" ".join(word.text for word in truth), language)
        self.words.append(len(said))
        self.errors.append(word_errors(said, spoken_words(text, language)))
        self.offline_errors += word_errors(said, spoken_words(offline, language))
        self.finals += len(final)
        self.erased += _count_erased(seen)
        column = dict(matches(plain(truth), plain([word for _, word in final])))
        whole = {row for row, _ in matches(plain(truth), plain([Shown(word) for word in offline.split()]))}
        self.matched += len(column)
        self.offline_matched += len(whole)
        self.lost_at_end += _count_lost_at_end(truth, column, whole, len(final))
        shown_at = _find_first_times(truth, seen, column)
        for row, number in column.items():
            (at, word), known = final[number], truth[row]
            if known.end < since:
                continue
            self.commit_s.append(at - known.end)
            self.first_seen_s.append(min(at, shown_at.get(row, at)) - known.end)
            if word.start is not None and word.end is not None:
                self.start_error_s.append(abs(word.start - known.start))
                self.end_error_s.append(abs(word.end - known.end))

    def table(self) -> dict[str, Any]:
        """Return all scores, in seconds and shares, rounded. Those of the whole recording only where it is known."""
        words, errors = sum(self.words), sum(self.errors)
        offline = {
            "wer_offline": _share(self.offline_errors, words),
            "wer_gap": round((errors - self.offline_errors) / max(1, words), 4),
            "coverage_of_offline": _share(self.matched, self.offline_matched),
        }
        return {
            "words": words,
            "errors": errors,
            "wer": _share(errors, words),
            "interval": interval(self.errors, self.words),
            "coverage": _share(self.matched, words),
            **(offline if self.offline_matched else {}),
            "lost_at_end": self.lost_at_end,
            "commit_s": spread(self.commit_s),
            "first_seen_s": spread(self.first_seen_s),
            "erasure": _share(self.erased, self.finals),
            "start_error_s": spread(self.start_error_s),
            "end_error_s": spread(self.end_error_s),
        }


def _find_first_times(truth: Sequence[Truth], seen: Sequence[Seen], column: Mapping[int, int]) -> dict[int, float]:
    """Return when each word of the reference first stood in a partial, at its place after the final words."""
    said = plain(truth)
    rows = {number: row for row, number in column.items()}
    shown: dict[int, float] = {}
    finals = expected = 0
    for one in seen:
        for number in range(finals, finals + len(one.final)):
            expected = max(expected, rows.get(number, -1) + 1)
        finals += len(one.final)
        partial = plain([Shown(text) for text in one.partial or ()])
        for row, _ in matches(said[expected : expected + len(partial) + AHEAD], partial):
            shown.setdefault(expected + row, one.at)
    return shown


def _count_lost_at_end(truth: Sequence[Truth], column: Mapping[int, int], whole: set[int], finals: int) -> int:
    """Return how many words fewer came in the last LAST_S than *whole* has there, as rows of the reference.

    A word that was heard wrongly is not lost.
    """
    end = max((word.end for word in truth), default=0.0)
    tail = next((row for row, word in enumerate(truth) if word.end > end - LAST_S), len(truth))
    before = max((number for row, number in column.items() if row < tail), default=-1)
    return max(0, sum(row >= tail for row in whole) - (finals - 1 - before))


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


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
