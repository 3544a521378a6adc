"""Finds figures in words: digits, number words, "oh" and "double seven". Pure.

A run is a row of words that may be one number. It has words with figures, fillers between them such as "uh", and pauses
of at most two seconds.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from text_to_num import find_numbers, text2num

from pipeline.audio import position
from pipeline.text.languages import GLUE_SIGNS, Vocabulary, vocabulary_of
from pipeline.words import Word

PAUSE = position(2.5)
"""The longest pause within a run: two seconds, and a half because words are recognised to end too early."""

HUNDRED, THOUSAND, MILLION = 100, 1000, 1_000_000
LEAST_ORDINAL = 10  # that is written in figures
MAX_GLUE = 3  # words in a row without a figure, within a run
MAX_ASIDE = 9  # the same if they are an aside such as "let me see"
MAX_CACHED = 4096
MANY_FIGURES = 4  # in a word with letters, which may be a number that letters were stuck to

_START, _END = re.compile(r"^[^\w@+]+"), re.compile(r"(?<![^\w@])[^\w@]+$")
"""Marks around a word. Without looking behind, n marks would take n² steps."""
_FIGURE, _FIGURES = re.compile(r"\d"), re.compile(r"\d+")
_CHINESE = {**{sign: str(value) for value, sign in enumerate("零一二三四五六七八九")}, "〇": "0", "○": "0", "两": "2"}  # noqa: RUF001  they are zeros
_HYPHEN = re.compile(r"[-‑]")  # noqa: RUF001  a hyphen too
_LETTERS = re.compile(r"[A-Z]{1,4}|[A-Za-z]{1,6}\d[A-Za-z\d]*|[B-HJ-Zb-hj-z]")


@lru_cache(MAX_CACHED)
def bare(text: str) -> str:
    """Return a word in lower case, without the punctuation around it."""
    return _trim(text).casefold()


def _trim(text: str) -> str:
    """Return a word without the punctuation around it."""
    return _START.sub("", _END.sub("", text))


@lru_cache(MAX_CACHED)
def _with_usual_figures(text: str) -> str:
    """Return a word with 0 to 9 in place of other figures, such as Arabic, Indian, raised and circled ones."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text)
    if set(_trim(plain)) <= _CHINESE.keys():
        return "".join(_CHINESE.get(sign, sign) for sign in plain)
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in plain)


@dataclass(frozen=True, slots=True)
class Token:
    """A word or a part of one, as text2num reads it."""

    content: str
    word: int
    apart: bool = False  # a mark or a pause stands before it
    plain: bool = False  # no part of a number, although it looks like one
    begins: bool = False  # a new number begins here, although nothing stands before it

    def text(self) -> str:
        return self.content

    def nt_separated(self, _before: "Token") -> bool:
        return self.apart or self.begins

    def not_a_number_part(self) -> bool:
        return self.plain


@dataclass(frozen=True, slots=True)
class WordRun:
    """A run from word *start* to *stop* (exclusive). *open*: the next word may belong to it too."""

    start: int
    stop: int
    open: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the figures of one language.

    *asides*: what people say in between, such as "okay" or "let me see", does not end a number.
    *ranges*: "or" does not end it either.
    """

    language: str | None
    asides: bool = False
    ranges: bool = False
    words: Vocabulary = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", vocabulary_of(self.language))

    def has_figure(self, text: str) -> bool:
        """Return whether a word is a figure, a number word or a word that is said for a figure, such as "oh"."""
        return _has_figure(text, self.language)

    def has_sign(self, text: str) -> bool:
        """Return whether a word may be in an account number, which has figures and spelled letters."""
        joined = without_hyphens(text)
        return self.has_figure(text) or bool(_LETTERS.fullmatch(_trim(joined))) or is_code(joined)

    def is_glue(self, text: str) -> bool:
        """Return whether a word may stand between the figures of one number."""
        plain = bare(text)
        known = self.words
        return (
            not plain
            or text in GLUE_SIGNS
            or any(plain in some for some in (known.glue, known.mistaken, known.scales, known.units))
            or (self.asides and (plain in known.asides or self.is_aside(text)))
            or (self.ranges and plain in known.ranges)
        )

    def is_aside(self, text: str) -> bool:
        """Return whether a word may be part of a phrase such as "let me see"."""
        some = self.words.hesitations | self.words.small
        return bare(text) in some or all(part in some for part in _HYPHEN.split(bare(text)))

    def runs(self, words: Sequence[Word], has: Callable[[str], bool], *, within: bool = False) -> Iterator[WordRun]:
        """Yield every run of words that *has* holds for, in order. *within*: the first word continues a run."""
        at = 0
        while at < len(words):
            if not has(words[at].text) and not (within and at == 0 and self.is_glue(words[0].text)):
                at += 1
                continue
            stop, here = at, at
            while here < len(words) and here - stop < self._longest_gap(words[stop:here]):
                if here > at and words[here].start - words[here - 1].end > PAUSE:
                    break
                if has(words[here].text) and not self._begins_aside(words, stop, here):
                    goes_on = within and stop == 0  # "let me" may have been said before these words
                    if not (goes_on or self.may_be_within(words[stop:here])):
                        break
                    stop = here + 1
                elif not self.is_glue(words[here].text):
                    break
                here += 1
            yield WordRun(at, stop, here == len(words))
            at = max(stop, at + 1)

    def _longest_gap(self, gap: Sequence[Word]) -> int:
        return MAX_ASIDE if self.asides and any(self.is_aside(word.text) for word in gap) else MAX_GLUE

    def _begins_aside(self, words: Sequence[Word], stop: int, at: int) -> bool:
        """Return whether the number word at *at*, in a gap from *stop* on, is part of an aside: "just one moment"."""
        if not (self.asides and stop < at and bare(words[at].text) in self.words.small):
            return False
        if at + 1 == len(words):
            return not self.may_be_within(words[stop:at])
        return bare(words[at + 1].text) in self.words.hesitations

    def may_be_within(self, gap: Sequence[Word]) -> bool:
        """Return whether all words of a gap between figures may be said within a number: small words need a reason."""
        if not self.asides:
            return True
        plain = [bare(word.text) for word in gap]
        return any(text in self.words.hesitations for text in plain) or not any(map(self._is_small, plain))

    def _is_small(self, plain: str) -> bool:
        """Return whether a word is said within a number only in phrases such as "let me see"."""
        known = self.words
        return plain in known.small and not any(plain in some for some in (known.asides, known.glue, known.mistaken))

    def figures(self, words: Sequence[Word]) -> str:
        """Return the figures that are said in *words*, such as "4242". A word like "for" counts as "4"."""
        plain = [part for word in words for part in self._plain_words(word)]
        return "".join(self._read(plain))

    def _plain_words(self, word: Word) -> list[Word]:
        """Return a word with usual figures, or its parts in lower case if it has none: capitals would be letters."""
        mistaken = self.words.mistaken.get(bare(word.text))
        text = _with_usual_figures(word.text) if mistaken is None else mistaken
        if not _FIGURE.search(text):
            return [replace(word, text=part) for part in _HYPHEN.split(text.casefold()) if part]
        return [word if text == word.text else replace(word, text=text)]

    def _read(self, words: Sequence[Word]) -> Iterator[str]:
        """Yield the figures in *words*, number by number, and those after "double" twice."""
        at = 0
        tokens = self.tokens(words)
        found = find_numbers(tokens, self.language or "", 0) if self.words.spelled else ()
        spans = {occurrence.start: occurrence for occurrence in found}
        while at < len(tokens):
            times = self.words.times.get(bare(tokens[at - 1].content), 1) if at else 1
            if at in spans:
                said = "".join(_FIGURE.findall(str(spans[at].text)))
                yield said[0] * times + said[1:] if said.startswith("0") else said * times  # "double oh seven" is 007
                at = max(at + 1, spans[at].end)
                continue
            if bare(tokens[at].content) in self.words.zeros:
                yield "0" * times
            yield "".join(_FIGURE.findall(tokens[at].content)) * times
            at += 1

    def tokens(self, words: Sequence[Word], before: str = "") -> list[Token]:
        """Return the words as text2num reads them: without marks, and split at hyphens. *before* is the word before."""
        tokens = _tokens_of(words, self.words, before)
        begins = set(self._beginnings(tokens)) if self.words.spelled else ()
        return [replace(token, begins=True) if at in begins else token for at, token in enumerate(tokens)]

    def _beginnings(self, tokens: Sequence[Token]) -> Iterator[int]:
        """Yield where a new number begins that text2num would add to the one before.

        A number is added to another one if it is smaller than the last unit of that: "one hundred two thousand" is one
        number, "one hundred two hundred" and "one thousand two thousand" are two. Figures that are said one by one
        after a hundred are not added to it: "eight hundred five five five".
        """
        hundred, scale = False, 0
        part = group = None  # where what the next hundred, and the next larger unit, multiplies begins
        for at, token in enumerate(tokens):
            value = number_value(bare(token.content), self.language or "")
            if token.apart or token.plain or (value is None and bare(token.content) not in self.words.ands):
                hundred, scale, part, group = False, 0, None, None
            if value is None:
                continue
            if value >= THOUSAND:
                if scale and value >= scale and (scale, value) != (THOUSAND, MILLION):  # "two thousand million"
                    yield at if group is None else group
                hundred, scale, part, group = False, value, None, None
            elif value >= HUNDRED:
                alone = value == HUNDRED
                begin = part if alone and part is not None else at
                if hundred:
                    yield begin
                    scale, group = 0, begin
                hundred, part = True, None
                group = begin if group is None else group
                if value % HUNDRED == 0 and all(map(self._is_digit, tokens[at + 1 : at + 3])) and at + 2 < len(tokens):
                    yield at + 1
            else:
                part = at if part is None else part
                group = part if group is None else group

    def _is_digit(self, token: Token) -> bool:
        plain = bare(token.content)
        value = 0 if plain in self.words.zeros else number_value(plain, self.language or "")
        return value is not None and value < 10 and not token.apart  # noqa: PLR2004  figures are smaller than ten


def _tokens_of(words: Sequence[Word], known: Vocabulary, before: str) -> list[Token]:
    tokens: list[Token] = []
    for number, word in enumerate(words):
        apart = bool(number) and (
            words[number - 1].text.endswith((",", ".", ";", ":", "?", "!"))
            or word.start - words[number - 1].end > PAUSE
        )
        for place, part in enumerate(_HYPHEN.split(_trim(word.text))):
            usual = known.variants.get(bare(part), part)
            tokens.append(Token(usual, number, apart and place == 0, _is_percent(word.text, before, known)))
        before = bare(word.text)
    return tokens


def _is_percent(text: str, before: str, known: Vocabulary) -> bool:
    """Return whether a word is part of "percent", as "cent" in "pour cent" is, which alone means a hundred."""
    plain = bare(text)
    return plain in known.percent or (before in known.percent and plain in ("cent", "ciento", "cien", "cento", "cem"))


@lru_cache(MAX_CACHED)
def _has_figure(text: str, language: str | None) -> bool:
    known = vocabulary_of(language)
    if figures := _FIGURE.findall(_with_usual_figures(text)):
        return len(figures) >= MANY_FIGURES or not is_code(text)
    plain = bare(text)
    if any(plain in some for some in (known.zeros, known.times, known.variants)):
        return True
    if not known.spelled or plain in known.scales:
        return False
    parts = _HYPHEN.split(plain)
    return _is_number_word(plain, language or "") or (
        len(parts) > 1 and all(_has_figure(part, language) for part in parts)
    )


@lru_cache(MAX_CACHED)
def _is_number_word(plain: str, language: str) -> bool:
    parts = [part for part in _HYPHEN.split(plain) if part]
    return bool(parts) and (
        all(number_value(part, language) is not None for part in parts) or _is_ordinal(parts, language)
    )


@lru_cache(MAX_CACHED)
def number_value(word: str, language: str) -> int | None:
    """Return the value of a word that is a number, such as 800 for "achthundert"; None for other words."""
    try:
        return int(text2num(word, language))
    except ValueError:
        return None


def _is_ordinal(parts: Sequence[str], language: str) -> bool:
    """Return whether a word is an ordinal that is written in figures. Smaller ones mean other things, too."""
    found = find_numbers([Token(part, 0) for part in parts], language, 0)
    return any(one.is_ordinal and _whole(str(one.text)) >= LEAST_ORDINAL for one in found)


def _whole(text: str) -> int:
    """Return the number that *text* begins with."""
    match = _FIGURES.match(text)
    return int(match[0]) if match else 0


def without_hyphens(text: str) -> str:
    """Return a word without hyphens: "N-W-B-K" is "NWBK" in an account number."""
    return _HYPHEN.sub("", text)


def is_code(text: str) -> bool:
    """Return whether a word mixes letters and figures, as "GB29" does and "21st" does not."""
    plain = bare(text)
    return bool(re.search(r"[a-z]{2}\d|\d[a-z]+\d|^[a-z]\d", plain))
