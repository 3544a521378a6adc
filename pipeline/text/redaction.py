"""Finds what must be hidden in recognised words. Pure.

If in doubt, it hides. A recogniser gets figures wrong and repeats them, so a check digit proves nothing: the count of
the figures decides.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pipeline.text.addresses import Addresses
from pipeline.text.figures import Reader, WordRun, bare, is_code, without_hyphens
from pipeline.text.options import LABELS, OF_FIGURES, may_be_phone
from pipeline.words import Word

CARD_FIGURES, SSN_FIGURES = 12, 9
US_PHONE = re.compile(r"\d{10}|1\d{10}")
CALLED_FIGURES = 6  # fewest figures of a telephone number after a word such as "call": some may be missing
CODE_FIGURES = range(3, 9)  # of a security code or a date, after a card
BEGUN_SIGNS = 4  # fewest signs of an account that is not complete when words can be held no longer
GROUP_FIGURES = 4  # fewest in a group of a card: "4242 4242, let me see, 4242 and the last four are 4242"
GROUP_BEFORE_ASIDE = 3  # fewest figures before "let me see" that are hidden if words can be held no longer
SEVERAL_GROUPS = 8  # figures that make groups a card if words can be held no longer or a group was shown already
GROUPS_NEAR = 4  # the most words between such groups, besides numbers
NEAR = 6  # the most words between a card, or the words "security code", and the figures that belong to it

_AMOUNT = re.compile(r"[$£€%]|^\d{1,3}(?:,\d{3})+\W*$")  # money or thousands
_MONEY = re.compile(r"[$£€¥]\d[\d,]*\.\d\d(?!\d)")  # with cents, as no code of a card is written
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_YEARS = re.compile(rf"(?:{_YEAR.pattern})+")
_IBAN = re.compile(r"[A-Z]{1,2}\d{2}[A-Z\d]{8,}")
_IBAN_BEGINS = re.compile(r"[A-Z]{1,2}|[A-Z]{2}\d{1,2}[A-Z\d]*")


@dataclass(frozen=True, slots=True)
class Span:
    """Words *start* to *stop* (exclusive), and the label in their place; None if nothing is hidden."""

    start: int
    stop: int
    label: str | None


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of figures that may be part of a card: how many figures they have, and how many words came after them."""

    figures: int = 0
    words_after: int = 0


NO_GROUPS = Groups()


@dataclass(frozen=True, slots=True)
class Redactor:
    """Finds what is of one of *kinds*, which are keys of LABELS."""

    kinds: frozenset[str]
    reader: Reader
    phone_region: str | None = None  # whose telephone numbers are said; None: only how many figures there are decides
    addresses: Addresses = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", Addresses(self.reader))

    @property
    def of_figures(self) -> bool:
        """Whether any number may be secret."""
        return bool(self.kinds & OF_FIGURES)

    def has(self, text: str) -> bool:
        """Return whether a word may be a part of a number that must be hidden."""
        return self.reader.has_sign(text) if "iban" in self.kinds else self.reader.has_figure(text)

    def is_suspect(self, text: str) -> bool:
        """Return whether a word alone may be a part of a secret."""
        if (self.of_figures and self.has(text)) or ("numbers" in self.kinds and self._is_other_number(text)):
            return True
        return "email" in self.kinds and self.addresses.is_suspect(text)

    def secret_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may be part of a secret, even if the words around it change."""
        first = next((at for at, word in enumerate(words) if self.is_suspect(word.text)), len(words))
        opened = self.open_from(words[: first + 1])
        return min([first, opened, *(span.start for span in self.spans(words, ()))])

    def open_from(self, words: Sequence[Word], before: Sequence[str] = (), *, patient: bool = False) -> int:
        """Return the index of the first word that may be part of something that is not complete.

        *before*: the words directly before them.
        *patient*: any last word may be the first part of an address.
        """
        first = len(words)
        if self.of_figures:
            first = min([first, *(run.start for run in self.reader.runs(words, self.reader.has_figure) if run.open)])
        if "pci" in self.kinds:
            first = min(first, self._open_card(words))
        if "iban" in self.kinds:
            first = min(first, self._open_account(words))
        if "email" in self.kinds:
            first = min(first, self.addresses.open_from(words, before, patient=patient))
        return first

    def spans(
        self,
        words: Sequence[Word],
        before: Sequence[str],
        *,
        least: int | None = None,
        held_longest: bool = False,
        begun: str = "",
        groups: Groups = NO_GROUPS,
        card_awaited: bool = False,
    ) -> list[Span]:
        """Return what must be hidden in *words*, in order and without overlaps.

        *before*: the words directly before them.
        *begun*: the figures of a number that continues in them.
        *least*: if the words can be held no longer, a number that may go on is hidden with at least so many figures.
        *held_longest*: they were held for the longest time.
        *groups*: groups of a card that were said before them.
        *card_awaited*: a card was mentioned, so a group of figures at the end belongs to it.
        """
        found: list[Span] = []
        if "email" in self.kinds:
            found += self._addresses(words, forced=least is not None, held_longest=held_longest)
        if "iban" in self.kinds:
            found += self._accounts(words, found, least)
        if self.of_figures:
            grouped: set[int] = set()
            if "pci" in self.kinds:
                grouped = self._card_groups(words, groups, held_longest=held_longest)
                grouped |= self._last_group(words) if card_awaited else set()
            found += self._numbers(words, found, before, least, begun, grouped=grouped)
        if "numbers" in self.kinds:
            found += self._other_numbers(words, found)
        return sorted(found, key=lambda span: span.start)

    def _addresses(self, words: Sequence[Word], *, forced: bool, held_longest: bool) -> Iterator[Span]:
        cut = self.addresses.unfinished_from(words, held_longest=held_longest) if forced else len(words)
        for start, stop in self.addresses.spans(words):
            if stop > cut:
                cut = min(cut, start)
                break
            yield Span(start, stop, LABELS["email"])
        if cut < len(words):
            yield Span(cut, len(words), LABELS["email"])

    # --- figures -----------------------------------------------------------------------------------------------------

    def _numbers(
        self,
        words: Sequence[Word],
        found: Sequence[Span],
        before: Sequence[str],
        least: int | None,
        begun: str,
        *,
        grouped: Container[int],
    ) -> list[Span]:
        taken = {at for span in found for at in range(span.start, span.stop)}
        spans: list[Span] = []
        for run in self.reader.runs(words, self.reader.has_figure):
            if taken & set(range(run.start, run.stop)):
                continue
            context = self._context(words, run.start, before, [*found, *spans])
            first = begun if run.start == 0 else ""
            enough = least if run.open else None
            if enough is not None and any(self.reader.is_aside(word.text) for word in words[run.stop :]):
                enough = max(enough, GROUP_BEFORE_ASIDE)  # people also think after "two", which is no secret
            kind = self._kind(words[run.start : run.stop], context, enough, first)
            if run.start in grouped and kind in (None, "numbers"):
                kind = "pci"
            if kind is not None:
                spans.append(
                    Span(run.start, self._end_of_ordinal(words, run) if kind == "numbers" else run.stop, LABELS[kind])
                )
        return spans

    def _end_of_ordinal(self, words: Sequence[Word], run: WordRun) -> int:
        """Return where the number of *run* ends, including the "first" of "twenty first"."""
        at = run.stop
        follows = (
            at < len(words) and bare(words[at].text) in self.reader.words.days and words[at - 1].text[-1].isalnum()
        )
        return at + 1 if follows else at

    def _other_numbers(self, words: Sequence[Word], found: Sequence[Span]) -> list[Span]:
        """Return the numbers that are not in a run of figures: "B12", "a hundred", "millions"."""
        taken = {at for span in found for at in range(span.start, span.stop)}
        return [
            Span(at, at + 1, LABELS["numbers"])
            for at, word in enumerate(words)
            if at not in taken and self._is_other_number(word.text)
        ]

    def _is_other_number(self, text: str) -> bool:
        known, plain = self.reader.words, bare(text)
        return any(plain in some for some in (known.hundreds, known.scales, known.plurals)) or any(
            sign.isnumeric() for sign in text
        )

    def _card_groups(self, words: Sequence[Word], before: Groups, *, held_longest: bool) -> set[int]:
        """Return where the groups of cards begin that are said with a few other words between them."""
        found = self._groups(words, before)
        least = [SEVERAL_GROUPS if held_longest else CARD_FIGURES] * len(found)
        if before.figures:
            least[0] = SEVERAL_GROUPS  # a group of this card was shown in the pause before
        return {run.start for (runs, figures), few in zip(found, least, strict=True) if figures >= few for run in runs}

    def _last_group(self, words: Sequence[Word]) -> set[int]:
        """Return where a group of a card at the end of *words* begins; an empty set if there is none."""
        return {
            runs[-1].start
            for runs, _ in self._groups(words, NO_GROUPS)
            if runs[-1].open and self.reader.may_be_within(words[runs[-1].stop :])
        }

    def groups_at_end(self, words: Sequence[Word], before: Groups) -> Groups:
        """Return the groups at the end of *words*, to which groups that follow may belong."""
        found = self._groups(words, before)
        if not found:
            return NO_GROUPS
        runs, figures = found[-1]
        after = self._words_between(words, runs[-1].stop if runs else 0, len(words))
        return Groups(figures, after + (0 if runs else before.words_after))

    def _open_card(self, words: Sequence[Word]) -> int:
        """Return where groups of a card begin that may continue after *words*; len(words) if there are none."""
        for groups, figures in self._groups(words, NO_GROUPS):
            more = figures < CARD_FIGURES and self._words_between(words, groups[-1].stop, len(words)) <= GROUPS_NEAR
            if more or groups[-1].open:
                return groups[0].start
        return len(words)

    def _groups(self, words: Sequence[Word], before: Groups) -> list[tuple[list[WordRun], int]]:
        """Return lists of groups that are near each other, each with the number of figures in its groups.

        The first list continues the groups *before*. Figures that may be a year count half and begin no list, because
        people say several years in a sentence.
        """
        found: list[tuple[list[WordRun], int]] = [([], before.figures)] if before.figures else []
        for run in self.reader.runs(words, self.reader.has_figure):
            some = [word for word in words[run.start : run.stop] if self.reader.has_figure(word.text)]
            if all(_AMOUNT.search(word.text) or _YEAR.fullmatch(bare(word.text)) for word in some):
                some = [word for word in some if not _AMOUNT.search(word.text)]
            figures = self.reader.figures(some)
            if len(figures) < GROUP_FIGURES:
                continue
            is_year = self._are_years(some)
            count = len(figures) // 2 if is_year else len(figures)
            last = found[-1][0] if found else []
            between = self._words_between(words, last[-1].stop if last else 0, run.start)
            if found and between + (0 if last else before.words_after) <= GROUPS_NEAR:
                found[-1] = ([*last, run], found[-1][1] + count)
            elif not is_year:
                found.append(([run], count))
        return found

    def _words_between(self, words: Sequence[Word], start: int, stop: int) -> int:
        return sum(not self.reader.has_figure(word.text) for word in words[start:stop])

    def _kind(self, words: Sequence[Word], before: Sequence[str], least: int | None, begun: str) -> str | None:
        figures = begun + self.reader.figures(words)
        count = len(figures)
        if least is None and not begun and self._are_years(words) and not self._follows_card(before):
            return "numbers" if "numbers" in self.kinds else None
        if count >= CARD_FIGURES and "pci" in self.kinds:
            return "pci"
        if count == SSN_FIGURES and "ssn" in self.kinds:
            return "ssn"
        if "phone" in self.kinds and self._is_phone(figures, before):
            return "phone"
        for kind, shortest in (("iban", CARD_FIGURES), ("ssn", SSN_FIGURES)):
            if kind in self.kinds and count >= shortest:
                return kind
        if "pci" in self.kinds and count in CODE_FIGURES and self._follows_card(before) and not _is_money(words):
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

    def _are_years(self, words: Sequence[Word]) -> bool:
        """Return whether the figures in *words* are only years and, after words such as "and", large amounts.

        No card or account begins like a year. Figures that are said one by one are not years.
        """
        runs = [list(run) for has, run in groupby(words, lambda word: self.reader.has_figure(word.text)) if has]
        amounts = [run for run in runs if len(runs) > 1 and len(run) == 1 and _AMOUNT.search(run[0].text)]
        return all(run in amounts or self._are_said_as_years(run) for run in runs)

    def _are_said_as_years(self, words: Sequence[Word]) -> bool:
        figures = self.reader.figures(words)
        apart = len(words) < len(figures) and all(len(self.reader.figures([word])) <= len("1984") for word in words)
        return apart and bool(_YEARS.fullmatch(figures))

    def _is_certain(self, words: Sequence[Word]) -> bool:
        """Return whether the only figure in *words* is a number: "one" and "oh" mostly mean other things."""
        zeros = self.reader.words.zeros
        return not _is_pronoun(words, self.reader.figures(words)) and not all(bare(one.text) in zeros for one in words)

    def _is_phone(self, figures: str, before: Sequence[str]) -> bool:
        if len(figures) >= CALLED_FIGURES and not self.reader.words.calls.isdisjoint(before):
            return True
        if US_PHONE.fullmatch(figures) or len(figures) >= self.reader.words.phone_figures:
            return True
        return self.phone_region is not None and may_be_phone(figures, self.phone_region)

    def _context(self, words: Sequence[Word], at: int, before: Sequence[str], spans: Iterable[Span]) -> list[str]:
        """Return the words before the one at *at*, with labels in place of hidden words."""
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
            if self.reader.has_figure(word.text) and not is_code(without_hyphens(word.text)):
                figures.append(word)
                continue
            if self.reader.has_sign(word.text):
                signs += self.reader.figures(figures) + "".join(sign for sign in word.text.upper() if sign.isalnum())
                figures = []
        return signs + self.reader.figures(figures)


def _is_money(words: Sequence[Word]) -> bool:
    return any(_MONEY.search(word.text) for word in words)


def _is_pronoun(words: Sequence[Word], figures: str) -> bool:
    """Return whether *words* are only the word "one", which mostly is not a number."""
    return figures == "1" and len(words) == 1 and "1" not in words[0].text
