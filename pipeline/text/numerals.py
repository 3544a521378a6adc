"""Writes numbers in figures, as people do. Pure.

The library text2num finds them. joining.py adds what it does not know, such as years in pairs, and decides what stays
in words. "3 million" and "a hundred and five" stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from text_to_num import find_numbers

from pipeline.text.figures import Reader, Token, WordRun, bare
from pipeline.text.joining import Joiner, Number
from pipeline.text.phones import format_phone
from pipeline.text.wording import as_one
from pipeline.words import Word

COUNTED = "".join(map(str, range(1, 21)))  # people who count are not saying a telephone number


def with_numerals(
    words: Sequence[Word], reader: Reader, before: str = "", *, phone_region: str | None = None
) -> list[Word]:
    """Return *words* with their numbers in figures. The words of one number become one word that lasts as long as they.

    *before* is the word before them. Telephone numbers are written as in *phone_region*.
    """
    days = reader.words.days
    if not reader.words.spelled or not any(reader.has_figure(one.text) or bare(one.text) in days for one in words):
        return list(words)
    written: list[Word] = []
    at = 0
    for run, number in _phones(words, reader, before, phone_region):
        written += _with_figures(words[at : run.start], reader, written[-1].text if written else before)
        written.append(as_one(words[run.start : run.stop], number))
        at = run.stop
    return written + _with_figures(words[at:], reader, written[-1].text if written else before)


def _phones(
    words: Sequence[Word], reader: Reader, before: str, phone_region: str | None
) -> Iterator[tuple[WordRun, str]]:
    """Yield where telephone numbers of the region are said, and how each is written."""
    if phone_region is None:
        return
    for run in reader.runs(words, reader.has_figure):
        some = words[run.start : run.stop]
        last = bare(words[run.start - 1].text if run.start else before)
        if any(bare(word.text) in reader.words.hundreds for word in some):
            continue
        plus = some[0].text.startswith("+") or last == "plus"
        figures = reader.figures(some)
        number = None if COUNTED.startswith(figures) else format_phone(figures, phone_region, plus=plus)
        if number is not None:
            yield run, number.removeprefix("+")  # it is there already, as a sign or a word


def _with_figures(words: Sequence[Word], reader: Reader, before: str) -> list[Word]:
    if not words:
        return []
    tokens = _with_scales(reader.tokens(words, bare(before)), reader)
    numbers = Joiner(tokens, reader.words, before).join(_find_numbers(tokens, reader))
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
    """Return the tokens, of which "oh", and a "million" that nothing is added to, are marked as no part of numbers."""
    marked: list[Token] = []
    added = False  # whether this token follows a larger unit of the same number
    for at, token in enumerate(tokens):
        plain = bare(token.content)
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        is_scale = plain in reader.words.scales
        follows = after is not None and not after.nt_separated(token) and reader.has_figure(after.content)
        added = added and not token.nt_separated(token) and (is_scale or reader.has_figure(token.content))
        keep = is_scale and not follows and not added
        added = added or (is_scale and follows)
        marked.append(replace(token, plain=True) if keep or plain in reader.words.zeros else token)
    return marked


def _find_numbers(tokens: Sequence[Token], reader: Reader) -> list[Number]:
    """Return the numbers that are said in words, and "oh" between figures as 0."""
    found = [
        Number(one.start, one.end, str(one.text), bool(one.is_ordinal))
        for one in find_numbers(list(tokens), reader.language or "", 0)
    ]
    zeros = [at for at, token in enumerate(tokens) if bare(token.content) in reader.words.zeros]
    return sorted([*found, *(Number(at, at + 1, "0") for at in zeros)], key=lambda number: number.start)


def _is_whole(number: Number, tokens: Sequence[Token]) -> bool:
    """Return whether a number has its words as a whole: "one" in "one-way" does not."""
    before, after = number.start - 1, number.stop
    return not (
        (before >= 0 and tokens[before].word == tokens[number.start].word)
        or (after < len(tokens) and tokens[after].word == tokens[number.stop - 1].word)
    )
