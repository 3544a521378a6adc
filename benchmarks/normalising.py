"""Turns words into tokens in one form, so that what was said and what was recognised can be compared.

English only: "It's Mr. Smith's 3rd, $20" and "it is mister smiths third twenty dollars" give the same tokens. Numbers
become digits, contractions and titles are written out, and fillers such as "uh" are dropped. Neighbouring numbers
become one, because 1775 sounds like 17 and 75. Words of other languages only become lower case and lose their
punctuation.

Normalising tokens again does not change them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from unicodedata import category, normalize


@dataclass(frozen=True, slots=True)
class Token:
    """A unit of text to compare, and the indices of the first and the last word that it came from."""

    text: str
    first: int
    last: int


def tokens(words: Sequence[str], language: str | None = None) -> list[Token]:
    """Return the tokens of *words*, in order. A word may give no token or several, and several words may give one."""
    if language is None or language.partition("-")[0] != "en":
        return [Token(part, at, at) for at, word in enumerate(words) for part in _fold(word).split()]
    return _join_numbers(_read_numbers(_write_out(_split(words))))


_SYMBOLS = {
    "$": "dollars",
    "£": "pounds",
    "€": "euros",
    "%": "percent",
    "&": "and",
    "@": "at",
    "°": "degrees",
}
_MONEY = ("dollars", "pounds", "euros")
_ONE_COIN = {coin[:-1]: coin for coin in _MONEY}  # "a 20 dollar note" is also written "a $20 note"
_WRITTEN_OUT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("uh", "uhm", "um", "umm", "hm", "hmm", "mm", "mmm", "mhm", "erm"), ()),
    **{one: (coin,) for one, coin in _ONE_COIN.items()},
    "alright": ("all", "right"),
    "cannot": ("can", "not"),
    "dr": ("doctor",),
    "etc": ("et", "cetera"),
    "etcetera": ("et", "cetera"),
    "gonna": ("going", "to"),
    "gotta": ("got", "to"),
    "jr": ("junior",),
    "mr": ("mister",),
    "mrs": ("missus",),
    "ok": ("okay",),
    "percent": ("per", "cent"),
    "prof": ("professor",),
    "sr": ("senior",),
    "st": ("saint",),
    "vs": ("versus",),
    "wanna": ("want", "to"),
    "centre": ("center",),
    "grey": ("gray",),
    "theatre": ("theater",),
}
_BRITISH = re.compile(r"^((?:dis|un)?(?:behavi|col|fav|flav|harb|hon|hum|lab|neighb|rum))our")
_CONTRACTIONS: Mapping[str, tuple[str, ...]] = {
    "can't": ("can", "not"),
    "let's": ("let", "us"),
    "shan't": ("shall", "not"),
    "won't": ("will", "not"),
}
_ENDINGS = {"d": "would", "ll": "will", "m": "am", "re": "are", "s": "is", "ve": "have"}
_HAS = {"d": "had", "s": "has"}  # instead of would and is, before a participle
_PARTICIPLES = frozenset({"been", "better", "done", "gone", "got", "had"})
_WITH_IS = frozenset({"he", "here", "how", "it", "she", "that", "there", "this", "what", "when", "where", "who", "why"})
"""Words after which 's means "is" or "has". After others it is mostly a genitive, and only loses its apostrophe."""

_FIGURE_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEEN_WORDS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS_WORDS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINAL_WORDS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)  # fmt: skip
_FIGURES = {word: value for value, word in enumerate(_FIGURE_WORDS)}
_UNITS = {word: value for value, word in enumerate(_FIGURE_WORDS + _TEEN_WORDS)}
_TENS = {word: 10 * value for value, word in enumerate(_TENS_WORDS, start=2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {
    **dict(enumerate(_ORDINAL_WORDS, start=1)),
    **{value: word[:-1] + "ieth" for word, value in _TENS.items()},
}
_DECADES = {10: "tens", **{value: word[:-1] + "ies" for word, value in _TENS.items()}}

_DIGITS = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SUFFIXED = re.compile(r"([0-9]{1,9})'?(st|nd|rd|th|s|am|pm)")
_PIECES = re.compile(r"[0-9]+(?:\.[0-9]+)?(?![\w'.])|[$£€%&@°]|[^\s$£€%&@°]+")
_GROUPED = re.compile(r"(?<![0-9.,])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9])")
_INITIALS = re.compile(r"\b(?:[^\W\d_]\.){2,}")
_GLUED = re.compile(r"[.,:][0-9]")  # some recognisers split 1,775 or 4.5 into two words


def _fold(text: str) -> str:
    # Unicode's marks (M) are vowels in many scripts. An apostrophe belongs to its word.
    folded = normalize("NFC", text).casefold()
    return "".join(sign if sign == "'" or category(sign)[0] in "LNM" else " " for sign in folded)


def _split(words: Sequence[str]) -> Iterator[Token]:
    """Yield the words in lower case, numbers without commas, and spoken symbols as tokens of their own."""
    whole: list[Token] = []
    for at, word in enumerate(words):
        if whole and _GLUED.match(word.strip()) and whole[-1].text[-1:].isdigit():
            whole[-1] = Token(whole[-1].text + word.strip(), whole[-1].first, at)
        else:
            whole.append(Token(word.strip(), at, at))
    for token in whole:
        for piece in _PIECES.findall(_keep_spoken(token.text)):
            if text := piece.strip("'"):
                yield replace(token, text=text)


def _keep_spoken(text: str) -> str:
    """Return *text* in lower case with only what is spoken; the point within a number stays."""
    text = normalize("NFC", text).casefold().replace("\u2019", "'")
    text = _INITIALS.sub(lambda found: found[0].replace(".", ""), text)
    text = _GROUPED.sub(lambda found: found[0].replace(",", ""), text)
    signs = []
    for at, sign in enumerate(text):
        pointed = sign == "." and _is_digit(text[at - 1 : at]) and _is_digit(text[at + 1 : at + 2])
        signs.append(sign if sign in _SYMBOLS or sign == "'" or pointed or category(sign)[0] in "LNM" else " ")
    return "".join(signs)


def _is_digit(sign: str) -> bool:
    return sign.isascii() and sign.isdigit()


def _write_out(parts: Iterator[Token]) -> Iterator[Token]:
    """Yield contractions, titles and abbreviations in full, ordinals and decades in two parts, and no fillers."""
    known = list(parts)
    for at, here in enumerate(known):
        after = known[at + 1].text if at + 1 < len(known) else ""
        for text in _expand(here.text, after):
            for word in _WRITTEN_OUT.get(text, (text,)):
                yield replace(here, text=_BRITISH.sub(r"\1or", word))


def _expand(text: str, after: str) -> tuple[str, ...]:
    if found := _SUFFIXED.fullmatch(text):
        return _expand_suffix(int(found[1]), found[2]) or (text.replace("'", ""),)
    if text in _CONTRACTIONS:
        return _CONTRACTIONS[text]
    stem, *endings = text.split("'")
    said = [stem]
    for ending in endings:
        if not said[-1].isalpha():
            said[-1] += ending
        elif ending == "t" and said[-1].endswith("n") and said[-1] != "n":
            said[-1:] = [said[-1][:-1], "not"]
        elif ending in _ENDINGS and (ending != "s" or said[-1] in _WITH_IS):
            said.append((_HAS if after in _PARTICIPLES else {}).get(ending, _ENDINGS[ending]))
        else:
            said[-1] += ending
    return tuple(filter(None, said))


def _expand_suffix(value: int, suffix: str) -> tuple[str, ...]:
    """Return a number with its ending as words: 22nd is 20 second, 1960s is 19 sixties. None if unknown."""
    if suffix in ("am", "pm"):
        return str(value), suffix
    if suffix == "s":
        if value % 1000 == 0 and value:
            return str(value // 1000), "thousands"
        if value % 100 == 0 and value:
            return str(value // 100), "hundreds"
        rest, decade = divmod(value, 100)
        return (*((str(rest),) if rest else ()), _DECADES[decade]) if decade in _DECADES else ()
    if value == 0:
        return ()
    if value % 1000 == 0:
        return str(value // 1000), "thousandth"
    if value % 100 == 0:
        return str(value // 100), "hundredth"
    last = value % 100 if value % 100 in _ORDINALS else value % 10
    return (*((str(value - last),) if value > last else ()), _ORDINALS[last])


def _read_numbers(parts: Iterator[Token]) -> Iterator[Token]:
    """Yield numbers in digits, each followed by the name of its currency."""
    reading = _Reading(list(parts))
    while (token := reading.peek()) is not None:
        coin = _SYMBOLS[reading.take().text] if token.text in _SYMBOLS else None
        if coin is None or coin in _MONEY:
            number = reading.number()
            if number is not None:
                whole = replace(number, first=token.first)
                yield from [whole] if coin is None else _price(whole, Token(coin, number.last, number.last))
                continue
        if coin is None:
            yield reading.take()
        else:
            for word in _WRITTEN_OUT.get(coin, (coin,)):
                yield Token(word, token.first, token.last)


def _price(number: Token, coin: Token) -> Iterator[Token]:
    whole, _, part = number.text.partition(".")
    if coin.text != "dollars" or len(part) != len("00"):
        yield from (number, coin)
        return
    if whole.strip("0") or not int(part):
        yield from (replace(number, text=whole), coin)
    if whole.strip("0") and int(part):
        yield replace(coin, text="and")
    if int(part):
        yield from (replace(coin, text=str(int(part))), replace(coin, text="cents"))


class _Reading:
    """Reads tokens one after the other, and the numbers among them."""

    def __init__(self, parts: Sequence[Token]) -> None:
        self._parts = parts
        self._at = 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._parts[at] if at < len(self._parts) else None

    def take(self) -> Token:
        self._at += 1
        return self._parts[self._at - 1]

    def number(self) -> Token | None:
        """Take the whole number or decimal that begins here, and return it in digits; else take nothing."""
        begin = self._at
        text = self._cardinal()
        if text is None:
            return None
        return Token(text, self._parts[begin].first, self._parts[self._at - 1].last)

    def _text(self, ahead: int = 0) -> str:
        part = self.peek(ahead)
        return "" if part is None else part.text

    def _cardinal(self) -> str | None:
        if (literal := _NUMBER.fullmatch(self._text())) is not None:
            self._at += 1
            text = literal[0]
            if self._text() not in _SCALES and self._text() != "hundred":
                return self._with_fraction(text)
            return self._scale(Decimal(text))
        if self._text() == "a" and (self._text(1) in _SCALES or self._text(1) == "hundred"):
            self._at += 1
            return self._scale(Decimal(1))
        if self._text() in _SCALES or self._text() == "hundred":
            return self._scale(Decimal(1))
        if (small := self._below_100()) is None:
            return None
        if self._text() == "point" and self._figures(1):
            return self._with_fraction(str(small))
        return self._scale(Decimal(small))

    def _with_fraction(self, whole: str) -> str:
        """Take the figures after the word "point", and a scale such as "million" after them."""
        if self._text() != "point" or not (count := self._figures(1)) or "." in whole:
            return whole
        digits = "".join(self._figure(ahead) for ahead in range(1, count + 1))
        self._at += 1 + count
        text = f"{whole}.{digits}"
        return self._scale(Decimal(text)) if self._text() in _SCALES else text

    def _figures(self, ahead: int) -> int:
        """Return how many figures from 0 to 9 follow each other."""
        count = 0
        while self._figure(ahead + count):
            count += 1
        return count

    def _figure(self, ahead: int) -> str:
        text = self._text(ahead)
        if text in ("oh", "o") and len(self._figure(ahead + 1)) == 1:
            return "0"
        if text in _FIGURES:
            return str(_FIGURES[text])
        return text if _DIGITS.fullmatch(text) else ""

    def _below_100(self) -> int | None:
        """Take the words of a number from "zero" to "ninety nine"."""
        text = self._text()
        if text in _UNITS:
            self._at += 1
            return _UNITS[text]
        if text not in _TENS:
            return None
        self._at += 1
        if unit := _FIGURES.get(self._text(), 0):
            self._at += 1
            return _TENS[text] + unit
        return _TENS[text]

    def _scale(self, value: Decimal) -> str:
        """Take the hundreds, thousands and millions after *value*, and return the whole number."""
        total, last = Decimal(0), 10**15
        group = self._add_hundreds(value)
        while True:
            scale = _SCALES.get(self._text(), 1)
            if scale == 1 or scale >= last:
                return _plain(total + group)
            self._at += 1
            total += group * scale
            last = scale
            begin = self._at
            if self._text() == "and":
                self._at += 1
            small = self._below_100()
            following = None if small is None else self._add_hundreds(Decimal(small))
            if following is None or _SCALES.get(self._text(), 1) >= last:
                self._at = begin
                return _plain(total)
            group = following

    def _add_hundreds(self, value: Decimal) -> Decimal:
        if self._text() != "hundred":
            return value
        self._at += 1
        value *= 100
        begin = self._at
        if self._text() == "and":
            self._at += 1
        small = self._below_100()
        if small is None or self._text() == "hundred":
            self._at = begin
            return value
        return value + small


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _join_numbers(parts: Iterator[Token]) -> list[Token]:
    """Return neighbouring whole numbers as one, with "oh" between them as 0 and "point" between two as a point."""
    found: list[Token] = []
    waiting = list(parts)
    for at, here in enumerate(waiting):
        after = waiting[at + 1].text if at + 1 < len(waiting) else ""
        before = [token.text for token in found[-2:]]
        text = "0" if here.text in ("oh", "o") and re.fullmatch("[1-9]", after) and _whole(before[-1:]) else here.text
        if _whole([text]) and _whole(before[-1:]):
            found[-1] = Token(found[-1].text + text, found[-1].first, here.last)
        elif _whole([text]) and before[-1:] == ["point"] and _whole(before[:-1]):
            found[-2:] = [Token(f"{before[0]}.{text}", found[-2].first, here.last)]
        else:
            found.append(replace(here, text=text))
    return found


def _whole(texts: Sequence[str]) -> bool:
    return bool(texts) and _DIGITS.fullmatch(texts[0]) is not None
