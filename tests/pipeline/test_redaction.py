"""Tests of what is redacted: numbers and addresses however they are said or written, and nothing else."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.text.addresses import ADDRESS_LANGUAGES
from pipeline.text.figures import Reader, bare
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions
from tests.pipeline.decided_words import rewrite, text_of, words_of

ALL = TextOptions(redact=tuple(kind for kind in REDACTIONS if kind != "numbers"))
CARDS = TextOptions(redact=("pci",))

SENTENCES = Path(__file__).parent / "redacted.tsv"
"""A language, kinds of secrets, "live" or "file", a sentence as it is said, and as it is shown."""

SECRETS = Path(__file__).parent / "secrets.tsv"
"""A language, a kind of secret, a sentence with one as it is said, and as it is shown: 50 of each language."""


def test_all_numbers_are_hidden_if_that_is_ordered_and_the_word_one_is_left():
    options = TextOptions(redact=("numbers",))
    assert text_of("One of the 25 has 3,000 and forty two.", options) == "One of the [NUMBER] has [NUMBER]."


def test_live_the_first_word_of_an_address_may_be_told_before_it_is_known_to_be_one():
    assert text_of("write to bob at example dot com please", ALL) == "write to bob [EMAIL] please"
    assert text_of("write to bob at example dot com please", ALL, patient=True) == "write to [EMAIL] please"


def test_sentences_are_shown_without_what_is_to_be_hidden_and_with_all_else():
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        language, kinds, mode, text, shown = line.split("\t")
        options = TextOptions(redact=tuple(kinds.split(",")))
        assert text_of(text, options, language=language, patient=mode == "file") == shown


def secrets() -> dict[str, list[list[str]]]:
    """Return the made secrets by language: each as its kind, a sentence as it is said, and as it is shown of a file."""
    found: dict[str, list[list[str]]] = {}
    for line in SECRETS.read_text(encoding="utf-8").splitlines():
        language, *rest = line.split("\t")
        found.setdefault(language, []).append(rest)
    return found


@pytest.mark.parametrize("language", secrets())
def test_fifty_spoken_numbers_and_addresses_of_each_language_are_hidden(language):
    said = secrets()[language]
    assert len(said) == 50
    for kind, text, shown in said:
        options = TextOptions(redact=(kind,))
        assert text_of(text, options, language=language, patient=True) == shown
        live = text_of(text, options, language=language)
        assert live.startswith(shown.partition("[")[0])  # the first word of an address may have been shown
        if kind == "email":
            assert re.search(r"\[EMAIL\]\.? \S+( \S+)?$", live), live
        else:
            reader = Reader(language)
            assert f"[{shown.partition('[')[2].partition(']')[0]}]" in live
            assert not [
                word for word in live.split() if reader.has_figure(word) and bare(word) not in reader.words.small
            ]


def test_every_language_whose_words_are_known_has_secrets_in_the_table():
    assert secrets().keys() == {*NUMERAL_LANGUAGES, *ADDRESS_LANGUAGES}


FIGURES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@st.composite
def spoken_cards(draw: st.DrawFn) -> str:
    """Return 13 to 19 figures, written in groups or said in words, with marks, fillers and pauses between them."""
    left = draw(st.integers(13, 19))
    parts: list[str] = []
    while left > 0:
        size = min(left, draw(st.integers(1, 4)))
        group = draw(st.text("0123456789", min_size=size, max_size=size))
        tens = size == 2 and group[0] in "23456789" and group[1] != "0"
        match draw(st.sampled_from(["written", "words", "tens" if tens else "words"])):
            case "written":
                parts.append(group + draw(st.sampled_from(["", ",", ".", "-"])))
            case "words":
                change = draw(st.sampled_from([str, str.upper, str.capitalize]))
                parts += [change(FIGURES[int(figure)]) for figure in group]
            case "tens":
                parts.append(f"{TENS[int(group[0])]}{draw(st.sampled_from(['-', ' ']))}{FIGURES[int(group[1])]}")
        left -= size
        parts += (
            draw(st.sampled_from([[], [], [], ["uh"], ["and"], ["(1.2)"], ["dash"], ["okay", "yes."]])) if left else []
        )
    return " ".join(parts)


@settings(max_examples=max(150, settings.default.max_examples), deadline=None)
@given(spoken_cards(), st.booleans(), st.booleans())
def test_no_figure_of_any_card_is_left(card, numerals, patient):
    options = TextOptions(redact=("pci",), numerals=numerals)
    shown = text_of(f"my card is {card} thank you", options, patient=patient)
    assert re.fullmatch(r"my card is \[CARD\][.,]?( uh| and| dash| okay| yes\.)* thank you", shown), shown


@st.composite
def spoken_addresses(draw: st.DrawFn) -> str:
    """Return an e-mail address as it is said, with pauses within if it is known for one at its "at"."""
    joins = st.sampled_from(["dot", "underscore", "DOT"])
    part = st.sampled_from(["ann", "lee", "q r s", "J-O", "ann 99", "seven"])
    parts = [draw(part)]
    for number in range(draw(st.integers(0, 3))):
        parts += [draw(joins if number else joins | st.just("dash")), draw(part)]
    parts += draw(st.sampled_from([["at"], ["At"], ["at", "sign"]]))
    sure = not {"dot", "DOT", "underscore", "sign"}.isdisjoint(parts)
    parts += draw(st.lists(st.sampled_from(["my", "host", "4"]), min_size=1, max_size=2))
    for ending in draw(st.sampled_from([["com"], ["co", "uk"], ["org"]])):
        parts += ["dot", ending]
    pauses = draw(
        st.lists(st.sampled_from(["", "", "", "(0.9)"] if sure else [""]), min_size=len(parts), max_size=len(parts))
    )
    return " ".join(word for both in zip(parts, pauses, strict=True) for word in both if word)


@settings(max_examples=max(100, settings.default.max_examples), deadline=None)
@given(spoken_addresses())
@example("ann dash (0.9) q r s (0.9) at (0.9) sign my dot com")
def test_no_part_of_any_address_is_left_in_files_and_nothing_after_at_is_live(address):
    options = TextOptions(redact=("email",))
    assert text_of(f"write to: {address}, thanks", options, patient=True) == "write to: [EMAIL], thanks"
    live = text_of(f"write to: {address}, thanks", options)
    assert re.fullmatch(r"write to: .*\[EMAIL\],? thanks", live), live
    assert not re.search(r"\b(host|com|uk|org)\b", live), live


def test_a_label_is_one_word_with_the_times_of_what_it_hides():
    words = words_of("card 4242 4242 4242 4242, thanks")
    card = rewrite(words, CARDS)[1]
    assert (card.text, card.redacted, card.heard) == ("[CARD],", True, None)
    assert (card.start, card.end) == (words[1].start, words[4].end)


@pytest.mark.parametrize("card", ["٤٢٤٢", "۴۲۴۲", "४२४२", "４２４２", "⁴²⁴²", "④②④②"])  # noqa: RUF001  what recognisers write
def test_figures_of_other_scripts_are_hidden_too(card):
    for language in ("ar", "hi", "ja", "en"):
        assert text_of(f"a {card} {card} {card} {card} b", CARDS, language=language) == "a [CARD] b"
