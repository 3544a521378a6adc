"""Tests of what is redacted: numbers and addresses however they are said or written, and nothing else."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.text.address_words import ADDRESS_LANGUAGES
from pipeline.text.figures import Reader, bare
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions
from tests.pipeline.decided_words import rewrite, text_of, words_of

ALL = TextOptions(redact=tuple(kind for kind in REDACTIONS if kind != "numbers"))
CARDS = TextOptions(redact=("pci",))

SECRETS = Path(__file__).parent / "secrets.tsv"
"""A language, a kind of secret, a sentence with one as it is said, and as it is shown: 50 of each language."""


@pytest.mark.parametrize(
    "card",
    [
        "4242 4242 4242 4242",
        "4242-4242-4242-4242",
        "4242424242424242",
        "4242, 4242. 4242 - 4242",
        "4,242,424,242,424,242",
        "4242 4242 4242 4243",  # fails the check of its last figure
        "4242 4242 4242",  # a group was not heard
        "4242 4242 4242 4242 4242",  # one was heard twice
        "four two four two four two four two four two four two four two four two",
        "forty-two forty two, forty two forty two forty two forty two forty two forty two",
        "four two four two four oh oh two double four triple two four two",
        "4242 (1.8) 4242 (1.8) 4242 (1.8) 4242",
        "4242 uh 4242 and then 4242 space 4242",
        "199920002001",
        "one nine nine nine two oh oh oh two oh oh one",
        "card4242 4242 4242x 4242",
        "$4242 4242% #4242 No.4242",
        "42 for 2 42 42 to 2 42 42 4 2 4 2",
        "FOUR TWO FOUR TWO FOUR TWO Four Two Four Two Four Two Four Two Four Two",
        "4242 okay 4242, yes. 4242 mm-hmm 4242",
        "4242 sorry 4242 dot 4242 comma 4242 period 4242",
        "forty-two double-oh four-two quadruple four 4242 _ 4242",
        "四二四二 四二四二 〇〇一二",
        "four (1.5) two (1.5) four (1.5) two (1.5) four (1.5) two (1.5) four (1.5) two (1.5) four (1.5) two",
    ],
)
@pytest.mark.parametrize("numerals", [False, True])
def test_a_card_is_hidden_however_it_is_said(card, numerals):
    options = TextOptions(redact=("pci",), numerals=numerals)
    assert text_of(f"My card is {card} thank you.", options) == "My card is [CARD] thank you."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it is 4242 4242 4242 4242 and 123 okay", "it is [CARD] okay"),
        ("it is 4242 4242 4242 4242. The code is 1 2 3 okay", "it is [CARD]. The code is [CARD] okay"),
        ("the security code is nine eight seven.", "the security code is [CARD]."),
        ("it expires oh nine twenty seven.", "it expires [CARD]."),
        ("it is 4242 4242 4242 4242. Send $25.00 or $1234 today", "it is [CARD]. Send $25.00 or [CARD] today"),
        ("it expires soon, in room 12.", "it expires soon, in room 12."),
        ("my card number is 4242 (3.0) 9371 (3.0) 888 (3.0) 1117", "my card number is [CARD] [CARD] [CARD] [CARD]"),
        ("I gave her 4242 (3.0) 4242 (3.0) 4242", "I gave her 4242 [CARD] [CARD]"),
        (
            "I pay by card. Here it comes: 4242 (3.0) 4242 okay (3.0) 4242",
            "I pay by card. Here it comes: [CARD] [CARD] okay [CARD]",
        ),
        ("I pay by card in room 4242 and so on (3.0) yes", "I pay by card in room 4242 and so on yes"),
        ("I pay by card (31.0) it is 4242 (3.0) yes", "I pay by card it is 4242 yes"),
        (
            "it is good thru 09/28, exp 12/27, and my pin is 4321",
            "it is good thru [CARD], exp [CARD], and my pin is [CARD]",
        ),
        ("the code 123 is public", "the code 123 is public"),
    ],
)
def test_the_code_and_the_date_of_a_card_are_hidden_with_it(text, shown):
    assert text_of(text, CARDS) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("my social is one two three forty five six seven eight nine right", "my social is [SSN] right"),
        ("it is 123-45-6789.", "it is [SSN]."),
        ("call 555-123-4567 now", "call [PHONE] now"),
        ("call +1 (800) 555 0199, please", "call [PHONE], please"),
        ("call one eight hundred five five five oh one nine nine now", "call [PHONE] now"),
        ("to GB29 NWBK 6016 1331 9268 19 please", "to [IBAN] please"),
        ("to D E eight nine three seven zero four zero zero four four zero five three two please", "to [IBAN] please"),
        ("to DE89 3704 0044 0532 0130 00.", "to [IBAN]."),
        ("to GB29NWBK60161331926819.", "to [IBAN]."),
        ("to GB29-NWBK-6016-1331-9268-19, yes", "to [IBAN], yes"),
        ("to 89 3704 0044 0532 0130 00.", "to [CARD]."),
        ("write to anna.smith@example.com.", "write to [EMAIL]."),
        ("write to anna.smith at example.com, or not", "write to [EMAIL], or not"),
        ("it is a n n a at example dot com now", "it is [EMAIL] now"),
        ("b underscore 7 at mail dot example dot co dot uk is mine", "[EMAIL] is mine"),
        ("it's j o h n d o e at example dot co dot uk thanks", "it's [EMAIL] thanks"),
        ("it's J-O-H-N, at, example, dot, com.", "it's [EMAIL]."),
        ("john underscore doe 99 at my company dot com thanks", "[EMAIL] thanks"),
        ("john dot doe (1.5) at (1.5) example (1.5) dot (1.5) com thanks", "[EMAIL] thanks"),
        ("mail me at john.doe @example .com please", "mail me at [EMAIL] please"),
        ("john dot doe at the big company dot com thanks", "[EMAIL] thanks"),
        ("john dash doe at hotmail com thanks", "[EMAIL] thanks"),
        ("it is 4242 (3.0) 9371 (3.0) 8888 (3.0) 1117 thanks", "it is [CARD] [CARD] [CARD] [CARD] thanks"),
        ("john dot doe at gmail, thanks", "[EMAIL], thanks"),
        ("jane at sign example dot com", "[EMAIL]"),
        ("Email me at Jane.Doe+spam@my-company.co", "Email me at [EMAIL]"),
        ("it is j as in juliet a n e at gmail dot com", "it is [EMAIL]"),
        ("so J for Juliet, A as in Alpha, N like November at gmail dot com. Yes", "so [EMAIL]. Yes"),
        ("to john dot miller and example dot com, and then", "to [EMAIL], and then"),
        ("The account is GB-20-9, N-W-B-K, 6,061,331 9,268-19. Yes.", "The account is [IBAN]. Yes."),
    ],
)
def test_each_kind_has_its_label(text, shown):
    assert text_of(text, ALL, patient=True) == shown


@pytest.mark.parametrize(
    "text",
    [
        "I have 25 dogs, 3 cats and 1,000 books since 1984.",
        "One of them is at home. At the point of no return, a dot is a point.",
        "I am OK. The CEO of the UK met her at 10 at work.",
        "we looked at it for two or three days, at most four.",
        "nineteen eighty four was not like twenty twenty",
        "He was at the top. Dot said nothing",
        "I was born in 1984 and moved in 1999 to Berlin in 2001.",
        "It was nineteen eighty four and I came in nineteen ninety nine, a man of two thousand and one things.",
        "My order 4711 is here and order 4712 is there.",
        "Ten minus five at most. A plan B at home, at the latest.",
        "The polka dot dress and the red one, a dot com company, and that is it.",
        "From 1914 to 1918 and from 1939 to 1945, in 1999, 2000 and 2001.",
        "From nineteen fourteen to nineteen eighteen, and then again.",
        "We sold 1,500,000 units in 2023 and 2,000,000 in 2024.",
    ],
)
def test_other_words_and_numbers_are_left(text):
    assert text_of(text, ALL, patient=True) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it is 4242 4242 um let me see 4242 4242 thanks", "it is [CARD] thanks"),
        (
            "the first four are 4242 the next four are 4242 then 4242 and the last four are 4242 thanks",
            "the first four are [CARD] the next four are [CARD] and the last four are [CARD] thanks",
        ),
        (
            "it is four two four two nine three seven one let me see eight eight eight eight one one one seven thanks",
            "it is [CARD] thanks",
        ),
        ("it is 4242 (2.3) 9371 (2.3) 8888 (2.3) 1117 thanks", "it is [CARD] thanks"),
        ("it is 4242 (3.0) 9371 (3.0) 8888 (3.0) 1117 thanks", "it is 4242 [CARD] [CARD] [CARD] thanks"),
        (
            "it is four two four two then it says four two four two and after that one nine eight four okay bye",
            "it is [CARD] then it says [CARD] and after that [CARD] okay bye",
        ),
    ],
)
def test_the_groups_of_a_card_are_hidden_also_with_words_between_them(text, shown):
    assert text_of(text, CARDS) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it's j o h n n y a p p l e s e e d at example dot com thanks", "it's [EMAIL] thanks"),
        ("john dot doe (1.5) at (1.5) example (1.5) dot (1.5) com thanks", "john [EMAIL] thanks"),
        ("my name is S M I T H, Smith, thanks", "my name is S M I T H, Smith, thanks"),
    ],
)
def test_live_an_address_that_is_longer_than_words_are_held_is_hidden_to_its_end(text, shown):
    assert text_of(text, TextOptions(redact=("email",))) == shown


def test_all_numbers_are_hidden_if_that_is_ordered_and_the_word_one_is_left():
    options = TextOptions(redact=("numbers",))
    assert text_of("One of the 25 has 3,000 and forty two.", options) == "One of the [NUMBER] has [NUMBER]."


def test_live_the_first_word_of_an_address_may_be_told_before_it_is_known_to_be_one():
    assert text_of("write to bob at example dot com please", ALL) == "write to bob [EMAIL] please"
    assert text_of("write to bob at example dot com please", ALL, patient=True) == "write to [EMAIL] please"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Meine Karte ist zweiundvierzig zweiundvierzig zweiundvierzig zweiundvierzig zweiundvierzig eins zwei"),
        ("fr", "Ma carte est quarante-deux quarante-deux quarante-deux quarante-deux quarante-deux un deux"),
        ("es", "Mi tarjeta es cuatro dos cuatro dos cuatro dos cuatro dos cuatro dos cuatro dos"),
        ("it", "La carta è quattro due quattro due quattro due quattro due quattro due quattro due"),
        ("pt", "O cartão é quatro dois quatro dois quatro dois quatro dois quatro dois quatro dois"),
        ("nl", "De kaart is vier twee vier twee vier twee vier twee vier twee vier twee"),
        ("de", "Meine Karte ist zweiundvierzig fünfzig, ja, dreimal vier eins dann elf punkt zwölf"),
        ("fr", "Ma carte est quatre deux quatre deux oui quatre deux quatre deux puis quatre deux quatre deux"),
        ("es", "Mi tarjeta es cuatro dos cuatro dos vale cuatro dos cuatro dos luego cuatro dos cuatro dos"),
        ("ja", "カードは 4242 4242 4242 4242"),
    ],
)
def test_number_words_of_other_languages_count_as_figures(language, text):
    assert text_of(f"{text} .", CARDS, language=language).split()[-2] == "[CARD]"


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


@pytest.mark.parametrize(
    ("language", "text", "shown"),
    [
        ("en", "You can call me at 25550173, yes.", "You can call me at [PHONE], yes."),
        ("en", "The phone number is two one two five five five.", "The phone number is [PHONE]."),
        ("en", "They call it 2001, and my order is 25550173.", "They call it 2001, and my order is 25550173."),
        ("de", "Meine Handynummer ist 0170 123.", "Meine Handynummer ist [PHONE]."),
    ],
)
def test_a_telephone_number_some_figures_of_which_were_not_heard_is_hidden(language, text, shown):
    assert text_of(text, TextOptions(redact=("phone",)), language=language) == shown
