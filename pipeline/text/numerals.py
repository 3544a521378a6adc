"""Writes numbers in figures, as people do. Pure.

The library text2num finds them. This module adds what it does not know: years in pairs, figures said one by one, and
"3 million". Ordinals below tenth stay words. So do one and two by themselves, and "a hundred and five".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from text_to_num import find_numbers

from pipeline.text.figures import LEAST_ORDINAL, Reader, Token, WordRun, bare, tokens_of
from pipeline.text.phones import format_phone
from pipeline.text.wording import as_one
from pipeline.words import Word

GROUPED = 10_000  # numbers from here on get marks between thousands, as "12,500"
SPELLED_FIGURES = 3  # figures said one by one that are written together
CENTURIES = range(13, 21)
COUNTED = "".join(map(str, range(1, 21)))  # the figures of one, two, three: some are a telephone number of a region


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


def with_numerals(
    words: Sequence[Word], reader: Reader, before: str = "", *, phone_region: str | None = None
) -> list[Word]:
    """Return *words* with their numbers in figures. Words of one number become one word with their times.

    *before* is the word before them, in lower case. Telephone numbers are written as in *phone_region*.
    """
    if not reader.words.spelled or not any(reader.has_figure(word.text) for word in words):
        return list(words)
    written: list[Word] = []
    at = 0
    for run, number in _phones(words, reader, before, phone_region):
        written += _with_figures(words[at : run.start], reader, bare(written[-1].text) if written else before)
        written.append(as_one(words[run.start : run.stop], number))
        at = run.stop
    return written + _with_figures(words[at:], reader, bare(written[-1].text) if written else before)


def _phones(
    words: Sequence[Word], reader: Reader, before: str, phone_region: str | None
) -> Iterator[tuple[WordRun, str]]:
    """Yield where telephone numbers of the region are said, and how each is written."""
    if phone_region is None:
        return
    for run in reader.runs(words, reader.has_figure):
        some = words[run.start : run.stop]
        last = bare(words[run.start - 1].text) if run.start else before
        if any(bare(word.text) in reader.words.hundreds for word in some):
            continue
        plus = some[0].text.startswith("+") or last == "plus"
        figures = reader.figures(some)
        number = None if COUNTED.startswith(figures) else format_phone(figures, phone_region, plus=plus)
        if number is not None:
            yield run, number.removeprefix("+")  # which is said before the figures, or stands there


def _with_figures(words: Sequence[Word], reader: Reader, before: str) -> list[Word]:
    if not words:
        return []
    tokens = _with_scales(tokens_of(words, reader.words, before), reader)
    numbers = _join_numbers(_with_decimals(_find_numbers(tokens, reader), tokens, reader), tokens, reader)
    written: list[Word] = []
    at = 0
    for number in numbers:
        start, stop = tokens[number.start].word, tokens[number.stop - 1].word + 1
        if start < at or not _is_whole(number, tokens):
            continue
        written += words[at:start]
        written.append(as_one(words[start:stop], number.text))
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


def _find_numbers(tokens: Sequence[Token], reader: Reader) -> list[_Number]:
    """Return the numbers that are said in words, and "oh" between figures as 0."""
    found = [
        _Number(one.start, one.end, str(one.text), bool(one.is_ordinal))
        for one in find_numbers(list(tokens), reader.language or "", 0)
    ]
    zeros = [at for at, token in enumerate(tokens) if bare(token.content) in reader.words.zeros]
    return sorted([*found, *(_Number(at, at + 1, "0") for at in zeros)], key=lambda number: number.start)


def _with_decimals(numbers: Sequence[_Number], tokens: Sequence[Token], reader: Reader) -> list[_Number]:
    """Join two numbers with the language's comma between them, as in "zwei Komma fünfundzwanzig"."""
    joined: list[_Number] = []
    for number in numbers:
        whole = joined[-1] if joined else None
        between = tokens[whole.stop : number.start] if whole else []
        said = [bare(token.content) for token in between]
        if whole and reader.words.comma and said == [reader.words.comma] and whole.text.isdecimal():
            joined[-1] = _Number(whole.start, number.stop, f"{whole.text},{number.text}")
        else:
            joined.append(number)
    return joined


def _join_numbers(numbers: Sequence[_Number], tokens: Sequence[Token], reader: Reader) -> list[_Number]:
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
        if decimal := _decimal(row):
            joined.append(decimal)
            at += sum(one.stop <= decimal.stop for one in row)
            continue
        number = numbers[at]
        before_ordinal = len(row) > 1 and row[1].ordinal and not _is_written(row[1], tokens, alone=True)
        alone = (len(row) == 1 or before_ordinal) and (
            at == 0 or numbers[at - 1].stop < number.start or tokens[number.start].apart
        )
        said = bare(tokens[number.start].content)
        other = number.stop - number.start == 1 and (
            said in reader.words.others
            or (said, *(bare(token.content) for token in tokens[number.stop : number.stop + 1])) == reader.words.often
        )
        if not other and said not in reader.words.hundreds and _is_written(number, tokens, alone=alone):
            joined.append(replace(number, text=_group_digits(number, reader)))
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


def _decimal(row: Sequence[_Number]) -> _Number | None:
    """Return a number whose figures after the point are said one by one, which text2num reads in a few languages."""
    first, figures = row[0], _figures(row[1:])
    if not figures or not re.fullmatch(r"\d+[.,]\d", first.text):
        return None
    return _Number(first.start, figures[-1].stop, first.text + "".join(one.text for one in figures))


def _is_written(number: _Number, tokens: Sequence[Token], *, alone: bool) -> bool:
    """Return whether a number is written in figures, and not left as it was said."""
    if number.text == bare(tokens[number.start].content) and number.stop - number.start == 1:
        return False  # it has figures already
    if not number.text[:1].isdecimal() or (number.text == "0" and bare(tokens[number.start].content) != "zero"):
        return False
    if number.ordinal:
        return int(re.match(r"\d+", number.text)[0]) >= LEAST_ORDINAL  # type: ignore[index]  # it begins with a figure
    return not (alone and number.text in ("0", "1", "2"))


def _group_digits(number: _Number, reader: Reader) -> str:
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
