"""Tests of merging.py: what is heard twice is told once, and what is new is found, within a number too."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, position
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.merging import find_new_words
from pipeline.words import Word, join_words
from tests.pipeline.respelling import Respelling, dictations, respell, units_in
from tests.pipeline.scripted_streams import perfect, result_of, stream, timed_words, voice


@given(words=dictations(), count=st.integers(0, 30), seeds=st.tuples(st.integers(), st.integers()))
def test_a_new_hearing_goes_on_after_the_final_words_even_within_a_number(words, count, seeds):
    said, rest = respell(words[:count], seeds[0]), words[count:]
    end = said[-1].end if said else 0
    fresh, _ = find_new_words(said, respell(words, seeds[1]), end)
    assert units_in((*said, *fresh)) == units_in((*said, *rest))


@settings(max_examples=150)
@given(words=dictations(), delays=st.lists(st.integers(0, 30), min_size=1, max_size=3))
@example(words=timed_words(*((text, 0.5 + n, 0.9 + n) for n, text in enumerate(["five"] * 4))), delays=[2])
def test_a_live_number_is_told_once_however_each_hypothesis_writes_it(words, delays):
    run = stream(voice(words, words[-1].end + position(1)), Respelling(words), delays=delays)
    assert units_in(run.committed) == units_in(words)


def fresh_text(said, heard_again, end: float) -> str:
    fresh, _ = find_new_words(timed_words(*said), timed_words(*heard_again), position(end))
    return join_words(fresh)


def test_a_price_after_a_word_that_the_model_stretches_over_it_is_new():
    said = [("It", 0.54, 0.72), ("was", 0.72, 1.08)]
    again = [("It", 0.54, 0.72), ("was", 0.72, 2.38), ("$575", 2.38, 2.42), ("in", 2.42, 3.02)]
    assert fresh_text(said, again, 1.08) == "$575 in"


def test_counting_goes_on_after_the_last_final_number_though_its_time_is_a_second_off():
    said = [("24,", 4.93, 5.55), ("25,", 5.56, 6.59), ("26", 6.59, 7.28)]
    again = [("24,", 4.61, 5.57), ("25,", 5.57, 6.85), ("26,", 6.85, 8.25), ("27,", 8.25, 9.15)]
    assert fresh_text(said, again, 7.28) == "27,"
    again = [("25,", 6.51, 6.86), ("26,", 6.86, 7.84), ("27,", 7.84, 8.84), ("28,", 8.84, 9.56)]
    assert fresh_text([*said, ("26,", 7.28, 8.25)], again, 8.25) == "27, 28,"


def test_a_number_in_words_goes_on_after_the_last_final_one_of_them():
    texts = ["two", "million", "two", "hundred", "two", "thousand", "six", "hundred", "eighty", "four", "people"]
    whole = [(text, 1 + 0.25 * at, 1.25 + 0.25 * at) for at, text in enumerate(texts)]
    for count in range(1, len(whole)):
        assert fresh_text(whole[:count], whole, whole[count - 1][2]) == " ".join(texts[count:])


def test_a_long_number_goes_on_after_its_last_final_figures_though_its_beginning_is_heard_otherwise():
    figures = [(figure, 1 + 0.4 * at, 1.4 + 0.4 * at) for at, figure in enumerate("773909006039233")]
    again = [("77390906039233997.", 1.0, 7.8), ("Please", 7.8, 8.1)]  # one figure less
    assert fresh_text(figures, again, 7.0) == "997. Please"
    said = [("is", 0.7, 0.9), ("you", 0.9, 1.0), ("a", 1.0, 1.4), ("9", 1.4, 1.5), ("7", 1.5, 1.9)]
    again = [("is", 0.7, 0.9), ("UAE-9702", 0.9, 2.5), ("from", 2.5, 2.8)]
    assert fresh_text(said, again, 1.9) == "02 from"
    said = [("is", 0.7, 0.9), ("UAE", 0.9, 1.5)]
    assert fresh_text(said, [("is", 0.7, 0.9), ("UAE-9702", 0.9, 2.5)], 1.5) == "9702"
    again = [("0-1", 0.0, 0.4), ("2,3", 0.4, 1.0), ("please", 1.0, 1.2)]
    assert fresh_text([("0-1-2", 0.0, 0.6)], again, 0.6) == "3 please"
    again = [("order", 27.9, 28.2), ("8888888.", 28.4, 31.0), ("Send", 31.0, 31.3)]  # over a pause
    assert fresh_text([("order", 27.9, 28.2), ("8888888.", 28.4, 29.6)], again, 29.6) == "Send"


def test_a_final_word_that_is_heard_in_another_form_is_not_told_again():
    said = [("Please", 0.5, 0.8), ("ring", 0.8, 1.0), ("1-0", 1.0, 1.3), ("for", 1.3, 1.6)]
    again = [("Please", 0.5, 0.8), ("ring", 0.8, 1.0), ("104-1619,", 1.0, 2.8), ("extension", 2.8, 3.1)]
    assert fresh_text(said, again, 1.6) == "1619, extension"
    said = [("people,", 27.47, 28.51), ("it", 28.53, 28.61)]
    again = [("people.", 27.46, 28.5), ("It's", 28.5, 28.72), ("grown", 28.72, 28.82)]
    assert fresh_text(said, again, 28.61) == "grown"
    again = [("for", 1.3, 1.6), ("4", 1.6, 1.9), ("people", 1.9, 2.3)]
    assert fresh_text(again[:1], again, 1.6) == "4 people"


NUMBERS = (  # of one word each: when it is said, what is heard of its beginning until when, and what from its middle on
    ("$450,000", 1.0, 3.4, {1.5: "4", 2.0: "400", 2.6: "$450"}, "$50,000"),
    ("830-166-1318", 5.0, 10.0, {6.0: "83", 7.0: "830-1", 8.5: "830-166", 9.5: "830-166-13"}, "166-1318"),
    ("1-800-FLOWERS", 11.5, 14.0, {12.2: "1", 13.0: "1-800"}, "800-FLOWERS"),
)
AROUND = (("costs", 0.5, 1.0), ("today", 3.4, 3.9), ("call", 4.6, 5.0), ("or", 11.2, 11.5), ("now", 14.0, 14.4))


def bigger_model(request: DecodeRequest) -> RecognitionResult:
    """Hear numbers as bigger models write them: as one word that grows, or without its beginning if that is cut off."""
    first, last = request.start, request.start + len(request.samples)
    words = [word for word in timed_words(*AROUND) if first <= word.start and word.end <= last]
    for whole, start, end, beginnings, rest in NUMBERS:
        if position(end) <= first or position(start) >= last:
            continue
        grown = [said for until, said in beginnings.items() if position(until) <= last]
        if position(start) < first:
            words += timed_words((rest, first / RATE, min(end, last / RATE)))
        elif position(end) <= last:
            words += timed_words((whole, start, end))
        elif grown:
            words += timed_words((grown[-1], start, last / RATE))
    return result_of(tuple(sorted(words, key=lambda word: word.start)))


@pytest.mark.parametrize("delay", [1, 5, 20])
@pytest.mark.parametrize("pauses", [(), ((6.0, 6.7), (8.5, 9.2))])
def test_numbers_as_bigger_models_write_them_are_told_once(delay, pauses):
    everything = sorted(
        [*timed_words(*AROUND), *timed_words(*((text, begin, stop) for text, begin, stop, *_ in NUMBERS))],
        key=lambda word: word.start,
    )
    speech = (
        0.02 if any(first <= frame * WINDOW / RATE < last for first, last in pauses) else probability
        for frame, probability in enumerate(voice(tuple(everything), position(16)))
    )
    run = stream(speech, bigger_model, delays=[delay])
    assert units_in(run.committed) == units_in(everything)


def test_a_final_word_without_units_is_not_new():
    said = [Word("johanna", 0, 1000, 0.9), Word("dot", 1000, 2000, 0.9)]
    fresh, count = find_new_words(said, [*said, Word("doe", 2000, 3000, 0.9)], 2000)
    assert ([word.text for word in fresh], count) == (["doe"], 2)
    fresh, _ = find_new_words(said[:1], [*said, Word("doe", 2000, 3000, 0.9)], 1000)
    assert [word.text for word in fresh] == ["dot", "doe"]


@pytest.mark.parametrize("delay", [1, 20])
@pytest.mark.parametrize(("whole", "start", "end"), [number[:3] for number in NUMBERS])
def test_a_number_at_the_very_end_of_a_session_is_whole(whole, start, end, delay):
    everything = [
        *(word for word in timed_words(*AROUND) if word.end <= position(end)),
        *timed_words(*((text, begin, stop) for text, begin, stop, *_ in NUMBERS if stop <= end)),
    ]
    run = stream(voice(tuple(everything), position(end) + WINDOW), bigger_model, delays=[delay])
    assert units_in(run.committed) == units_in(sorted(everything, key=lambda word: word.start))
    assert units_in(run.committed)[-len(units_in(timed_words((whole, start, end)))) :] == units_in(
        timed_words((whole, start, end))
    )


def across_a_pause(first, second, again) -> str:
    """Return what is told of two turns whose words the final of the second hears as *again*."""
    words = timed_words(*first, *second)

    def listen(request: DecodeRequest) -> RecognitionResult:
        whole = request.final and request.start + len(request.samples) > words[-1].end
        return result_of(timed_words(*again)) if whole else perfect(words[: len(first)])(request)

    return stream(voice(words, words[-1].end + position(1)), listen).text


def test_the_last_word_of_a_turn_is_told_once_where_a_model_puts_it_behind_the_pause():
    first = [("order", 1.0, 1.4), ("number", 1.4, 1.8), ("please", 1.8, 2.2)]
    again = [("order", 1.0, 1.4), ("number", 1.4, 2.2), ("please", 3.0, 3.3), ("it", 3.3, 3.6)]
    assert across_a_pause(first, [("it", 3.0, 3.6)], again) == "order number please it"


def test_a_turn_over_which_a_model_stretches_the_last_word_before_it_is_heard_by_itself():
    first = [("order", 1.0, 1.4), ("number", 1.4, 1.8), ("please", 1.8, 2.2)]
    second = [("it", 3.0, 3.3), ("is", 3.3, 3.6), ("in", 3.6, 4.0), ("here", 4.0, 4.4)]
    words = timed_words(*first, *second)

    def listen(request: DecodeRequest) -> RecognitionResult:
        stretched = [("order", 1.0, 1.4), ("number", 1.4, 2.2), ("please", 3.0, 4.0), ("here", 4.0, 4.4)]
        whole = request.start < words[0].end and request.start + len(request.samples) > words[-1].end
        return result_of(timed_words(*stretched)) if whole else perfect(words)(request)

    run = stream(voice(words, words[-1].end + position(1)), listen)
    assert run.text == "order number please it is in here"


def test_a_turn_over_which_a_model_stretches_a_number_is_heard_by_itself():
    words = timed_words(("is", 1.0, 1.4), ("66495", 1.4, 2.8), ("040", 4.2, 5.1))

    def listen(request: DecodeRequest) -> RecognitionResult:
        whole = request.final and request.start < words[0].end and request.start + len(request.samples) > words[-1].end
        stretched = timed_words(("is", 1.0, 1.4), ("66495", 1.4, 5.1))
        return result_of(stretched) if whole else perfect(words)(request)

    assert stream(voice(words, words[-1].end + position(1)), listen).text == "is 66495 040"


@pytest.mark.parametrize("word", ["oh", "no"])
def test_a_word_that_is_said_again_after_a_pause_is_told_again(word):
    first, second = [(word, 1.0, 1.4), ("no", 1.4, 1.8)], [("no", 2.6, 3.0)]
    assert across_a_pause(first, second, [*first, *second]) == f"{word} no no"
