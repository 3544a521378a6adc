"""Tests of what the requests of a live stream contain: where their audio begins, and which words they have."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.audio import RATE, WINDOW, position
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import TurnOptions
from pipeline.words import join_words
from tests.pipeline.scripted_streams import (
    assert_well_formed,
    perfect,
    result_of,
    stream,
    talk,
    timed_words,
    voice,
)


def test_windows_stay_short_in_long_speech():
    options = StreamOptions()
    words = talk(60, gap=0.05)
    run = stream(voice(words, position(28)), perfect(words), options=options)
    partials = [len(request.samples) for request in run.requests if not request.final]
    finals = [len(request.samples) for request in run.requests if request.final]
    assert max(partials) <= options.partial + WINDOW
    assert max(finals) <= options.final + WINDOW


def test_a_turn_is_heard_with_the_speech_before_it():
    first = talk(5)
    second = tuple(replace(word, text=f"v{n}") for n, word in enumerate(talk(5, start=3.5)))
    run = stream(voice((*first, *second), position(8)), perfect((*first, *second)))
    assert run.text == join_words((*first, *second))
    late = [request for request in run.requests if request.start + len(request.samples) > second[0].start]
    assert all(request.start <= first[0].start for request in late)


def test_a_request_has_the_decided_words_of_its_window():
    first = talk(5)
    second = tuple(replace(word, text=f"v{n}.") for n, word in enumerate(talk(20, start=3.5)))
    words = (*first, *second)
    run = stream(voice(words, position(13)), perfect(words))
    late = [request for request in run.requests if request.start + len(request.samples) > position(6)]
    assert late
    for request in late:
        inside = [word.text for word in words if word.start + word.end > 2 * request.start]
        said = [word.text for word in request.decided]
        assert said == [*inside[: len(said) - 1], inside[len(said) - 1].rstrip(".")]  # that the sentence ends, is open
        assert "." in "".join(said[:-1])


def test_a_turn_after_a_long_silence_is_heard_without_the_silence():
    first = talk(5)
    second = tuple(replace(word, text=f"v{n}") for n, word in enumerate(talk(5, start=20.0)))
    run = stream(voice((*first, *second), position(24)), perfect((*first, *second)))
    assert run.text == join_words((*first, *second))
    late = [request for request in run.requests if request.start + len(request.samples) > second[0].start]
    assert all(request.start >= second[0].start - position(1.1) for request in late)


@pytest.mark.parametrize("longest", [5, 15, 25])
@pytest.mark.parametrize("endpointing", [0.5, 2.0])
def test_speech_before_a_long_turn_gives_way_before_the_window_is_full(longest, endpointing):
    options = StreamOptions(longest=position(longest), turns=TurnOptions(endpointing=position(endpointing)))
    first = talk(34)
    second = tuple(replace(word, text=f"v{n}") for n, word in enumerate(talk(100, start=first[-1].end / RATE + 2.2)))
    words = (*first, *second)
    run = stream(voice(words, words[-1].end + position(3)), perfect(words), options=options)
    assert_well_formed(run)
    assert run.text == join_words(words)


def test_a_turn_without_words_is_not_heard_twice_where_nothing_came_before_it():
    words = talk(8)
    run = stream(voice(words, position(5)), lambda request: perfect(words)(request) if request.final else result_of())
    ends = [request.start + len(request.samples) for request in run.requests if not request.final]
    assert all(after - before >= StreamOptions().step for before, after in pairwise(ends))


def test_a_turn_is_heard_alone_once_the_listener_stops_before_it():
    first = talk(5)
    second = tuple(replace(word, text=f"v{n}") for n, word in enumerate(talk(8, start=3.5)))

    def listen(request: DecodeRequest) -> RecognitionResult:
        stops = request.start <= first[0].start
        return replace(perfect(first if stops else second)(request), incomplete=stops and len(request.decided) == 5)

    run = stream(voice((*first, *second), position(7.5)), listen)
    partials = [request for request in run.requests if not request.final and request.start > first[-1].end]
    assert partials
    assert run.committed[5:]
    assert {word.text for word in run.committed[5:]} <= {word.text for word in second}


@pytest.mark.parametrize("from_s", [5.0, 10.5])
def test_a_final_that_stops_before_a_turn_is_heard_again_with_less_before_it(from_s):
    """Partials have the words of the last turn, and finals only if they begin at *from_s* or later."""
    before = (*talk(20), *talk(3, start=9.2))
    last = timed_words(("in", 11.1, 11.4), ("short", 11.4, 11.8))

    def listen(request: DecodeRequest) -> RecognitionResult:
        deaf = request.final and request.start < position(from_s)
        return perfect(before if deaf else (*before, *last))(request)

    run = stream(voice((*before, *last), position(13)), listen)
    assert run.text == join_words((*before, *last))
    finals = [request.start for request in run.requests if request.final][2:]
    assert finals[0] < position(5) < finals[1]
    assert (finals[-1] > position(10.5)) == (len(finals) > 2) == (from_s > 10)
