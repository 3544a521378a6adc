"""Writes numbers in figures, as people do. Pure.

text2num finds them. What it does not know is added here: years in pairs, figures said one by one, and "3 million".
Ordinals below tenth stay words, and so do one and two by themselves, and "a hundred and five".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from text_to_num import find_numbers

from pipeline.text.figures import Reader, Token, bare, tokens_of
from pipeline.words import Word

LEAST_ORDINAL = 10
GROUPED = 10_000  # numbers from here on get marks between thousands, as "12,500"
SPELLED_FIGURES = 3  # figures said one by one that are written together
DOZENS, CENTURIES = range(10, 100), range(13, 21)
_EDGES = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in tokens *start* to *stop* (exclusive)."""

    start: int
    stop: int
    text: str
    ordinal: bool = False

    @property
    def figure(self) -> bool:
        """Whether its figures are said one by one. text2num joins those after a zero."""
        one_by_one = len(self.text) == self.stop - self.start and (len(self.text) == 1 or self.text.startswith("0"))
        return one_by_one and self.text.isdecimal()


def with_numerals(words: Sequence[Word], reader: Reader, before: str = "") -> list[Word]:
    """Return *words* with their numbers in figures. Words of one number become one word with their times.

    *before* is the word before them, in lower case.
    """
    if not reader.words.spelled or not any(reader.has_figure(word.text) for word in words):
        return list(words)
    tokens = _with_scales(tokens_of(words, reader.words, before), reader)
    numbers = _joined(_found(tokens, reader), tokens, reader)
    written: list[Word] = []
    at = 0
    for number in numbers:
        start, stop = tokens[number.start].word, tokens[number.stop - 1].word + 1
        if start < at or not _is_whole(number, tokens):
            continue
        written += words[at:start]
        written.append(_as_one(words[start:stop], number.text))
        at = stop
    return [*written, *words[at:]]


def _with_scales(tokens: list[Token], reader: Reader) -> list[Token]:
    """Mark "million" after figures, where no smaller number follows, so that it stays a word."""
    marked = []
    for at, token in enumerate(tokens):
        after = tokens[at + 1].content if at + 1 < len(tokens) else ""
        follows = bool(after) and not tokens[at + 1].apart and reader.has_figure(after)
        keep = bare(token.content) in reader.words.scales and not follows
        zero = bare(token.content) in reader.words.zeros
        marked.append(replace(token, plain=True) if keep or zero else token)
    return marked


def _found(tokens: Sequence[Token], reader: Reader) -> list[_Number]:
    """Return the numbers that are said in words, and "oh" between figures as 0."""
    found = [
        _Number(one.start, one.end, str(one.text), bool(one.is_ordinal))
        for one in find_numbers(list(tokens), reader.language or "", 0)
    ]
    zeros = [at for at, token in enumerate(tokens) if bare(token.content) in reader.words.zeros]
    return sorted([*found, *(_Number(at, at + 1, "0") for at in zeros)], key=lambda number: number.start)


def _joined(numbers: Sequence[_Number], tokens: Sequence[Token], reader: Reader) -> list[_Number]:
    """Join figures said one by one and years said in pairs, then leave out what stays in words."""
    joined: list[_Number] = []
    at = 0
    while at < len(numbers):
        row = _row(numbers, at, tokens)
        figures = _figures(row)
        if sum(len(one.text) for one in figures) >= SPELLED_FIGURES:
            last = row[len(figures) - 1]
            joined.append(_Number(row[0].start, last.stop, "".join(one.text for one in figures)))
            at += len(figures)
            continue
        year = _year(row) if reader.words.pairs else None
        if year is not None:
            joined.append(year)
            at += sum(one.stop <= year.stop for one in row)
            continue
        number = numbers[at]
        alone = len(row) == 1 and (at == 0 or numbers[at - 1].stop < number.start or tokens[number.start].apart)
        if bare(tokens[number.start].content) not in reader.words.hundreds and _is_written(number, tokens, alone=alone):
            joined.append(replace(number, text=_grouped(number, reader)))
        at += 1
    return joined


def _row(numbers: Sequence[_Number], at: int, tokens: Sequence[Token]) -> list[_Number]:
    """Return the numbers from *at* on that follow each other without a word or a mark between them."""
    row = [numbers[at]]
    for number in numbers[at + 1 :]:
        if number.start != row[-1].stop or tokens[number.start].apart:
            break
        row.append(number)
    return row


def _figures(row: Sequence[_Number]) -> list[_Number]:
    figures: list[_Number] = []
    for number in row:
        if not number.figure:
            break
        figures.append(number)
    return figures


def _year(row: Sequence[_Number]) -> _Number | None:
    """Return a year such as nineteen eighty-four or nineteen oh five; None if *row* does not begin with one."""
    parts = [one.text for one in row[:3]]
    if not parts[0].isdecimal() or int(parts[0]) not in CENTURIES or row[0].ordinal:
        return None
    match parts[1:]:
        case [second, *_] if second.isdecimal() and len(second) == len("84") and not row[1].ordinal:
            return _Number(row[0].start, row[1].stop, parts[0] + second)
        case ["0", third] if third.isdecimal() and len(third) == 1:
            return _Number(row[0].start, row[2].stop, f"{parts[0]}0{third}")
    return None


def _is_written(number: _Number, tokens: Sequence[Token], *, alone: bool) -> bool:
    """Return whether a number is written in figures, and not left as it was said."""
    if number.text == bare(tokens[number.start].content) and number.stop - number.start == 1:
        return False  # it has figures already
    if not number.text[:1].isdecimal() or (number.text == "0" and bare(tokens[number.start].content) != "zero"):
        return False
    if number.ordinal:
        return int(re.match(r"\d+", number.text)[0]) >= LEAST_ORDINAL  # type: ignore[index]  # it begins with a figure
    return not (alone and number.text in ("0", "1", "2"))


def _grouped(number: _Number, reader: Reader) -> str:
    """Return the text of a number, with marks between thousands where the language has them."""
    text = number.text
    if not (text.isdecimal() and int(text) >= GROUPED and number.stop - number.start > 1 and reader.words.group):
        return text
    return f"{int(text):,}".replace(",", reader.words.group)


def _is_whole(number: _Number, tokens: Sequence[Token]) -> bool:
    """Return whether a number has all parts of its words: "one-way" is none."""
    before, after = number.start - 1, number.stop
    return not (
        (before >= 0 and tokens[before].word == tokens[number.start].word)
        or (after < len(tokens) and tokens[after].word == tokens[number.stop - 1].word)
    )


def _as_one(words: Sequence[Word], text: str) -> Word:
    """Return *words* as one with this text, and the marks around them."""
    first, last = _EDGES.match(words[0].text), _EDGES.match(words[-1].text)
    assert first is not None
    assert last is not None
    return replace(
        words[0],
        text=f"{first[1]}{text}{last[3]}",
        end=words[-1].end,
        probability=min(word.probability for word in words),
        heard=" ".join(word.text for word in words),
    )
