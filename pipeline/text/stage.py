"""Rewrites the final words before any reader sees them: redaction, script, numerals, phrases, names, profanity. Pure.

Theory. A word must not be shown before its form is known, because a shown word never changes. "four one one one" may be
the beginning of a card number, so its words are held until the number is complete. A word is released when

- no step can still join it with what follows (`_open_from`),
- nobody spoke for PAUSE after it (in files for longer if it may be a group of a card), or
- it was held for MAX_HELD, or MAX_HELD_WORDS are held. Then the words before the longest pause are released.

With redaction the third case releases all words. It hides the figures of a number that may go on, and notes where they
ended (`_hidden_to`), so that the rest is hidden when it comes. Redaction works on the recognised words, before any
other step, because another step could break a number up. No other step touches a label. Words are read one by one, so
the text does not depend on how they were cut into requests.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pipeline.audio import position
from pipeline.text.addresses import ADDRESS_LANGUAGES
from pipeline.text.figures import PAUSE, Reader, WordRun, bare
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.names_by_sound import NameSpeller
from pipeline.text.numerals import with_numerals
from pipeline.text.options import LABELS, USUAL_SETTINGS, TextOptions, TextSettings
from pipeline.text.phrase_replacement import Replacer
from pipeline.text.profanity import swear_words, without_profanity
from pipeline.text.redaction import NEAR, NO_GROUPS, Redactor, Span
from pipeline.words import Word

SCRIPTS = ("Hans", "Hant")
"""Simplified and traditional characters, by their codes in ISO 15924. The latter in the forms of Taiwan's standard."""

CHINESE = frozenset({"zh", "yue"})
"""The languages that are written in either script."""

CONTEXT = 6
"""Characters before a word that may begin its phrase: hardly any phrase is longer."""

NUMBER_WORDS_UNKNOWN, ADDRESS_WORDS_UNKNOWN = "number_words_unknown", "address_words_unknown"
"""The codes of warnings about words that the options need, in a language whose words are not known."""

MAX_HELD_WORDS = 12
MAX_HELD = position(4.0)
"""The most words that are held, and the most audio from the start of the first one: readers wait for them."""

HIDDEN_PAUSE = position(4.0)
"""The longest pause within a secret that has its label already: a figure in the pause may not have been recognised."""

CARD_AWAITED = position(30.0)
"""How long after a word such as "card" a group of figures before a long pause belongs to a card."""

PATIENT = 5  # how many times more is held where nobody waits for the words

ANY_FIGURES, FEW_FIGURES = 1, 3
"""The fewest figures of an open run that are hidden: if it was held too long, and if all words must be decided."""

PARTING, COMMA = position(0.2), position(0.3)
"""A number that is held too long is split at a pause of at least PARTING; a comma counts as a pause of COMMA."""

Placed = tuple[Word, int]
"""A word and the number of its segment."""


class ScriptWriter:
    """Writes the words of one speaker in one script. It remembers the last characters, in which a phrase may begin."""

    def __init__(self, script: str) -> None:
        self._convert = _converter(script)
        self._before = ""

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may be part of a phrase that goes on; len(words) if none may be."""
        return len(words) - 1 if words and _is_han(words[-1].text[-1]) else len(words)

    def apply(self, words: Sequence[Word]) -> list[Word]:
        """Return *words* in the script."""
        text = "".join(word.text for word in words)
        written = self._convert(self._before + text)
        if len(written) != len(self._before) + len(text):  # a phrase has another length: each word by itself
            return [replace(word, text=self._convert(word.text)) for word in words]
        at, converted = len(self._before), []
        for word in words:
            end = at + len(word.text)
            converted.append(replace(word, text=written[at:end]))
            at = end
        return converted

    def note(self, words: Sequence[Word]) -> None:
        """Remember recognised words as the last that were decided."""
        self._before = (self._before + "".join(word.text for word in words))[-CONTEXT:]


def _is_han(sign: str) -> bool:
    return "\u3400" <= sign <= "\u9fff" or "\U00020000" <= sign <= "\U0003ffff"


@lru_cache(len(SCRIPTS))
def _converter(script: str) -> Any:
    from opencc import OpenCC  # noqa: PLC0415  6 MB of tables that few sessions need

    return OpenCC({"Hans": "t2s", "Hant": "s2tw"}[script]).convert


class TextStage:
    """Holds the words of one speaker or channel that are not decided yet."""

    def __init__(
        self,
        options: TextOptions,
        *,
        language: str | None = None,
        earlier: Sequence[Word] = (),
        patient: bool = False,
        settings: TextSettings = USUAL_SETTINGS,
    ) -> None:
        """Hold no words yet.

        *earlier*: the words before. If they end with a label, figures that follow may be part of its secret.
        *patient*: for files. No reader waits for the words, so more is held, also what may begin an address.
        """
        self._options = options
        self._settings = settings
        self._phone_region = options.phone_region or settings.phone_region
        self._patient = patient
        times = PATIENT if patient else 1
        self._pause = (times if "pci" in options.redact else 1) * PAUSE  # the groups of a card may be far apart
        self._most_words, self._longest = times * MAX_HELD_WORDS, times * MAX_HELD
        self._replacer = Replacer(options.replace)
        self._script = None if options.script is None else ScriptWriter(options.script)
        self._held: list[Placed] = []
        self._before: deque[str] = deque(maxlen=NEAR)
        self._last = ""  # the last word that was shown
        self._note(earlier)
        self.redacted: list[tuple[int, int]] = []
        """The spans of redacted words, in positions."""
        self.unknown_words: dict[tuple[str, str], None] = {}
        """The code of a warning and a language, in order: the options need words of it that are not known."""
        self._read_in(language)
        last = next(
            (word for word in reversed(earlier) if word.redacted or not self._redactor.reader.is_glue(word.text)), None
        )
        self._hidden_to: int | None = earlier[-1].end if last is not None and last.redacted else None
        """The end of a hidden run of figures, or of a hidden address, that may continue."""
        self._address: list[Word] = []
        """The hidden words of an e-mail address that may continue; empty for a run of figures."""
        self._groups = NO_GROUPS
        """The groups of figures that were released last, to which the next ones may belong."""
        self._card_word_end: int | None = None
        """The end of the last word such as "card"."""
        self._begun, self._begun_to = "", 0
        """Figures that were shown although their number may go on, and the position at which they end."""

    @property
    def language(self) -> str | None:
        return self._language

    def change_language(self, language: str | None) -> list[Placed]:
        """Read the next words in this language. Returns the words that were held in another one, which are decided."""
        if language == self._language:
            return []
        decided = self.flush() if self._language is not None else []
        self._read_in(language)
        return decided

    def _read_in(self, language: str | None) -> None:
        self._language = language
        self._reader = Reader(language)
        self._number_reader = Reader(language, ranges=True)
        self._redactor = self._redactor_for(language)
        self._speller = NameSpeller(self._options.sounds_like, language)
        known = swear_words(language) if self._settings.swearing is None else self._settings.swearing
        self._swearing = known if self._options.profanity_filter else frozenset()

    def _redactor_for(self, language: str | None) -> Redactor:
        return Redactor(frozenset(self._options.redact), Reader(language, asides=True), self._phone_region)

    @property
    def held_from(self) -> int | None:
        """The start of the first word that is held; None if none is."""
        return self._held[0][0].start if self._held else None

    @property
    def complete(self) -> bool:
        """Whether nothing is held, or hidden, that may go on with the next words."""
        return self._hidden_to is None and self._open_from(self._words) == len(self._held)

    def holds(self, segment: int) -> bool:
        """Return whether a word of this segment is held."""
        return any(number == segment for _, number in self._held)

    def add(self, word: Word, segment: int) -> list[Placed]:
        """Take the next word. Returns the words that are decided now, in order."""
        self._note_unknown_words()
        decided = self.reach(word.start)
        if bare(word.text) in self._redactor.reader.words.cards:
            self._card_word_end = word.end
        self._held.append((word, segment))
        decided += self._take_decided()
        return decided + self.reach(word.end, waited=False)

    def _note_unknown_words(self) -> None:
        language = self._language
        if language is None:
            return
        if (self._options.numerals or self._redactor.of_figures) and language not in NUMERAL_LANGUAGES:
            self.unknown_words[NUMBER_WORDS_UNKNOWN, language] = None
        if "email" in self._redactor.kinds and language not in ADDRESS_LANGUAGES:
            self.unknown_words[ADDRESS_WORDS_UNKNOWN, language] = None

    def reach(self, at: int, *, waited: bool = True) -> list[Placed]:
        """Note that all words before the position *at* were added. Returns the words that are decided now.

        *waited*: nobody spoke between the last word and *at*.
        """
        if self._hidden_to is not None and not self._held and at > self._hidden_to + HIDDEN_PAUSE:
            self._hidden_to, self._address = None, []
        decided: list[Placed] = []
        while self._held:
            too_long = self._held[0][0].start + self._longest
            pause = self._held[-1][0].end + self._pause
            if len(self._held) < self._most_words and (at < too_long or (waited and pause < too_long)):
                return decided + (self.release() if waited and at > pause else [])
            decided += self._cut()
        return decided

    def end_segment(self) -> list[Placed]:
        """Note a long pause. Returns the words that it decides: all, unless something is to be redacted."""
        return [] if self._redactor.kinds else self.flush()

    def flush(self) -> list[Placed]:
        """Return all held words, because they must be decided now. An open run of at least FEW_FIGURES is hidden."""
        return self._decide(len(self._held), FEW_FIGURES)

    def _awaits_card(self) -> bool:
        """Return whether a card was mentioned a moment ago, so that figures before a pause belong to it."""
        if self._patient or not self._held or self._card_word_end is None:
            return False
        return self._held[-1][0].end <= self._card_word_end + CARD_AWAITED

    def _cut(self) -> list[Placed]:
        """Return words that can be held no longer: all of them with redaction, else those before the longest pause."""
        words = self._words
        if self._redactor.kinds or len(words) == 1:
            return self._decide(len(words), ANY_FIGURES, held_longest=True)
        pauses = [
            max(after.start - before.end, COMMA if before.text.endswith(",") else 0)
            for before, after in pairwise(words)
        ]
        longest = max(pauses)
        if longest < PARTING:
            return self.flush()
        return self._decide(max(at for at, pause in enumerate(pauses, 1) if pause == longest))

    def release(self) -> list[Placed]:
        """Return all held words, because nothing that follows belongs to them."""
        decided = self._decide(len(self._held), card_awaited=self._awaits_card())
        self._hidden_to, self._address = None, []
        return decided

    def preview(self, words: Sequence[Word]) -> list[Word]:
        """Return the held words and *words*, none of them decided, in the form for readers, up to a possible secret."""
        shown = self._in_script([*self._words, *words])
        if self._redactor.kinds:
            others = {word.language for word in words} - {None, self._language}
            redactors = [self._redactor, *map(self._redactor_for, others)]
            shown = shown[: min(redactor.secret_from(shown) for redactor in redactors)]
        return self._rewrite(shown)

    def _script_of(self, words: Sequence[Word]) -> ScriptWriter | None:
        """Return what writes *words* in the script that was asked for; None if they are not Chinese."""
        language = (words[-1].language if words else None) or self._language
        return self._script if language in CHINESE else None

    def _in_script(self, words: list[Word], following: Sequence[Word] = ()) -> list[Word]:
        """Return *words* in the script that was asked for. The words *following* complete their last phrase."""
        script = self._script_of(words)
        return words if script is None else script.apply([*words, *following])[: len(words)]

    @property
    def _words(self) -> list[Word]:
        return [word for word, _ in self._held]

    def _open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may be part of something longer; len(words) if there is none.

        If a phrase or a name may begin inside a number, the whole number is held.
        """
        patient = self._patient and not self._replacer.ends(words)
        first = min(
            self._redactor.open_from(words, list(self._before), patient=patient),
            self._replacer.open_from(words),
            self._speller.open_from(words),
            len(words) if (script := self._script_of(words)) is None else script.open_from(words),
        )
        runs = list(self._numbers(words)) if self._options.numerals else []
        first = min([first, *(run.start for run in runs if run.open)])
        if first == len(words):
            return first
        whole: list[Span | WordRun] = [*self._redactor.spans(words, list(self._before)), *runs]
        while (parted := next((one for one in whole if one.start < first < one.stop), None)) is not None:
            first = parted.start
        return first

    def _numbers(self, words: Sequence[Word]) -> Iterator[WordRun]:
        """Yield the runs of words that may be a number, with the "point" that may begin one."""
        reader, comma = self._number_reader, self._number_reader.words.comma
        for run in reader.runs(words, reader.has_figure):
            after_point = run.start > 0 and bare(words[run.start - 1].text) == comma
            yield WordRun(run.start - after_point, run.stop, run.open)
        if words and bare(words[-1].text) == comma:
            yield WordRun(len(words) - 1, len(words), open=True)

    def _take_decided(self) -> list[Placed]:
        self._hide_rest()
        if self._hidden_to is not None:
            return []  # words such as "uh" may be in the middle of what is hidden
        return self._decide(self._open_from(self._words))

    def _hide_rest(self) -> None:
        """Drop the held words that continue a secret whose label was shown before it was complete."""
        if self._hidden_to is None or not self._held:
            return
        words = self._words
        stop, is_open = self._end_of_hidden(words) if words[0].start <= self._hidden_to + HIDDEN_PAUSE else (0, False)
        self.redacted += [(word.start, word.end) for word in words[:stop]]
        self._held = self._held[stop:]
        if is_open:
            self._hidden_to = words[-1].end
        else:
            self._hidden_to, self._address = None, []

    def _end_of_hidden(self, words: Sequence[Word]) -> tuple[int, bool]:
        """Return how many of *words* continue what is hidden, and whether it may go on after them."""
        if self._address:
            stop = max(0, self._redactor.addresses.end_of_first([*self._address, *words]) - len(self._address))
            self._address += words[:stop]
            return stop, stop == len(words)
        run = next(iter(self._redactor.reader.runs(words, self._redactor.has, within=True)), None)
        return (0, False) if run is None or run.start > 0 else (run.stop, run.open)

    def _decide(
        self, count: int, least: int | None = None, *, held_longest: bool = False, card_awaited: bool = False
    ) -> list[Placed]:
        """Return the first *count* held words in their final form, and hold them no longer."""
        some, self._held = self._held[:count], self._held[count:]
        words = self._in_script([word for word, _ in some], [word for word, _ in self._held])
        if self._script is not None:
            self._script.note([word for word, _ in some])
        segments: dict[int, int] = {}
        for word, segment in some:
            segments.setdefault(word.start, segment)
        begun = self._begun if words and words[0].start <= self._begun_to + PAUSE else ""
        spans = self._redactor.spans(
            words,
            list(self._before),
            least=least,
            held_longest=held_longest,
            begun=begun,
            groups=self._groups,
            card_awaited=card_awaited,
        )
        if "pci" in self._redactor.kinds:
            self._groups = self._redactor.groups_at_end(words, self._groups)
        self._note_open_number(words, spans, begun, forced=least is not None)
        written: list[Word] = []
        at = 0
        for span in [*spans, Span(len(words), len(words), None)]:
            written += self._note(self._rewrite(words[at : span.start]))
            if span.label is not None:
                written += self._note([self._label(words[span.start : span.stop], span.label)])
            at = span.stop
        if least is not None and spans:
            self._note_hidden(words, spans[-1])
        return [(word, segments[word.start]) for word in written]

    def _note_hidden(self, words: Sequence[Word], last: Span) -> None:
        """If the *last* secret in *words* may go on after them, remember that."""
        if last.label == LABELS["email"]:
            address = list(words[last.start :])
            if self._redactor.addresses.end_of_first(address) == len(address):
                self._hidden_to, self._address = words[-1].end, address
        elif all(self._redactor.reader.is_glue(word.text) for word in words[last.stop :]):
            self._hidden_to = words[-1].end

    def _note_open_number(self, words: Sequence[Word], spans: Sequence[Span], begun: str, *, forced: bool) -> None:
        """Remember the shown figures of a number that may go on."""
        if not words or not self._redactor.of_figures:
            return
        self._begun_to = words[-1].end
        reader = self._redactor.reader
        last = next((run for run in reader.runs(words, reader.has_figure) if run.open), None)
        if forced and last is not None and not any(span.stop > last.start for span in spans):
            written = reader.figures(words[last.start : last.stop])
            self._begun = begun + written if last.start == 0 else written
        elif not all(reader.is_glue(word.text) for word in words):
            self._begun = ""

    def _label(self, words: Sequence[Word], label: str) -> Word:
        start, end = words[0].start, words[-1].end
        self.redacted.append((start, end))
        last = words[-1].text[-1]
        return replace(
            words[0],
            text=label + (last if last in ".,?!;:" else ""),
            end=end,
            probability=min(word.probability for word in words),
            redacted=True,
        )

    def _note(self, words: Sequence[Word]) -> Sequence[Word]:
        """Remember *words* as the last ones that were shown, and return them."""
        self._before.extend(word.text.rstrip(".,?!;:") if word.redacted else bare(word.text) for word in words)
        self._last = words[-1].text if words else self._last
        return words

    def _rewrite(self, words: Sequence[Word]) -> list[Word]:
        """Return *words* after all steps but redaction."""
        written = list(words)
        if self._options.numerals:
            written = with_numerals(written, self._reader, self._last, phone_region=self._phone_region)
        if self._options.replace:
            written = self._replacer.apply(written, self._last)
        if self._options.sounds_like:
            written = self._speller.apply(written, self._last)
        return without_profanity(written, self._swearing) if self._swearing else written
