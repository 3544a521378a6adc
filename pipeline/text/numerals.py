"""Writes numbers in figures, as people do. Pure.

The library text2num finds them. The Joiner adds what it does not know: figures that are said one by one, years in
pairs, decades, times of day. It also decides what stays in words: ordinals below tenth except in dates, fractions such
as "three quarters", "hundreds of people", one and two by themselves. "3 million" and "a hundred and five" stay, too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from text_to_num import find_numbers

from pipeline.text.figures import LEAST_ORDINAL, Reader, Token, WordRun, bare
from pipeline.text.languages import Vocabulary
from pipeline.text.options import format_phone
from pipeline.text.phrase_replacement import as_one
from pipeline.words import Word

COUNTED = "".join(map(str, range(1, 21)))  # people who count are not saying a telephone number
GROUPED = 10_000  # numbers from here on get marks between thousands, as "12,500"
SPELLED_FIGURES = 3  # figures said one by one that are written together
LISTED = 3  # numbers with marks between them that are counted: "one, two, three"
CENTURIES = range(13, 21)
HOURS, MINUTES = range(1, 13), range(10, 60)
ROUND_MINUTES = ("15", "30", "45")  # others after "at" may be a price or an oven's degrees
DENOMINATORS = range(1, 20)  # of a fraction that is written in words
SMALL = ("0", "1", "2")

_WHOLE_OR_VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Number:
    """A number in tokens *start* to *stop* (exclusive). *repeated*: it was said with "double" or the like."""

    start: int
    stop: int
    text: str
    ordinal: bool = False
    repeated: bool = False

    @property
    def figure(self) -> bool:
        """Whether its figures are said one by one. text2num joins those after a zero."""
        one_by_one = len(self.text) == self.stop - self.start and (len(self.text) == 1 or self.text.startswith("0"))
        return self.repeated or (one_by_one and self.text.isdecimal())


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


@dataclass(frozen=True, slots=True)
class Joiner:
    """Joins numbers among these tokens. *before* is the word before them."""

    tokens: Sequence[Token]
    words: Vocabulary
    before: str

    def join(self, found: Sequence[Number]) -> list[Number]:
        """Return the numbers to write in figures, in order, from those that text2num has *found*."""
        numbers = self._with_decimals(self._with_repeated([one for one in found if not self._is_plural(one)]))
        joined: list[Number] = []
        at = 0
        while at < len(numbers):
            row = self._row(numbers, at)
            beside = at > 0 and self._is_beside(numbers[at - 1], row[0])
            whole = (
                self._time(row)
                or self._small_fraction(row)
                or _figures(row)
                or self._decade(row)
                or self._named(row)
                or (None if beside else self._year(row))
                or _decimal(row)
            )
            if whole:
                joined.append(whole)
                at += sum(one.stop <= whole.stop for one in row)
            elif parts := self._fraction(row):
                at += parts
            else:
                if self._is_written(numbers, at, row):
                    joined.append(replace(row[0], text=self._with_plural(row[0])))
                at += 1
        return joined

    def _word_at(self, at: int) -> str:
        """Return the word at a token, in lower case and without marks. Token -1 is the word before them."""
        if at == -1:
            return bare(self.before)
        return bare(self.tokens[at].content) if at < len(self.tokens) else ""

    def _next_word(self, at: int) -> str:
        """Return the word at a token if no mark or pause stands before it."""
        return self._word_at(at) if at < len(self.tokens) and not self.tokens[at].apart else ""

    def _row(self, numbers: Sequence[Number], at: int) -> list[Number]:
        """Return the numbers from *at* on that follow each other without a word or a mark between them."""
        row = [numbers[at]]
        for number in numbers[at + 1 :]:
            if number.start != row[-1].stop or self.tokens[number.start].apart:
                break
            row.append(number)
        return row

    # --- numbers of several parts ------------------------------------------------------------------------------------

    def _with_repeated(self, numbers: Sequence[Number]) -> Iterator[Number]:
        """Yield the numbers. A figure after "double" becomes two figures, and begins with that word."""
        for number in numbers:
            times = self.words.times.get(self._word_at(number.start - 1), 1) if number.start > 0 else 1
            if times > 1 and len(number.text) == number.stop - number.start == 1:
                yield replace(number, start=number.start - 1, text=number.text * times, repeated=True)
            else:
                yield number

    def _with_decimals(self, numbers: Iterator[Number]) -> list[Number]:
        """Join two numbers with the language's comma between them, as in "zwei Komma fünfundzwanzig"."""
        joined: list[Number] = []
        for number in numbers:
            last = joined[-1] if joined else None
            words = [self._word_at(at) for at in range(last.stop, number.start)] if last else []
            if last and words == [self.words.comma] and _WHOLE_OR_VERSION.fullmatch(last.text):
                joined[-1] = Number(last.start, number.stop, f"{last.text}{self.words.decimal_mark}{number.text}")
            else:
                joined.append(number)
        return joined

    def _time(self, row: Sequence[Number]) -> Number | None:
        """Return a time of day such as "3:30", if the words around *row* show that it is one."""
        if not self.words.clock or not row[0].text.isdecimal() or int(row[0].text) not in HOURS:
            return None
        match [one.text for one in row[1:]]:
            case [minutes] if minutes.isdecimal() and len(minutes) == len("30") and int(minutes) in MINUTES:
                common = minutes in ROUND_MINUTES
            case ["0", figure] if figure.isdecimal() and len(figure) == 1:
                minutes, common = f"0{figure}", True
            case _:
                return None
        stop = row[-1].stop
        after = self._next_word(stop)
        named = bool(after) and self.tokens[stop].content[:1].isupper()  # "at twelve fifteen Main Street"
        usual = common and not named and self._word_at(row[0].start - 1) in self.words.clock
        if usual or after in self.words.halves_of_day:
            return Number(row[0].start, stop, f"{row[0].text}:{minutes}")
        return None

    def _decade(self, row: Sequence[Number]) -> Number | None:
        years = self.words.decades.get(self._next_word(row[0].stop))
        if years is None or row[0].ordinal or not row[0].text.isdecimal() or int(row[0].text) not in CENTURIES:
            return None
        return Number(row[0].start, row[0].stop + 1, f"{row[0].text}{years}")

    def _year(self, row: Sequence[Number]) -> Number | None:
        """Return a year such as nineteen eighty-four or nineteen oh five; None if *row* does not begin with one."""
        parts = [one.text for one in row]
        if not self.words.pairs or not parts[0].isdecimal() or int(parts[0]) not in CENTURIES or row[0].ordinal:
            return None
        if self._next_word(row[-1].stop) in self.words.measures:
            return None
        match parts[1:]:
            case [second] if second.isdecimal() and len(second) == len("84") and not row[1].ordinal:
                return Number(row[0].start, row[1].stop, parts[0] + second)
            case ["0", third] if third.isdecimal() and len(third) == 1:
                return Number(row[0].start, row[2].stop, f"{parts[0]}0{third}")
        return None

    def _is_beside(self, number: Number, after: Number) -> bool:
        """Return whether a number, but for the day before a year, stands directly before another one."""
        day = number.ordinal or self._is_month(number.start - 1)
        return number.stop == after.start and not self.tokens[after.start].apart and not day

    def _named(self, row: Sequence[Number]) -> Number | None:
        """Return the number of a flight or the like, which is said as a figure and a pair: seven forty-seven."""
        if len(row) != len(("7", "47")) or self._word_at(row[0].start - 1) not in self.words.named:
            return None
        first, pair = row
        if not (first.figure and pair.text.isdecimal() and len(first.text) == 1 and len(pair.text) == len("47")):
            return None
        return None if pair.ordinal else Number(first.start, pair.stop, first.text + pair.text)

    def _small_fraction(self, row: Sequence[Number]) -> Number | None:
        """Return what is said as "point zero five", with no number before the point, as 0.05."""
        figures = list(takewhile(lambda one: one.figure, row))
        text = "".join(one.text for one in figures)
        point = row[0].start - 1
        if not self.words.comma or not text.startswith("0") or len(text) < len("05") or point < 0:
            return None
        if self._word_at(point) != self.words.comma or self.tokens[row[0].start].apart:
            return None
        return Number(point, figures[-1].stop, f"0{self.words.decimal_mark}{text}")

    # --- what stays in words -----------------------------------------------------------------------------------------

    def _is_plural(self, number: Number) -> bool:
        """Return whether a number only means "many", as "hundreds" does."""
        return number.stop - number.start == 1 and self._word_at(number.start) in self.words.plurals

    def _with_plural(self, number: Number) -> str:
        """Return the text of a number, with marks between thousands where the language has them."""
        text, several = number.text, number.stop - number.start > 1
        if not (text.isdecimal() and several):
            return text
        if int(text) >= GROUPED and self.words.group:
            return f"{int(text):,}".replace(",", self.words.group)
        return f"{text}s" if self.words.decades and self._word_at(number.stop - 1) in self.words.plurals else text

    def _fraction(self, row: Sequence[Number]) -> int:
        """Return how many numbers at the start of *row* make a fraction: 2 in "four fifths", 1 in "three quarters"."""
        first = row[0]
        if first.ordinal:
            return int(first.text.endswith("s"))
        if not first.text.isdecimal() or int(first.text) not in DENOMINATORS:
            return 0
        if len(row) > 1 and row[1].ordinal and (first.text == "1" or row[1].text.endswith("s")):
            return 2
        return int(self._next_word(first.stop) in self.words.parts)

    def _is_written(self, numbers: Sequence[Number], at: int, row: Sequence[Number]) -> bool:
        """Return whether a number is to be written in figures."""
        number = row[0]
        if number.repeated or self._means_other(number) or self._word_at(number.start) in self.words.hundreds:
            return False
        if number.text == self._word_at(number.start) and number.stop - number.start == 1:
            return False  # it has figures already
        if not number.text[:1].isdecimal() or (number.text == "0" and self._word_at(number.start) != "zero"):
            return False
        after_month = self._is_month(number.start - 1)
        if number.ordinal:
            return after_month or int(re.match(r"\d+", number.text)[0]) >= LEAST_ORDINAL  # type: ignore[index]  # it begins with a figure
        if number.text not in SMALL or after_month:
            return True
        stays_before = len(row) > 1 and (row[1].ordinal or self._means_other(row[1]))
        begins = at == 0 or numbers[at - 1].stop < number.start or self.tokens[number.start].apart
        alone = (len(row) == 1 or stays_before) and begins
        return not alone or self._is_in_range(numbers, at) or self._is_counted(numbers, at)

    def _means_other(self, number: Number) -> bool:
        """Return whether a number word means something else by itself, as "tausend" or "cent fois" do."""
        word = self._word_at(number.start)
        return number.stop - number.start == 1 and (
            word in self.words.others or (word, self._word_at(number.stop)) == self.words.often
        )

    def _is_month(self, at: int) -> bool:
        text = self.before if at == -1 else self.tokens[at].content
        return bare(text) in self.words.months and text[:1].isupper()

    def _is_in_range(self, numbers: Sequence[Number], at: int) -> bool:
        """Return whether a small number belongs to a larger one: "two or three", "between one and ten"."""
        number, after = numbers[at], numbers[at + 1] if at + 1 < len(numbers) else None
        if after is None or after.ordinal or after.text in SMALL or after.start != number.stop + 1:
            return False
        between = self._next_word(number.stop)
        if not self._next_word(after.start):
            return False
        pair = (self._word_at(number.start - 1), between)
        return (number.text == "2" and between in self.words.ranges) or pair in self.words.limits

    def _is_counted(self, numbers: Sequence[Number], at: int) -> bool:
        """Return whether a small number is one of several that are counted: "one, two, three"."""
        first = last = at
        while first > 0 and numbers[first - 1].stop == numbers[first].start:
            first -= 1
        while last + 1 < len(numbers) and numbers[last].stop == numbers[last + 1].start:
            last += 1
        row = numbers[first : last + 1]
        return len(row) >= LISTED and any(one.text not in SMALL for one in row)


def _figures(row: Sequence[Number]) -> Number | None:
    """Return the first figures of *row* as one number, if at least SPELLED_FIGURES are said one by one.

    They may have a hundred among them, as "eight hundred five five five", and a decimal at their end.
    """
    count = 0
    while count < len(row) and (row[count].figure or _is_hundred(row[count:])):
        count += 1
    text = "".join(one.text for one in row[:count])
    long_enough = text.startswith("0") or len(text) + 1 >= SPELLED_FIGURES
    if count < len(row) and long_enough and re.fullmatch(r"\d[.,]\d+", row[count].text):
        return Number(row[0].start, row[count].stop, text + row[count].text)
    if len(text) < SPELLED_FIGURES:
        return None
    return Number(row[0].start, row[count - 1].stop, text)


def _is_hundred(row: Sequence[Number]) -> bool:
    """Return whether *row* begins with a hundred and goes on with figures that are said one by one."""
    figures = sum(len(one.text) for one in takewhile(lambda one: one.figure, row[1:]))
    return figures > 1 and bool(re.fullmatch(r"[1-9]00", row[0].text))


def _decimal(row: Sequence[Number]) -> Number | None:
    """Return a number whose figures after the point are said one by one, which text2num reads in a few languages."""
    figures = list(takewhile(lambda one: one.figure, row[1:]))
    if not figures or not re.fullmatch(r"\d+[.,]\d", row[0].text):
        return None
    return Number(row[0].start, figures[-1].stop, row[0].text + "".join(one.text for one in figures))
