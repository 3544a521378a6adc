"""Tests of voicing.py: word times are corrected by the speech, and words without speech are dropped."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import WINDOW, position
from pipeline.recognition.voicing import Voicing, place_in_speech
from pipeline.words import Word, join_words
from tests.pipeline.scripted_streams import perfect, stream, timed_words, voice

START = 10 * WINDOW


def voicing(pattern: str) -> Voicing:
    """Return a Voicing of a pattern in which # is a frame of speech and . one of silence. It starts at frame 10."""
    return Voicing(START, bytes(mark == "#" for mark in pattern))


def words(*spans: tuple[str, float, float]) -> list[Word]:
    """Return words of (text, first frame, frame after the last), counted like the characters of the pattern."""
    return [Word(text, round(START + start * WINDOW), round(START + end * WINDOW), 0.9) for text, start, end in spans]


def test_a_word_loses_the_silence_at_its_ends():
    assert voicing("...####...").place(words(("hello", 0, 10))) == words(("hello", 3, 7))


def test_a_word_lasts_until_its_sound_ends_but_not_into_the_next_word():
    assert voicing("########..").place(words(("see", 0, 5))) == words(("see", 0, 8))
    assert voicing("########..").place(words(("you", 0, 3), ("there", 4, 6))) == words(("you", 0, 4), ("there", 4, 8))


def test_where_the_sound_has_not_ended_yet_a_word_is_not_drawn_out():
    assert voicing("##########").place(words(("and", 0, 5))) == words(("and", 0, 5))


def test_a_word_in_a_pause_between_words_is_dropped():
    said = words(("one", 0, 4), ("thank", 6, 7), ("two", 9, 12))
    assert voicing("####.....###").place(said) == [said[0], said[2]]


def test_a_word_after_the_last_sound_is_dropped():
    said = words(("one", 0, 4), ("thank", 6, 7), ("you", 7, 8))
    assert voicing("####......").place(said) == said[:1]


def test_a_word_that_shrank_to_nothing_at_the_edge_is_found_where_the_voice_is():
    """The times of a single short word fell together at the start of the window, before it was spoken."""
    assert voicing("......#####..").place(words(("Signal", 0, 1))) == words(("Signal", 6, 11))


def test_a_word_whose_place_is_silence_gets_the_voice_that_nobody_claims():
    said = words(("seven", 0, 4), ("Signal", 5, 6))
    assert voicing("####....####..").place(said) == words(("seven", 0, 4), ("Signal", 8, 12))


def test_a_word_ends_at_the_pause_and_what_is_said_after_that_belongs_to_the_next_one():
    said = words(("bridge", 0, 40), ("sister", 40, 44))
    placed = voicing("#" * 10 + "." * 20 + "#" * 15 + ".").place(said)
    assert placed == words(("bridge", 0, 10), ("sister", 30, 45))
    trailing = voicing("#" * 3 + "." * 20 + "#" * 9 + ".")
    assert trailing.place(words(("My", 0, 30))) == words(("My", 23, 32))


def test_people_pause_within_a_number():
    said = words(("526", 0, 40))
    assert voicing("#" * 10 + "." * 20 + "#" * 10).place(said) == said


def test_words_in_silence_after_one_that_was_drawn_out_share_its_speech():
    placed = voicing("#" * 40 + "." * 20 + "#" * 10).place(words(("the", 0, 40), ("bridge", 42, 44), ("My", 60, 70)))
    assert [word.text for word in placed] == ["the", "bridge", "My"]
    assert placed[0].end == placed[1].start
    assert placed[1].end == START + 40 * WINDOW


def test_a_word_in_silence_moves_to_speech_on_one_side_of_a_pause():
    said = words(("seven", 0, 4), ("Signal", 10, 12))
    assert voicing("######" + "." * 20 + "#" * 8 + ".").place(said) == words(("seven", 0, 6), ("Signal", 26, 34))
    drawn = voicing("#" * 40 + "." * 30).place(words(("the", 0, 40), ("bridge", 50, 54)))
    assert [word.text for word in drawn] == ["the", "bridge"]
    assert drawn[1].end == START + 40 * WINDOW


def test_the_last_word_is_not_written_again_for_the_silence_after_it():
    seconds = tuple((position(start), position(end)) for start, end in ((0.0, 0.5), (1.0, 1.3)))
    once = timed_words(("no", 0.0, 0.5), ("no", 1.0, 1.3))
    again = (*once, *timed_words(("no", 1.32, 1.5)))
    assert place_in_speech(again, 0, position(3), seconds) == tuple(once)


def test_words_squeezed_before_a_word_that_claims_the_silence_share_its_voice():
    placed = voicing("....########..").place(words(("an", 0, 1), ("apple", 1, 9)))
    assert [word.text for word in placed] == ["an", "apple"]
    assert placed[0].start == START + 4 * WINDOW
    assert placed[0].end == placed[1].start
    assert placed[1].end == START + 12 * WINDOW


def test_one_frame_of_voice_is_too_little_for_words_in_silence():
    assert voicing(".....#....").place(words(("thank", 0, 1), ("you", 1, 2))) == []


SPANS = st.lists(st.tuples(st.sampled_from(("a", "to", "banana")), st.integers(0, 40), st.integers(0, 8)), max_size=8)


@given(st.text("#.", min_size=1, max_size=40), SPANS)
def test_placed_words_are_spoken_ones_in_order_and_do_not_start_to_overlap(pattern, spans):
    at, said = 0, []
    for text, skip, length in spans:
        start = min(at + skip % 5, len(pattern))
        at = min(start + length, len(pattern))
        said += words((text, start, at))
    placed = voicing(pattern).place(said)
    left = iter(said)
    assert all(any(word.text == other.text for other in left) for word in placed), "no word is new, none changes place"
    assert all(START <= word.start <= word.end <= START + len(pattern) * WINDOW for word in placed)
    assert all(before.end <= after.start for before, after in pairwise(placed))
    if "#" not in pattern:
        assert placed == []


def test_soft_words_before_the_speech_that_starts_a_turn_are_heard():
    """By telephone the voice detector is half sure of the first words, which does not start a turn."""
    said = timed_words(("the", 2.05, 2.2), ("rate", 2.2, 2.5), ("is", 2.5, 2.8), ("nine", 2.8, 3.4))
    speech = (
        0.4 if probability > 0.5 and n * WINDOW < said[2].end else probability
        for n, probability in enumerate(voice(said, position(5)))
    )
    run = stream(speech, perfect(said))
    assert run.text == join_words(said)
