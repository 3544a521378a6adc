"""Turns words into subtitle cues that can be read while they are shown. formats.py calls cues() for SRT and VTT.

Theory. Of all ways to cut a run of words into cues that fit the screen, the one with the lowest sum of costs is taken.
That is a shortest path, found by dynamic programming. The costs follow the rules of human subtitlers: end a cue at the
end of a sentence, else at a comma or a breath; show it long enough to be read; do not cut more often than needed. A cue
has at most max_columns x max_lines columns, so the search looks back at most that far, and its time is linear in the
number of words.

The default numbers of the screen (two lines, at most 7 s; columns by language) and of the reader (columns a second by
language) are those of Netflix's style guides for adults: see languages.py. Text without spaces is cut between
graphemes, rather at a clause mark, and in Japanese rather after kana, where a word mostly ends.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from pipeline.audio import RATE
from pipeline.languages import (
    CLAUSE_ENDS,
    SENTENCE_ENDS,
    LanguageProfile,
    columns,
    continues_grapheme,
    graphemes,
    profile_of,
)
from pipeline.words import Word

SHORTEST_MS = 1000
"""Long enough for every viewer to notice. Shorter cues are extended into the silence after them, if there is any."""

CALM_MS = 2000
"""Successive cues shorter than this flicker, so merging them is preferred."""

PAUSE_MS = 2000
"""Words after such a silence begin a new cue; otherwise they would be shown long before they are spoken."""

BREATH_MS = 300
"""A silence that listeners notice as a pause: a good place to cut."""

# Costs, in "columns a second too fast": a cut in the middle of a phrase is as bad as a cue 10 columns/s too fast.
ONE_MORE_CUE = 6.0
CUT_AT_SENTENCE = 0.0
CUT_AT_BREATH = 2.0
CUT_AT_CLAUSE = 3.0
CUT_IN_PHRASE = 10.0
CUT_IN_WORD = 14.0  # where a script without spaces probably has none of its word ends
SENTENCE_INSIDE = 8.0  # more than ONE_MORE_CUE: sentences share a cue only if one alone would be too short
SECOND_SHORT = 4.0  # per second shorter than CALM_MS

_CLOSING = "\"')]}\u00bb\u2019\u201d\u203a\u300d\u300f\uff09\u3011"
_INITIAL = re.compile(r"[^\W\d_]\.$")  # "J." of "J. S. Bach"
_KANA = re.compile("[\u3041-\u30ff]")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_NOT_FIRST = re.compile(  # closing marks, small kana, Thai and Lao vowels that follow their consonant
    "[\u3001\u3002\uff0c\uff0e\uff01\uff1f\uff1a\uff1b\u300d\u300f\uff09\u3011\u3009\u300b\u2026\u30fb\u3005\u30fc"
    "\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u30a1\u30a3\u30a5\u30a7\u30a9\u30c3\u30e3\u30e5\u30e7"
    "\u0e2f\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3\u0ec6]"
)
_NOT_LAST = re.compile(  # opening marks, vowels that precede their consonant
    "[\u300c\u300e\uff08\u3010\u3008\u300a\u0e40-\u0e44\u0ec0-\u0ec4]"
)
_UNWRITABLE = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")  # ends a line or a cue, or confuses a player
_ARROW = re.compile("-{2,}>")  # not the plain "-->": taking one dash from "--->" would leave an arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtitleShape:
    """What fits the screen, and how fast its readers read. Clients may choose other values for a job."""

    max_columns: int | None = None
    """The width of a line; None: that of the language. A full-width character or an emoji takes two columns."""

    max_lines: int = 2

    max_cue_s: float = 7.0
    """The longest time that a cue is shown. Viewers would read a longer one twice."""

    columns_per_second: float | None = None
    """The reading speed; None: that of the language. Cues are extended into silence to reach it, fast speech may
    exceed it."""

    @property
    def max_cue_ms(self) -> int:
        return round(self.max_cue_s * 1000)

    def of_language(self, language: str | None) -> "Screen":
        """Return what fits the screen where people speak *language*."""
        profile = profile_of(language)
        return Screen(
            self.max_columns or profile.columns,
            self.max_lines,
            self.max_cue_ms,
            self.columns_per_second or profile.columns_per_second,
        )


USUAL_SHAPE = SubtitleShape()


@dataclass(frozen=True, slots=True)
class Screen:
    """What fits the screen in one language."""

    max_columns: int
    max_lines: int
    max_cue_ms: int
    columns_per_second: float


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines that fit the shape, none empty, at least one, shown from *start_ms* until *end_ms* > *start_ms*."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word, or a part of a word that is wider than a line. *cost* is the cost of a cut after the piece."""

    text: str
    columns: int  # without the space before it
    spaced: bool
    start_ms: int
    end_ms: int
    cost: float


def milliseconds(position: int) -> int:
    """Return the position in whole milliseconds, halves rounded up, as seconds() rounds."""
    return (position * 2000 + RATE) // (2 * RATE)


def cues(
    runs: Iterable[Sequence[Word]],
    duration: int,
    shape: SubtitleShape = USUAL_SHAPE,
    *,
    language: str | None = None,
    label_columns: int = 0,
) -> list[Cue]:
    """Return cues of *shape* that never overlap, with each word once.

    *runs*: words in order of their starts. No cue has words of two runs or two languages, so a further run changes only
    the end of the last cue.
    *duration*: no cue ends later, but for words without length, which get 1 ms each.
    *language*: of words that do not say theirs.
    *label_columns*: what a speaker's name takes of each line, but never more than half of it.

    A cue starts with its first word. It ends with its last word, or later if it needs time to be read and silence
    follows, but before the next cue and at most max_cue_s after its start. Words wider than a line are cut into parts.
    """
    found: list[Cue] = []
    speeds: list[float] = []
    for run in runs:
        for spoken, group in groupby(_whole_graphemes(run), key=lambda word: word.language or language):
            screen = shape.of_language(spoken)
            screen = replace(screen, max_columns=max(screen.max_columns - label_columns, screen.max_columns // 2))
            for block in _between_pauses(_pieces_of(list(group), screen, spoken)):
                found.extend(_Block(block, screen).cues())
            speeds += [screen.columns_per_second] * (len(found) - len(speeds))
    return _time(found, milliseconds(duration), speeds, shape.max_cue_ms)


def end_before_next(found: Sequence[Cue]) -> list[Cue]:
    """Return the cues of several speakers, in order, so that none is shown while another is.

    A cue ends where the next one starts. If it would be too short to be seen, the next one starts later instead: after
    SHORTEST_MS, or at the middle of both if they are short.
    """
    apart: list[Cue] = []
    for cue in sorted(found, key=lambda cue: cue.start_ms):
        start, before = cue.start_ms, apart[-1] if apart else None
        if before is not None and before.end_ms > start:
            seen = min(before.end_ms, before.start_ms + SHORTEST_MS, (before.start_ms + cue.end_ms) // 2)
            start = max(start, before.start_ms + 1, seen)
            apart[-1] = replace(before, end_ms=start)
        apart.append(replace(cue, start_ms=start, end_ms=max(cue.end_ms, start + 1)))
    return apart


# From words to pieces


def _whole_graphemes(run: Sequence[Word]) -> list[Word]:
    """Return *run*, in which words are joined that share a grapheme, or whose marks no line may begin or end with."""
    whole: list[Word] = []
    for word in run:
        before = whole[-1] if whole else word
        joins = not word.spaced and before.language == word.language
        if whole and joins and _belong_together(before.text, word.text):
            whole[-1] = replace(before, text=before.text + word.text, end=max(before.end, word.end))
        else:
            whole.append(word)
    return whole


def _belong_together(before: str, after: str) -> bool:
    marked = _NOT_FIRST.match(after) or _NOT_LAST.match(before[-1])
    return marked is not None or continues_grapheme(before, after)


def _pieces_of(words: Sequence[Word], screen: Screen, language: str | None) -> Iterator[_Piece]:
    profile = profile_of(language)
    for word, following in zip(words, [*words[1:], None], strict=False):
        yield from _pieces(word, screen.max_columns, _cost_of_cut(word, following, profile))


def _pieces(word: Word, max_columns: int, cost: float) -> Iterator[_Piece]:
    text = _ARROW.sub("->", _UNWRITABLE.sub(" ", word.text).strip())
    parts = [*_parts(text, max_columns, spaced=word.spaced)]
    widths = [0, *accumulate(columns(part) for part, _ in parts)]
    start, end = milliseconds(word.start), milliseconds(word.end)
    for index, (part, spaced) in enumerate(parts):
        yield _Piece(
            text=part,
            columns=widths[index + 1] - widths[index],
            spaced=spaced,
            start_ms=start + (end - start) * widths[index] // widths[-1],
            end_ms=start + (end - start) * widths[index + 1] // widths[-1],
            cost=cost if index == len(parts) - 1 else CUT_IN_PHRASE,
        )


def _parts(text: str, most: int, *, spaced: bool) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a word, of at most *most* columns, each with whether a space is before it. Usually one.

    A part has whole graphemes. It begins with no mark that a line may not begin with, unless there is no other place.
    """
    for token in text.split(" ") if text else ():
        part: list[str] = []
        width = 0
        for sign in graphemes(token):
            wide = columns(sign)
            if width + wide > most:
                kept = _count_before_cut(part, sign)
                yield "".join(part[:kept]), spaced
                part, spaced = part[kept:], False
                width = sum(map(columns, part))
            part.append(sign)
            width += wide
        yield "".join(part), spaced
        spaced = True


def _count_before_cut(part: Sequence[str], following: str) -> int:
    """Return how many of the graphemes *part* stay before a cut at their end, or 1 or 2 before it."""
    signs = [*part, following]
    for kept in range(len(part), max(0, len(part) - 3), -1):
        if not (_NOT_FIRST.match(signs[kept]) or _NOT_LAST.match(signs[kept - 1])):
            return kept
    return len(part)


def _cost_of_cut(word: Word, following: Word | None, profile: LanguageProfile) -> float:
    if following is None:
        return CUT_AT_SENTENCE
    if _ends_sentence(word.text, following.text, profile.titles):
        return CUT_AT_SENTENCE
    if milliseconds(following.start) - milliseconds(word.end) >= BREATH_MS:
        return CUT_AT_BREATH
    if word.text.rstrip(_CLOSING).endswith(CLAUSE_ENDS) or (following.spaced and not profile.spaced):
        return CUT_AT_CLAUSE
    return CUT_IN_PHRASE if following.spaced else _cost_in_unspaced(word.text[-1], following.text[0])


def _cost_in_unspaced(last: str, first: str) -> float:
    """Return the cost of a cut between two signs of a text without spaces.

    Japanese words mostly end in hiragana and begin with another script. Latin letters and figures belong together.
    """
    if last.isascii() and first.isascii():
        return CUT_IN_WORD
    japanese = _KANA.match(last) or _KANA.match(first)
    return CUT_IN_WORD if japanese and not (_HIRAGANA.match(last) and not _HIRAGANA.match(first)) else CUT_IN_PHRASE


def _ends_sentence(text: str, following: str, titles: frozenset[str]) -> bool:
    bare = text.rstrip(_CLOSING)
    if not bare.endswith(SENTENCE_ENDS):
        return False
    if bare.endswith("."):
        return not (following[0].islower() or _INITIAL.match(bare) or bare.lower() in titles)
    return True


def _between_pauses(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    block: list[_Piece] = []
    for piece in pieces:
        if block and piece.start_ms - block[-1].end_ms >= PAUSE_MS:
            yield block
            block = []
        block.append(piece)
    if block:
        yield block


# From pieces to cues


class _Block:
    """The pieces between two long pauses. It finds the cheapest way to cut them."""

    def __init__(self, pieces: Sequence[_Piece], screen: Screen) -> None:
        self._pieces = pieces
        self._screen = screen
        self._widths = [0, *accumulate(piece.columns + piece.spaced for piece in pieces)]
        self._sentences = [0, *accumulate(piece.cost == CUT_AT_SENTENCE for piece in pieces)]

    def cues(self) -> Iterator[Cue]:
        for first, after in self._cuts():
            lines = tuple(self._text(*line) for line in self._lines(first, after))
            yield Cue(self._pieces[first].start_ms, self._pieces[after - 1].end_ms, lines)

    def _cuts(self) -> list[tuple[int, int]]:
        """Return the cheapest cues, each as (its first piece, the piece after its last)."""
        least = [0.0]
        came_from = [0]
        earliest = 0
        for after in range(1, len(self._pieces) + 1):
            while not self._fits(earliest, after):  # and it will not fit with more pieces after it
                earliest += 1
            best, start = min((least[first] + self._cost(first, after), first) for first in range(earliest, after))
            least.append(best)
            came_from.append(start)
        ends = [len(self._pieces)]
        while ends[-1] > 0:
            ends.append(came_from[ends[-1]])
        return [(first, after) for after, first in pairwise(ends)][::-1]

    def _fits(self, first: int, after: int) -> bool:
        """Return whether these pieces fit the screen and max_cue_s. A single piece always does."""
        if after - first == 1:
            return True
        spoken_ms = self._pieces[after - 1].end_ms - self._pieces[first].start_ms
        return spoken_ms <= self._screen.max_cue_ms and self._fit_lines(first, after, self._screen.max_lines)

    def _cost(self, first: int, after: int) -> float:
        last = self._pieces[after - 1]
        start_ms = self._pieces[first].start_ms
        until_ms = self._pieces[after].start_ms if after < len(self._pieces) else last.end_ms + SHORTEST_MS
        shown_ms = max(1, min(until_ms - start_ms, self._screen.max_cue_ms))
        too_fast = max(0.0, self._width(first, after) * 1000 / shown_ms - self._screen.columns_per_second)
        too_short = max(0, CALM_MS - shown_ms) / 1000 * SECOND_SHORT
        inside = (self._sentences[after - 1] - self._sentences[first]) * SENTENCE_INSIDE
        return ONE_MORE_CUE + last.cost + min(too_fast, 2 * CUT_IN_PHRASE) + too_short + inside

    def _width(self, first: int, after: int) -> int:
        """Return the columns of these pieces in one line, 0 for none."""
        if first == after:
            return 0
        return self._widths[after] - self._widths[first] - self._pieces[first].spaced

    def _fill(self, first: int, after: int) -> int:
        """Return the piece after the last one that fits a line that starts with *first*."""
        reach = self._widths[first] + self._pieces[first].spaced + self._screen.max_columns
        return bisect_right(self._widths, reach, first + 1, after + 1) - 1

    def _fit_lines(self, first: int, after: int, count: int) -> bool:
        """Return whether these pieces fit *count* lines."""
        for _ in range(count - 1):
            if first < after:
                first = self._fill(first, after)
        return self._width(first, after) <= self._screen.max_columns

    def _lines(self, first: int, after: int) -> list[tuple[int, int]]:
        """Return as few lines as the cue needs, of similar length, cut at a comma rather than in a phrase."""
        count = next(n for n in range(1, self._screen.max_lines + 1) if self._fit_lines(first, after, n))
        lines: list[tuple[int, int]] = []
        for rest in range(count - 1, 0, -1):
            middle = self._line_end(first, after, rest)
            lines.append((first, middle))
            first = middle
        return [*lines, (first, after)]

    def _line_end(self, first: int, after: int, rest: int) -> int:
        """Return where the first line best ends when *rest* lines, at least one, follow it."""
        return min(
            (middle for middle in range(self._fill(first, after), first, -1) if self._fit_lines(middle, after, rest)),
            key=lambda middle: (
                self._pieces[middle - 1].cost + abs(self._width(first, middle) - self._width(middle, after) / rest)
            ),
        )

    def _text(self, first: int, after: int) -> str:
        line = "".join(f" {piece.text}" if piece.spaced else piece.text for piece in self._pieces[first:after])
        return _ARROW.sub("->", line.removeprefix(" "))


# From word times to screen times


def _time(found: Sequence[Cue], duration_ms: int, speeds: Sequence[float], max_cue_ms: int) -> list[Cue]:
    starts: list[int] = []
    for cue in found:
        starts.append(max(cue.start_ms, starts[-1] + 1) if starts else cue.start_ms)
    timed: list[Cue] = []
    for index, (start, cue) in enumerate(zip(starts, found, strict=True)):
        reading = int(sum(map(columns, cue.lines)) * 1000 / speeds[index])
        wanted = max(cue.end_ms, min(start + max(SHORTEST_MS, reading), duration_ms))
        end = min(wanted, start + max_cue_ms, *starts[index + 1 : index + 2])
        timed.append(Cue(start, max(end, start + 1), cue.lines))
    return timed
