"""Tests of numerals: numbers in figures as people write them, and sentences without numbers as they were."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import TextOptions, TextSettings
from pipeline.text.stage import TextStage
from pipeline.words import join_words
from tests.pipeline.decided_words import rewrite, text_of, words_of

NUMERALS = TextOptions(numerals=True)

SENTENCES = Path(__file__).parent / "numbers.tsv"
"""A language, a sentence as people say it (num2words spelled its numbers), and as they write it, or the same again."""


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("I own twenty-five percent of it.", "I own 25 percent of it."),
        ("It was nineteen eighty-four, not twenty twenty.", "It was 1984, not 2020."),
        ("Since nineteen oh five and two thousand six.", "Since 1905 and 2006."),
        ("The twenty first of May, the first of June.", "The 21st of May, the first of June."),
        ("About two point five million people.", "About 2.5 million people."),
        ("Three million and four hundred thousand two hundred.", "3 million and 400,200."),
        ("Call five five five, one two three four.", "Call 555, 1234."),
        ("It is oh seven oh oh seven.", "It is 07007."),
        ("It is two eight zero eight one four zero zero one, not zero five.", "It is 280814001, not 05."),
        ("Chapter seventeen, page one hundred and five.", "Chapter 17, page 105."),
        ("We have fifteen, sixteen or ninety nine.", "We have 15, 16 or 99."),
        ("The nineteen sixties and the two thousands were loud.", "The 1960s and the 2000s were loud."),
        ("On July fourth, not on May first or August two.", "On July 4th, not on May 1st or August 2."),
        ("It is at three thirty, not at nine oh five.", "It is at 3:30, not at 9:05."),
        ("It is four fifty p.m. now.", "It is 4:50 p.m. now."),
        ("One, two, three, go!", "1, 2, 3, go!"),
        ("Two or three of them, two of five.", "2 or 3 of them, 2 of 5."),
        ("Pick one between one and ten, or from one to five.", "Pick one between 1 and 10, or from 1 to 5."),
        ("Version three point eleven point four.", "Version 3.11.4."),
        ("Oh seven double seven one, double seven double oh seven.", "07771, 77007."),
        ("Two hundred fifty thousand of them.", "250,000 of them."),
    ],
)
def test_numbers_are_written_in_figures(text, written):
    assert text_of(text, NUMERALS) == written


@pytest.mark.parametrize(
    "text",
    [
        "One of them said wait a second, oh well.",
        "A hundred people, two by two.",
        "In 1984 there were 25,000 of us, and 3.5 percent left.",
        "It is a one-way street for someone.",
        "No one won the first prize, nor the third.",
        "Hundreds of people, tens of thousands, thousands and thousands.",
        "Four fifths, one tenth, one twentieth, three quarters and five hundredths of it.",
        "Dressed to the nines, with high fives for all.",
        "You may first want one or the other, or two or none.",
        "Bake it for two or more hours.",
    ],
)
def test_other_sentences_are_left_as_they_are(text):
    assert text_of(text, NUMERALS) == text


@pytest.mark.parametrize(
    ("language", "text", "written"),
    [
        ("fr", "J'ai vingt-cinq pour cent de quatre-vingt-dix-neuf euros.", "J'ai 25 pour cent de 99 euros."),
        ("es", "El veinticinco por ciento en mil novecientos ochenta y cuatro.", "El 25 por ciento en 1984."),
        ("de", "Ich habe fünfundzwanzig Prozent und einen Hund.", "Ich habe 25 Prozent und einen Hund."),
        ("it", "Il venticinque per cento di mille.", "Il 25 per cento di mille."),
        ("pt", "Tenho trinta e dois anos.", "Tenho 32 anos."),
        ("nl", "Ik heb vijfentwintig procent.", "Ik heb 25 procent."),
        ("de", "Am dreiundzwanzigsten Mai sind es zwei Millionen fünfhunderttausend.", "Am 23. Mai sind es 2500000."),
        ("de", "Es sind zwölf Komma fünfundzwanzig Grad.", "Es sind 12,25 Grad."),
        ("fr", "Cent fois, deux cents fois et cent mètres.", "Cent fois, 200 fois et 100 mètres."),
        ("it", "Cento volte cento euro.", "Cento volte 100 euro."),
        ("fr", "Il fait douze virgule deux cinq.", "Il fait 12,25."),
        ("es", "Vive en la vigésima tercera planta.", "Vive en la 23ª planta."),
        ("it", "Dove sei stato? Mille grazie.", "Dove sei stato? Mille grazie."),
        ("es", "Cientos de personas y miles de euros.", "Cientos de personas y miles de euros."),
        ("es", "Veintiún días, de uno a diez, dos o tres.", "21 días, de 1 a 10, 2 o 3."),
        ("fr", "Un, deux, trois, partez !", "1, 2, 3, partez !"),
        ("fr", "Les trois quarts, un dixième, cinquante cents.", "Les trois quarts, un dixième, 50 cents."),
        ("fr", "J'en ai deux ou trois et un neuf.", "J'en ai 2 ou 3 et un neuf."),
        (
            "de",
            "Drei Viertel von ihnen, zwei oder drei, zwischen eins und zehn.",
            "Drei Viertel von ihnen, 2 oder 3, zwischen 1 und 10.",
        ),
        ("it", "Due o tre persone, tre quarti.", "2 o 3 persone, tre quarti."),
        ("pt", "Dois ou três, entre um e dez.", "2 ou 3, entre 1 e 10."),
        ("nl", "Twee of drie, tussen een en tien.", "2 of 3, tussen 1 en 10."),
        ("da", "To eller tre.", "2 eller 3."),
        ("ja", "二十五 パーセント", "二十五 パーセント"),
    ],
)
def test_other_languages_are_read_by_their_own_words(language, text, written):
    assert text_of(text, NUMERALS, language=language) == written


def test_a_number_has_the_times_of_its_words_and_keeps_what_was_heard():
    words = words_of("about twenty five people")
    number = rewrite(words, NUMERALS)[1]
    assert (number.text, number.heard) == ("25", "twenty five")
    assert (number.start, number.end) == (words[1].start, words[2].end)


def test_made_sentences_of_each_language_are_written_as_people_write_them():
    count, right, changed = Counter[str](), Counter[str](), list[str]()
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        language, text, wanted = line.split("\t")
        shown = text_of(text, NUMERALS, language=language)
        if text == wanted:
            changed += [shown] if shown != text else []
            continue
        count[language] += 1
        right[language] += shown == wanted
    assert set(count) == set(NUMERAL_LANGUAGES) - {"en"}
    assert set(count.values()) == {200}
    assert all(right[language] >= 0.97 * 200 for language in count), right
    assert not changed


@pytest.mark.parametrize(
    ("text", "region", "written"),
    [
        ("Call two one two, five five five, oh one two three, please.", "US", "Call (212) 555-0123, please."),
        ("Call 212-555-0123 in twenty five days.", "US", "Call (212) 555-0123 in 25 days."),
        ("It is zero two zero seven nine four six zero one two three.", "GB", "It is 020 7946 0123."),
        (
            "It is plus four nine three zero one two three four five six seven eight.",
            "US",
            "It is plus 49 30 12345678.",
        ),
        ("It is +49 30 12345678.", "US", "It is +49 30 12345678."),
        ("It is five five five one two.", "US", "It is 55512."),
        ("Count: one two three four five six seven eight nine ten.", "US", "Count: 123456789 10."),
        ("They sold twelve million three hundred thousand.", "DE", "They sold 12,300,000."),
    ],
)
def test_telephone_numbers_are_written_as_in_their_region(text, region, written):
    assert text_of(text, TextOptions(numerals=True, phone_region=region)) == written


def test_the_operators_region_counts_where_an_order_names_none():
    settings = TextSettings(phone_region="GB")
    for region, written_there in ((None, "020 7946 0123"), ("US", "0 2 0 7 9 4 6 0 1 2 3")):
        stage = TextStage(TextOptions(numerals=True, phone_region=region), language="en", settings=settings)
        decided = [one for word in words_of("0 2 0 7 9 4 6 0 1 2 3") for one in stage.add(word, 0)]
        assert join_words(word for word, _ in [*decided, *stage.release()]) == written_there
