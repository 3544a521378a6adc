"""Tests of Segmenter: spans of speech begin and end where the probabilities say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import WINDOW, position
from pipeline.events import SpeechEnded, SpeechStarted
from pipeline.ingest.speech import Segmenter, SegmenterOptions

SPEECH = st.one_of(st.floats(0, 1), st.sampled_from((0.0, 0.2, 0.4, 0.9)))
RUNS = st.lists(st.tuples(SPEECH, st.integers(1, 40)), max_size=30).map(
    lambda runs: [speech for speech, count in runs for _ in range(count)]
)
OPTIONS = st.builds(
    SegmenterOptions,
    enter=st.sampled_from((0.5, 0.6)),
    leave=st.sampled_from((0.2, 0.35, 0.5)),
    min_speech=st.integers(0, 6 * WINDOW),
    silence=st.integers(4000, 9000),
    pad=st.integers(0, 4000),
)


def spans(probabilities: list[float], options: SegmenterOptions, last: int = WINDOW) -> list[tuple[int, int]]:
    segmenter = Segmenter(options)
    events = []
    for number, speech in enumerate(probabilities, 1):
        events += segmenter.add_window(speech, last if number == len(probabilities) else WINDOW)
    events += segmenter.end()
    assert all(isinstance(event, SpeechStarted) for event in events[::2])
    assert all(isinstance(event, SpeechEnded) for event in events[1::2])
    return [(start.at, end.at) for start, end in zip(events[::2], events[1::2], strict=True)]


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS, last=st.integers(1, WINDOW))
def test_spans_are_in_order_apart_and_inside_the_stream(probabilities, options, last):
    found = spans(probabilities, options, last)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(edges)
    assert all(start < end for start, end in found)
    assert not edges or edges[-1] <= (len(probabilities) - 1) * WINDOW + last


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS)
def test_no_event_comes_before_the_position_that_was_said_to_be_steady(probabilities, options):
    segmenter = Segmenter(options)
    for number, speech in enumerate(probabilities, 1):
        steady = segmenter.steady
        assert not segmenter.add_window(speech) or number * WINDOW >= steady


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS)
def test_every_long_enough_sound_is_inside_a_span(probabilities, options):
    found = spans(probabilities, options)
    need = max(1, -(-options.min_speech // WINDOW))
    for first in range(len(probabilities) - need + 1):
        if min(probabilities[first : first + need]) >= options.enter:
            start, end = first * WINDOW, (first + need) * WINDOW
            assert any(begin <= start and end <= finish for begin, finish in found)


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS)
def test_nothing_begins_before_what_is_settled(probabilities, options):
    segmenter, settled = Segmenter(options), 0
    for speech in probabilities:
        for event in segmenter.add_window(speech):
            assert not isinstance(event, SpeechStarted) or event.at >= settled
        assert segmenter.settled >= settled
        settled = segmenter.settled


def test_a_span_is_widened_on_both_sides_and_ends_after_the_silence():
    options = SegmenterOptions(silence=position(0.32), pad=position(0.2))
    segmenter = Segmenter(options)
    seen = {}
    for number, speech in enumerate([0.0] * 20 + [0.9] * 10 + [0.0] * 20):
        for event in segmenter.add_window(speech):
            seen[number + 1] = event
    assert seen == {
        23: SpeechStarted(20 * WINDOW - options.pad),  # speech for three windows
        40: SpeechEnded(30 * WINDOW + options.pad),
    }


def test_a_breath_between_words_does_not_end_speech_and_a_click_does_not_start_it():
    breath = [0.9] * 5 + [0.4] * 30 + [0.9] * 5
    assert len(spans(breath, SegmenterOptions())) == 1
    click = [0.0] * 10 + [0.9] + [0.0] * 10
    assert spans(click, SegmenterOptions()) == []
    word = [0.0] * 10 + [0.9] * 3 + [0.0] * 10
    assert len(spans(word, SegmenterOptions())) == 1
