"""Finds what must be hidden in the words of the recogniser. Pure.

If in doubt, it hides. A recogniser mishears figures and repeats them, so a check digit proves nothing: the count of the
figures decides.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.text.figures import Reader, bare, is_code
from pipeline.text.options import LABELS, OF_FIGURES
from pipeline.text.phones import may_be_phone
from pipeline.words import Word

CARD_FIGURES, SSN_FIGURES = 12, 9
US_PHONE = re.compile(r"\d{10}|1\d{10}")
CALLED_FIGURES = 6  # of a telephone number after a word such as "call": some may not have been heard
CODE_FIGURES = range(3, 9)  # of a security code or a date, after a card
BEGUN_SIGNS = 4  # of an account that goes on longer than words may be held
NEAR = 4  # words between a card, or the words "security code", and the figures that belong to it
MAX_DOMAIN_WORDS = 2  # "at my company dot com"

_IBAN = re.compile(r"[A-Z]{1,2}\d{2}[A-Z\d]{8,}")
_IBAN_BEGINS = re.compile(r"[A-Z]{1,2}|[A-Z]{2}\d{1,2}[A-Z\d]*")
_INNER_DOT = re.compile(r"\w\.\w")
_SHORT_WORDS = frozenset(("a", "e", "i", "o", "u", "y"))  # words of one letter in some language


@dataclass(frozen=True, slots=True)
class Span:
    """Words *start* to *stop* (exclusive), and the label in their place; None where they only disappear."""

    start: int
    stop: int
    label: str | None


@dataclass(frozen=True, slots=True)
class Redactor:
    """Finds the ordered *kinds*, of LABELS."""

    kinds: frozenset[str]
    reader: Reader
    phone_region: str | None = None  # whose telephone numbers are said; None: only how many figures there are decides

    @property
    def of_figures(self) -> bool:
        """Whether any number may be secret."""
        return bool(self.kinds & OF_FIGURES)

    def has(self, text: str) -> bool:
        """Return whether a word may be a part of a number that is to be redacted."""
        return self.reader.has_sign(text) if "iban" in self.kinds else self.reader.has_figure(text)

    def is_suspect(self, text: str) -> bool:
        """Return whether a word may be a part of a secret, looked at by itself."""
        if self.of_figures and self.has(text):
            return True
        ats = self.reader.words.ats
        return "email" in self.kinds and (bare(text) in ats or self._may_join(text))

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may be part of something that is not complete."""
        first = len(words)
        if self.of_figures:
            first = min([first, *(run.start for run in self.reader.runs(words, self.reader.has_figure) if run.open)])
        if "iban" in self.kinds:
            first = min(first, self._open_account(words))
        if "email" in self.kinds:
            first = min(first, self._open_address(words))
        return first

    def spans(
        self, words: Sequence[Word], before: Sequence[str], *, least: int | None = None, begun: str = ""
    ) -> list[Span]:
        """Return what must be hidden in *words*, in order and without overlaps.

        *before* has the words directly before them, *begun* the figures of a number that continues in them. *least* is
        given when the words can be held no longer: then a number that may go on after them is hidden if it has at least
        so many figures already.
        """
        found: list[Span] = []
        if "email" in self.kinds:
            found += self._addresses(words, forced=least is not None)
        if "iban" in self.kinds:
            found += self._accounts(words, found, least)
        if self.of_figures:
            found += self._numbers(words, found, before, least, begun)
        return sorted(found, key=lambda span: span.start)

    # --- figures -----------------------------------------------------------------------------------------------------

    def _numbers(
        self, words: Sequence[Word], found: Sequence[Span], before: Sequence[str], least: int | None, begun: str
    ) -> list[Span]:
        taken = {at for span in found for at in range(span.start, span.stop)}
        spans: list[Span] = []
        for run in self.reader.runs(words, self.reader.has_figure):
            if taken & set(range(run.start, run.stop)):
                continue
            context = self._context(words, run.start, before, [*found, *spans])
            first = begun if run.start == 0 else ""
            kind = self._kind(words[run.start : run.stop], context, least if run.open else None, first)
            if kind is not None:
                spans.append(Span(run.start, run.stop, LABELS[kind]))
        return spans

    def _kind(self, words: Sequence[Word], before: Sequence[str], least: int | None, begun: str) -> str | None:
        figures = begun + self.reader.figures(words)
        count = len(figures)
        if count >= CARD_FIGURES and "pci" in self.kinds:
            return "pci"
        if count == SSN_FIGURES and "ssn" in self.kinds:
            return "ssn"
        if "phone" in self.kinds and self._is_phone(figures, before):
            return "phone"
        for kind, shortest in (("iban", CARD_FIGURES), ("ssn", SSN_FIGURES)):
            if kind in self.kinds and count >= shortest:
                return kind
        if "pci" in self.kinds and count in CODE_FIGURES and self._follows_card(before):
            return "pci"
        if (
            least is not None
            and count >= least
            and (count > 1 or self._is_certain(words))
            and (kinds := [one for one in LABELS if one in self.kinds & OF_FIGURES])
        ):
            return kinds[0]
        if "numbers" in self.kinds and count and not _is_pronoun(words, figures):
            return "numbers"
        return None

    def _is_certain(self, words: Sequence[Word]) -> bool:
        """Return whether the only figure in *words* is one: "one" and "oh" mostly mean other things."""
        zeros = self.reader.words.zeros
        return not _is_pronoun(words, self.reader.figures(words)) and not all(bare(one.text) in zeros for one in words)

    def _is_phone(self, figures: str, before: Sequence[str]) -> bool:
        if len(figures) >= CALLED_FIGURES and not self.reader.words.calls.isdisjoint(before):
            return True
        if US_PHONE.fullmatch(figures) or len(figures) >= self.reader.words.phone_figures:
            return True
        return self.phone_region is not None and may_be_phone(figures, self.phone_region)

    def _context(self, words: Sequence[Word], at: int, before: Sequence[str], spans: Iterable[Span]) -> list[str]:
        """Return the words before the one at *at*, with labels in place of what is hidden."""
        labels = {span.stop - 1: span.label for span in spans if span.label}
        near = [labels.get(place) or bare(words[place].text) for place in range(at)]
        return [*before, *near][-NEAR:]

    def _follows_card(self, before: Sequence[str]) -> bool:
        """Return whether figures after these words are a card's code or date."""
        if LABELS["pci"] in before:
            return True
        return any(
            tuple(before[at : at + len(code)]) == code for code in self.reader.words.codes for at in range(len(before))
        )

    # --- accounts ----------------------------------------------------------------------------------------------------

    def _accounts(self, words: Sequence[Word], found: Sequence[Span], least: int | None) -> list[Span]:
        taken = {at for span in found for at in range(span.start, span.stop)}
        spans = []
        for run in self.reader.runs(words, self.reader.has_sign):
            for start in range(run.start, run.stop):
                if start in taken:
                    continue
                signs = self._signs(words[start : run.stop])
                begun = least is not None and run.open and len(signs) >= BEGUN_SIGNS and _IBAN_BEGINS.fullmatch(signs)
                if _IBAN.match(signs) or begun:
                    spans.append(Span(start, run.stop, LABELS["iban"]))
                    break
        return spans

    def _open_account(self, words: Sequence[Word]) -> int:
        for run in self.reader.runs(words, self.reader.has_sign):
            if run.open:
                for start in range(run.start, run.stop):
                    if _IBAN_BEGINS.fullmatch(self._signs(words[start : run.stop])):
                        return start
        return len(words)

    def _signs(self, words: Sequence[Word]) -> str:
        """Return the letters and figures of *words*, in capitals."""
        signs, figures = "", []
        for word in words:
            if self.reader.has_figure(word.text) and not is_code(word.text):
                figures.append(word)
                continue
            if self.reader.has_sign(word.text):
                signs += self.reader.figures(figures) + "".join(sign for sign in word.text.upper() if sign.isalnum())
                figures = []
        return signs + self.reader.figures(figures)

    # --- addresses ---------------------------------------------------------------------------------------------------

    def _addresses(self, words: Sequence[Word], *, forced: bool) -> list[Span]:
        spans: list[Span] = []
        for at, word in enumerate(words):
            if spans and at < spans[-1].stop:
                continue
            if "@" in word.text or bare(word.text) in self.reader.words.ats:
                stop, complete, begun = self._domain(words, at)
                if complete or (forced and begun and stop == len(words)):
                    spans.append(Span(self._local(words, at), stop, LABELS["email"]))
        return spans

    def _open_address(self, words: Sequence[Word]) -> int:
        for at, word in enumerate(words):
            if "@" in word.text or bare(word.text) in self.reader.words.ats:
                stop, complete, _ = self._domain(words, at)
                if stop == len(words) and (complete or stop - at <= MAX_DOMAIN_WORDS + 1 or "@" in word.text):
                    return self._local(words, at)
        return self._local(words, len(words)) if self._may_go_on(words) else len(words)

    def _may_go_on(self, words: Sequence[Word]) -> bool:
        """Return whether the last of *words* may be within the first part of an address."""
        if not words:
            return False
        before, last = words[-2] if len(words) > 1 else None, words[-1]
        spells = _is_short(last) and (bare(last.text) not in _SHORT_WORDS or (before is not None and _is_short(before)))
        return spells or self._may_join(last.text) or (before is not None and self._joins(before.text))

    def _domain(self, words: Sequence[Word], at: int) -> tuple[int, bool, bool]:
        """Return where an address whose "at" is at *at* ends, whether it is complete, and whether a dot was said."""
        inside = words[at].text.partition("@")[2]
        if _INNER_DOT.search(inside):
            return self._chain(words, at + 1), True, True
        plain, here = 0 if not inside else 1, at + 1
        while here < len(words):
            text = words[here].text
            if self._is_dot(text) and here > at + (0 if inside else 1):
                stop = self._chain(words, here)
                return stop, stop > here + 1, True
            if _INNER_DOT.search(text):
                return self._chain(words, here + 1), True, True
            if not (self.reader.has_sign(text) or self._joins(text)):
                plain += 1
                if plain > MAX_DOMAIN_WORDS or text.endswith((".", "?", "!", ",")):
                    return here, False, False
            here += 1
        return here, False, False

    def _chain(self, words: Sequence[Word], at: int) -> int:
        """Return where a row of "dot" and one word ends that begins at *at*."""
        while at < len(words) and self._is_dot(words[at].text):
            at += 2 if at + 1 < len(words) else 1
        return at

    def _local(self, words: Sequence[Word], at: int) -> int:
        """Return where the part before the "at" at *at* begins."""
        start = (
            at if at < len(words) and len(words[at].text.partition("@")[0]) > 0 and "@" in words[at].text else at - 1
        )
        start = max(0, start)
        while start > 0:
            if start > 1 and self._joins(words[start - 1].text):
                start -= 2
            elif (
                self._joins(words[start - 1].text)
                or self._joins(words[start].text)
                or (_is_short(words[start]) and _is_short(words[start - 1]))
            ):
                start -= 1
            else:
                break
        return start

    def _is_dot(self, text: str) -> bool:
        return bare(text) in self.reader.words.dots

    def _joins(self, text: str) -> bool:
        return self._is_dot(text) or bare(text) in self.reader.words.joins

    def _may_join(self, text: str) -> bool:
        """Return whether a word may be the first part of an address that goes on."""
        return self._joins(text) or bool(_INNER_DOT.search(text)) or "@" in text


def _is_short(word: Word) -> bool:
    """Return whether a word is a spelled letter or a figure."""
    return len(bare(word.text)) == 1


def _is_pronoun(words: Sequence[Word], figures: str) -> bool:
    """Return whether a number is only the word "one", which mostly is none."""
    return figures == "1" and len(words) == 1 and "1" not in words[0].text
