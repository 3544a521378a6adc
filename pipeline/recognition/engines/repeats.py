"""Finds rows of repeated figures in an answer, and shortens those that are too long for their time.

People say "4242 4242 4242 4242", and Whisper often continues such a row until its window is full. The time shows that:
nobody says figures so fast. Only the time of the whole row counts, because within it the model no longer follows the
audio. whisper.py decodes a window with such a row again, and gates.py judges an answer without it.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise

from pipeline.audio import position
from pipeline.recognition.merging import Span
from pipeline.recognition.spoken_form import FIGURE_SOUNDS, Unit, units_of
from pipeline.words import Word

LONGEST = 8
"""The most figures in a round: "4242" repeats two, "1234 1234" four."""

ROUNDS = 3
"""The fewest rounds in a row."""

FEWEST = 8
"""The fewest figures in a row. A shorter one may be a telephone number."""

FIGURE = position(0.16)
"""The least time of each figure in a row. Nobody says them faster."""

USUAL = position(0.2)
"""If a row is too long for its time, it keeps as many figures as have this much time each."""

PAUSE = position(0.1)
"""The least pause at which a row may have ended."""


def repeated_figures(units: Sequence[Unit]) -> Iterator[range]:
    """Yield the rows of figures among *units* that repeat, as ranges of indices."""
    at = 0
    while at < len(units):
        end = max((_end_of_row(units, at, size) for size in range(1, LONGEST + 1)), default=at)
        if end > at:
            yield range(at, end)
        at = max(end, at + 1)


def _end_of_row(units: Sequence[Unit], at: int, size: int) -> int:
    """Return the end of the row that begins at unit *at* and has rounds of *size* figures; *at* if there is none."""
    end = at
    while _is_one_figure(units, end) and (end < at + size or units[end].text == units[end - size].text):
        end += 1
    return end if end - at >= max(ROUNDS * size, FEWEST) else at


def _is_one_figure(units: Sequence[Unit], at: int) -> bool:
    """Return whether the unit *at* is a figure, but not one of the zeros that a word such as "billion" stands for."""
    if at >= len(units) or not units[at].is_figure:
        return False
    return at == 0 or units[at].upto is not None or units[at - 1].word != units[at].word


def without_repeated_figures(text: str) -> str:
    """Return *text* without the words of rows of figures that repeat."""
    texts = text.split()
    units = units_of([Word(word, 0, 0, 0.0) for word in texts])
    left_out = {units[index].word for row in repeated_figures(units) for index in row}
    return " ".join(word for number, word in enumerate(texts) if number not in left_out) if left_out else text


def has_repeats(words: Sequence[Word]) -> bool:
    """Return whether *words* repeat figures."""
    return any(repeated_figures(units_of(words)))


def better_repeats(first: Sequence[Word], again: Sequence[Word], voiced: Sequence[Span]) -> bool:
    """Return whether *again* has no fewer units outside rows than *first*, and no more surplus figures.

    Figures are surplus if the speech in *voiced* has no time for them.
    """
    ours, theirs = fit_figures(first, voiced), fit_figures(again, voiced)
    surplus = len(units_of(first)) - len(units_of(ours))
    return _count_others(again) >= _count_others(first) and len(units_of(again)) - len(units_of(theirs)) <= surplus


def with_surroundings(
    words: tuple[Word, ...], voiced: Sequence[Span], recognise: Callable[[int, int], tuple[Word, ...]]
) -> tuple[Word, ...]:
    """Return *words* with what is said before a row of figures at their start, and after one at their end.

    Such a row may stand for all the speech around it. *recognise* returns the words between two positions.
    """
    units = units_of(words)
    rows = list(repeated_figures(units))
    pauses = [(end + start) // 2 for (_, end), (start, _) in pairwise(voiced) if start - end >= PAUSE]
    if not rows or not pauses:
        return words
    start, end = voiced[0][0], voiced[-1][1]
    before = _before_figures(recognise(start, pauses[0])) if rows[0][0] == 0 else ()
    start = before[-1].end if before else start
    within = [pause for pause in pauses if pause > max(start, units[rows[-1][0]].start)]
    at_end = all(unit.is_figure for unit in units[rows[-1][0] :])
    after, end = _words_after(within, end, recognise) if at_end else ((), end)
    if not before and not after:
        return words
    fitting = tuple(
        replace(word, start=min(max(word.start, start), end), end=min(max(word.end, start), end)) for word in words
    )
    spans = [(max(start, first), min(end, last)) for first, last in voiced if first < end and last > start]
    return (*before, *fit_figures(fitting, spans), *after)


def _words_after(
    pauses: Sequence[int], end: int, recognise: Callable[[int, int], tuple[Word, ...]]
) -> tuple[tuple[Word, ...], int]:
    """Return the words after a row that ends in one of *pauses*, and that pause; no words and *end* if there are none.

    The audio from the last pause on is recognised, then that from earlier pauses, until the words begin with figures or
    are no more than before.
    """
    after: tuple[Word, ...] = ()
    at = end
    for pause in reversed(pauses):
        words = recognise(pause, end)
        if not _before_figures(words) or len(units_of(words)) <= len(units_of(after)):
            break
        after, at = words, pause
    return after, at


def _before_figures(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the *words* before the first figure. "For two" counts as figures, because it sounds like "four two"."""
    units = units_of(words)
    alike = [unit.is_figure or unit.sound in FIGURE_SOUNDS for unit in units]
    first = next((at for at, unit in enumerate(units) if unit.is_figure or all(alike[at : at + 2])), None)
    return words if first is None else words[: units[first].word]


def _count_others(words: Sequence[Word]) -> int:
    """Return how many units *words* have, without the words that are part of a row."""
    units = units_of(words)
    in_row = {units[index].word for row in repeated_figures(units) for index in row}
    return sum(unit.word not in in_row for unit in units)


def fit_figures(words: Sequence[Word], voiced: Sequence[Span]) -> tuple[Word, ...]:
    """Return *words* without the last figures of rows that are too long for the speech in their time.

    *voiced* has the spans of speech; if it is empty, all time counts as speech.
    """
    units = units_of(words)
    beyond = {index for row in repeated_figures(units) for index in _beyond(units, row, words, voiced)}
    indices = {number: list(group) for number, group in groupby(range(len(units)), key=lambda at: units[at].word)}
    texts = [_text_without(beyond, word.text, units, indices.get(at, [])) for at, word in enumerate(words)]
    return tuple(replace(word, text=text) for word, text in zip(words, texts, strict=True) if text)


def _text_without(beyond: Container[int], text: str, units: Sequence[Unit], indices: Sequence[int]) -> str:
    """Return *text* without the units *beyond*, "" if nothing is left. Its own units are those at *indices*."""
    if not indices or not any(index in beyond for index in indices):
        return text
    ends = [units[index].upto for index in indices]
    if None in ends:
        return "" if all(index in beyond for index in indices) else text
    parts = [text[start:end] for start, end in pairwise((0, *ends))]
    remaining = [part for part, index in zip(parts, indices, strict=True) if index not in beyond]
    return "".join(remaining) + text[ends[-1] :] if remaining else ""


def _beyond(units: Sequence[Unit], row: range, words: Sequence[Word], voiced: Sequence[Span]) -> range:
    """Return the last units of *row* for which there is no time. Zeros at the end of a number take none."""
    start = units[row[0] - 1].end if row[0] else 0  # within a row the times are wrong
    end = units[row[-1] + 1].start if row[-1] + 1 < len(units) else max([words[-1].end, *(last for _, last in voiced)])
    spans = [(max(start, first), min(end, last)) for first, last in voiced or [(units[row[0]].start, end)]]
    room = sum(max(0, last - first) for first, last in spans)
    costs = list(accumulate(_takes_time(units[index], words) for index in row))
    if costs[-1] * FIGURE <= room:
        return row[:0]
    return row[max(1, sum(cost * USUAL <= room for cost in costs)) :]


def _takes_time(unit: Unit, words: Sequence[Word]) -> bool:
    """Return whether the figure takes time: the zeros of "3000" do not, if it is read as "three thousand"."""
    text = words[unit.word].text
    rest = "" if unit.upto is None else text[unit.upto :]
    zeros = unit.text == "0" and not any(sign.isdecimal() and sign != "0" for sign in rest)
    return not zeros or not any(sign.isdecimal() and sign != "0" for sign in text)
