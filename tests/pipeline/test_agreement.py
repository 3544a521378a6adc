"""Tests of agreement.py: which words of successive hypotheses are committed, and that each is committed once."""

from dataclasses import replace

import pytest

from pipeline.audio import position
from pipeline.recognition.agreement import Agreement, AgreementOptions
from pipeline.words import Word

OPTIONS = AgreementOptions(
    guard=position(0.5), shown_sure=0.45, sure=0.8, sure_guard=position(1.0), settled=position(3.0), apart=position(0.4)
)


def timed_words(text: str, *, start: float = 0.0, each: float = 0.4, probability: float = 0.5) -> list[Word]:
    return [
        Word(word, position(start + n * each), position(start + (n + 1) * each), probability)
        for n, word in enumerate(text.split())
    ]


def texts(words: tuple[Word, ...]) -> str:
    return " ".join(word.text for word in words)


def test_two_hypotheses_that_agree_make_a_word_final_but_not_at_the_edge():
    agreement = Agreement(OPTIONS)
    assert agreement.receive(timed_words("and so my fel"), until=position(1.6)) == ()
    committed = agreement.receive(timed_words("and so my fellow"), until=position(1.75))
    assert texts(committed) == "and so my"
    assert texts(agreement.pending) == "fellow"


def test_one_hypothesis_is_enough_where_the_model_is_sure_and_the_edge_is_far():
    agreement = Agreement(OPTIONS)
    committed = agreement.receive(timed_words("and so my fellow", probability=0.9), until=position(1.9))
    assert texts(committed) == "and so"


def test_a_doubtful_word_holds_back_what_follows_until_it_is_settled():
    agreement = Agreement(OPTIONS)
    assert agreement.receive(timed_words("the cat sat"), until=position(2)) == ()
    assert agreement.receive(timed_words("a cat sat"), until=position(2.5)) == ()
    assert texts(agreement.receive(timed_words("uh cat sat"), until=position(3.4))) == "uh cat sat"


def test_words_that_will_probably_change_are_not_shown_at_the_end():
    agreement = Agreement(OPTIONS)
    agreement.receive(timed_words("and so my fel"), until=position(1.7))
    assert texts(agreement.shown) == "and so my"
    agreement.receive(timed_words("but now uh fellow", probability=0.3), until=position(2.5))
    assert texts(agreement.shown) == ""
    agreement.receive(timed_words("well my fel"), until=position(1.2), paused=True)
    assert texts(agreement.shown) == "well my fel"


def test_of_a_patient_stream_every_word_waits_until_it_is_settled_or_its_turn_is_over():
    agreement = Agreement(replace(OPTIONS, patient=True))
    words = timed_words("and am fellow", probability=0.9)
    assert agreement.receive(words, until=position(3.3), paused=True) == ()
    assert texts(agreement.receive(words, until=position(3.4))) == "and"
    assert texts(agreement.conclude(words, until=position(3.5))) == "am fellow"


def test_an_improbable_word_is_shown_with_those_after_it_when_two_hypotheses_have_it():
    agreement = Agreement(OPTIONS)
    words = [*timed_words("well"), *timed_words("am", start=0.4, probability=0.3), *timed_words("fellow", start=0.8)]
    agreement.receive(words, until=position(1.4))
    assert texts(agreement.shown) == "well"
    agreement.receive(words, until=position(1.5))
    assert texts(agreement.shown) == "am fellow"


def test_the_marks_of_a_word_are_those_of_the_hypothesis_that_made_it_final():
    agreement = Agreement(OPTIONS)
    agreement.receive(timed_words("hello World now"), until=position(2))
    assert texts(agreement.receive(timed_words("hello, World. Now"), until=position(2))) == "hello, World. Now"


@pytest.mark.parametrize("last", ["hypothesis", "conclusion"])
def test_a_capital_that_was_shown_is_not_taken_back(last):
    agreement = Agreement(OPTIONS)
    agreement.receive(timed_words("That was"), until=position(1))
    answer = agreement.receive if last == "hypothesis" else agreement.conclude
    assert texts(answer(timed_words("that was the"), until=position(3))).startswith("That was")


@pytest.mark.parametrize(("said", "then"), [("my country.", "Ask"), ("my country,", "ask"), ("my country. So", "ask")])
def test_a_sentence_begins_with_a_capital_where_the_last_one_ended_at_a_pause(said, then):
    agreement = Agreement(OPTIONS)
    agreement.receive(timed_words(said), until=position(1.2))
    assert texts(agreement.receive(timed_words(said), until=position(1.2), paused=True)) == said
    assert texts(agreement.conclude(timed_words("ask", start=1.2), until=position(2))) == then


def test_an_inserted_word_does_not_break_the_agreement_of_those_before_it():
    agreement = Agreement(OPTIONS)
    agreement.receive(timed_words("red blue green white black"), until=position(3))
    assert texts(agreement.receive(timed_words("red blue pink green white black"), until=position(3))) == "red blue"


def test_committed_words_are_found_again_although_they_moved_and_changed():
    agreement = Agreement(OPTIONS)
    assert texts(agreement.conclude(timed_words("the red house"), until=position(1.2))) == "the red house"
    again = timed_words("The read house, stood there", start=0.15)
    assert texts(agreement.conclude(again, until=position(4))) == "stood there"


def test_a_repeated_word_is_told_apart_by_its_time():
    agreement = Agreement(OPTIONS)
    agreement.conclude(timed_words("no no"), until=position(0.8))
    assert texts(agreement.conclude(timed_words("no no no no"), until=position(2))) == "no no"


def test_the_words_of_an_earlier_turn_may_be_said_again():
    agreement = Agreement(OPTIONS)
    agreement.conclude(timed_words("so so"), until=position(2))
    agreement.part()
    assert texts(agreement.conclude(timed_words("so so", start=1.2), until=position(4))) == "so so"
    assert texts(tuple(agreement.committed)) == "so so so so"


def test_a_doubtful_word_waits_until_three_hypotheses_in_a_row_have_it():
    agreement = Agreement(OPTIONS)
    for text in ("a b", "a b", "uh b", "a b", "a b"):
        assert agreement.receive(timed_words(text, probability=0.2), until=position(2)) == ()
    assert texts(agreement.receive(timed_words("a b", probability=0.2), until=position(2))) == "a b"


def test_nothing_before_a_settled_place_is_committed():
    agreement = Agreement(OPTIONS)
    agreement.settle(position(2))
    committed = agreement.conclude(timed_words("a b c d e f g h"), until=position(4))
    assert texts(committed) == "f g h", "e ends at 2.0 s, which is decided"
    assert committed[0].start >= position(2)
