"""Tests of StreamCore with perfect, slow, failing, random and silent listeners."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, repeat

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, position
from pipeline.events import (
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    Warned,
    WordsCommitted,
)
from pipeline.ingest.notes import QUIET_INPUT
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.stream import ATTEMPTS, StreamCore
from pipeline.recognition.stream_options import StreamOptions, StreamStart
from pipeline.recognition.turns import TurnOptions
from pipeline.words import Word, join_words
from tests.pipeline.scripted_streams import (
    ANY_DELAYS,
    QUIET,
    assert_well_formed,
    perfect,
    result_of,
    speeches,
    stream,
    talk,
    timed_words,
    voice,
)


@settings(max_examples=60)
@given(words=speeches(), delays=ANY_DELAYS)
@example(words=talk(120), delays=[400])
@example(words=timed_words(*(("so", 0.6 * n, 0.6 * n + 0.3) for n in range(30))), delays=[10])
def test_a_perfect_listener_loses_and_repeats_nothing_however_slow(words, delays):
    speech = voice(words, words[-1].end + position(0.3))
    run = stream(speech, perfect(words), delays=delays)
    assert_well_formed(run)
    assert run.text == join_words(words)


@settings(max_examples=60)
@given(words=speeches(), delays=ANY_DELAYS, finalize_at=st.frozensets(st.integers(0, 1500), max_size=2))
def test_a_sender_that_waits_gets_the_same_words_whatever_the_delays(words, delays, finalize_at):
    """Half, wrong and doubtful words are included. The recogniser gives the same answer to the same window."""

    def listen(request: DecodeRequest) -> RecognitionResult:
        said = perfect(words)(request).words
        seed = request.start // WINDOW + len(request.samples) // WINDOW
        return result_of(tuple(replace(w, text=w.text[::-1]) if (seed + n) % 5 == 0 else w for n, w in enumerate(said)))

    end = words[-1].end + position(1)
    prompt = stream(voice(words, end), listen, delays=[0], finalize_at=finalize_at)
    later = stream(voice(words, end), listen, delays=delays, finalize_at=finalize_at, patient=True)
    assert later.committed == prompt.committed
    assert later.only(SegmentClosed) == prompt.only(SegmentClosed)
    assert [request.start for request in later.requests] == [request.start for request in prompt.requests]


@settings(max_examples=60)
@given(words=speeches(), delays=ANY_DELAYS, data=st.data())
def test_a_mad_listener_gets_well_formed_events(words, delays, data):
    """The recogniser says random words at random times: out of order, outside the window, of no length, or fails."""
    times = st.integers(0, position(60))
    word = st.builds(Word, st.sampled_from(("a", "b", "?")), times, times, st.floats(0, 1))
    answers = data.draw(st.lists(st.lists(word, max_size=8) | st.none(), min_size=1, max_size=8))
    script = cycle(answers)

    def listen(_: DecodeRequest) -> RecognitionResult | None:
        said = next(script)
        return None if said is None else result_of(tuple(said), incomplete=len(said) > 6)

    speech = voice(words, words[-1].end + position(1))
    run = stream(speech, listen, delays=delays)
    assert_well_formed(run)


@settings(max_examples=40)
@given(words=speeches(), finalize_at=st.frozensets(st.integers(0, 1500), max_size=4), delays=ANY_DELAYS)
def test_finalize_at_any_moment_loses_no_word_but_the_one_it_splits(words, finalize_at, delays):
    speech = list(voice(words, words[-1].end + position(0.3)))
    run = stream(iter(speech), perfect(words), delays=delays, finalize_at=finalize_at)
    assert_well_formed(run)
    split = sum(word.start < (at + 1) * WINDOW < word.end for word in words for at in finalize_at)
    assert abs(len(run.committed) - len(words)) <= split
    count_partials = [(at + 1) * WINDOW for at in sorted(finalize_at) if at < len(speech)]
    told = [event.at for event in run.only(Finalized)]
    assert set(count_partials) <= set(told)
    assert told == sorted(set(told))
    for number, event in enumerate(run.events):
        if isinstance(event, Finalized):
            later = [one for one in run.events[number:] if isinstance(one, WordsCommitted)]
            assert all(word.end > event.at for one in later for word in one.words)


def test_speech_without_a_pause_is_cut_and_the_cut_is_said():
    words = talk(100)
    run = stream(voice(words, position(41)), perfect(words))
    closed = run.only(SegmentClosed)
    assert run.text == join_words(words)
    assert [event.forced for event in closed] == [True, True, False]
    assert all(event.segment.end - event.segment.start <= position(15) for event in closed)


def test_a_word_is_final_within_two_seconds_while_the_speaker_goes_on():
    words = talk(30)
    lags = {}
    core = StreamCore(StreamOptions())
    for number, probability in enumerate(voice(words, position(12))):
        core.receive_audio(QUIET, [probability])
        if (request := core.decode_wanted()) is not None:
            core.receive_hypothesis(perfect(words)(request))
        for event in core.events_received():
            if isinstance(event, WordsCommitted):
                lags |= {word.text: (number + 1) * WINDOW - word.end for word in event.words}
    assert len(lags) >= 25
    assert max(lags.values()) <= position(2)


def test_words_are_shown_before_they_are_final_and_a_wrong_one_is_taken_back():
    words = talk(6)
    guesses = iter(
        [timed_words(("w0", 0.5, 0.9)), timed_words(("v0", 0.5, 0.9)), (), ()]
    )  # nothing is requested again at once
    run = stream(voice(words, position(4)), lambda _: result_of(next(guesses, words)))
    partials = [event.text for event in run.only(Partial)]
    assert partials[:3] == ["w0", "v0", ""]
    assert run.text == join_words(words)


def test_the_final_is_asked_for_in_the_pause_and_published_when_the_pause_is_long_enough():
    words = talk(4)
    run = stream(voice(words, position(4)), perfect(words), delays=[1])
    finals = [request for request in run.requests if request.final]
    assert len(finals) == 1
    assert finals[0].start + len(finals[0].samples) == pytest.approx(words[-1].end + position(0.2), abs=2 * WINDOW)
    assert run.text == join_words(words)


def test_a_final_asked_for_in_a_pause_is_dropped_when_the_speaker_goes_on():
    words = (*talk(4), *talk(4, start=2.4))  # a pause of 0.3 s between them requests a final, but does not end the turn
    run = stream(voice(words, position(5)), perfect(words))
    assert len([request for request in run.requests if request.final]) == 2
    assert len(run.only(SegmentClosed)) == 1
    assert run.text == join_words(words)


def test_the_last_words_come_out_when_the_stream_ends_in_the_middle_of_a_word():
    words = talk(5)
    run = stream(voice(words, words[-1].end - position(0.1)), perfect(words), delays=[30])
    assert [word.text for word in run.committed] == ["w0", "w1", "w2", "w3", "w"]


@pytest.mark.parametrize(
    ("level", "speech", "warnings"), [(1e-5, 0.95, 1), (1e-5, 0.02, 1), (0.1, 0.95, 0), (0.1, 0.02, 0)]
)
def test_a_very_quiet_input_is_warned_of_once(level, speech, warnings):
    core = StreamCore(StreamOptions(warn_if_quiet=True))
    sound = np.random.default_rng(1).normal(0, level, (1, WINDOW)).astype(np.float32)
    for _ in range(position(12) // WINDOW):
        core.receive_audio(sound, [speech])
        core.decode_wanted()
    assert [event.code for event in core.events_received() if isinstance(event, Warned)] == [QUIET_INPUT] * warnings


def test_nothing_is_asked_while_nobody_speaks():
    run = stream(iter([0.1] * 20_000), lambda _: pytest.fail("asked"))  # more than ten minutes
    assert run.events == []


def test_a_click_is_not_speech():
    run = stream(iter(([0.02] * 40 + [0.99]) * 10), lambda _: pytest.fail("asked"))
    assert run.events == []


def test_words_where_nobody_spoke_are_not_believed():
    words = talk(4)
    ghosts = timed_words(("thank", 2.15, 2.3), ("you", 2.3, 2.4))  # speech ends at 2.1 s, the window at 2.3 s or later

    def listen(request: DecodeRequest) -> RecognitionResult:
        end = request.start + len(request.samples)
        return result_of((*perfect(words)(request).words, *(word for word in ghosts if word.start < end)))

    run = stream(voice(words, position(4)), listen)
    assert run.text == join_words(words)
    assert "you" not in " ".join(event.text for event in run.only(Partial))


def test_a_final_without_words_takes_the_partial_back():
    words = talk(4)
    run = stream(voice(words, position(4)), lambda r: result_of() if r.final else perfect(words)(r))
    assert run.only(Partial)[-1] == Partial((), 0)


def test_the_same_word_said_slowly_many_times_is_kept():
    words = timed_words(*(("no", 0.5 + 0.4 * n, 0.8 + 0.4 * n) for n in range(9)))
    run = stream(voice(words, position(6)), perfect(words))
    assert run.text == join_words(words)


def test_case_and_punctuation_do_not_hold_a_word_back_and_the_first_form_stays():
    words = talk(12)
    turn = cycle([str.upper, str.lower, lambda text: text + ","])

    def listen(request: DecodeRequest) -> RecognitionResult:
        form = next(turn)
        return result_of(tuple(replace(w, text=form(w.text), probability=0.3) for w in perfect(words)(request).words))

    run = stream(voice(words, position(6)), listen)
    before_the_end = run.events[: [type(event) for event in run.events].index(SpeechEnded)]
    assert sum(len(event.words) for event in before_the_end if isinstance(event, WordsCommitted)) >= 7
    assert [word.text.lower().strip(",") for word in run.committed] == [word.text for word in words]


def test_the_language_is_reported_once_and_the_next_requests_have_it_as_the_one_before():
    words = talk(20)
    certain = iter([0.9, 0.9, 0.9, 0.2, 0.3])  # the first three hear less than 1.5 s, the others are not sure

    def listen(request: DecodeRequest) -> RecognitionResult:
        return replace(perfect(words)(request), language_probability=next(certain, 0.9))

    run = stream(voice(words, position(10)), listen)
    assert run.only(LanguageDetected) == [LanguageDetected("en", 0.9)]
    unknown = sum(request.before is None for request in run.requests)
    assert 0 < unknown <= 4, "until there were 1.5 s of speech"
    assert [request.before for request in run.requests] == [None] * unknown + ["en"] * (len(run.requests) - unknown)
    assert {request.language for request in run.requests} == {None}


def in_language(words: Sequence[Word], language: str) -> tuple[Word, ...]:
    return tuple(replace(word, language=language) for word in words)


def test_words_wait_while_they_may_be_of_another_language():
    words = in_language(talk(20), "en")
    wrong = in_language([replace(word, text=f"v{n}") for n, word in enumerate(words)], "fr")
    languages = iter([words] * 8 + [wrong] * 3)

    def listen(request: DecodeRequest) -> RecognitionResult:
        heard = next(languages, words)
        certain = 0.4 if heard is wrong else 0.9
        return replace(perfect(heard)(request), language=heard[0].language, language_probability=certain)

    run = stream(voice(words, position(10)), listen)
    assert [word.text for word in run.committed] == [word.text for word in words]


def test_the_first_words_of_a_session_wait_until_enough_was_said_to_find_its_language():
    words = in_language(talk(20), "es")
    wrong = in_language([replace(word, text=f"v{n}") for n, word in enumerate(words)], "ar")

    def recognise(request: DecodeRequest) -> RecognitionResult:
        heard = words if request.final or len(request.samples) > position(1.5) else wrong
        return replace(perfect(heard)(request), language=heard[0].language, language_probability=0.9)

    run = stream(voice(words, position(9)), recognise)
    assert run.text == join_words(words)
    assert run.requests[1].before is None, "a first guess is no neighbour"
    assert [event.language for event in run.only(LanguageDetected)] == ["es"]


def test_a_segment_says_how_probable_its_language_was_when_that_was_found_last():
    words, certain = in_language(talk(5), "fr"), iter([0.9, 0.03])

    def listen(request: DecodeRequest) -> RecognitionResult:
        return replace(perfect(words)(request), language="fr", language_probability=next(certain, None))

    run = stream(voice(words, position(4)), listen)
    assert [event.segment.language_probability for event in run.only(SegmentClosed)] == [0.03]


def test_a_turn_is_two_where_the_language_changes_amid_it():
    words = talk(20)
    spoken = [*in_language(words[:10], "en"), *in_language(words[10:], "fr")]
    change = words[10].start

    def listen(request: DecodeRequest) -> RecognitionResult:
        end = request.start + len(request.samples)
        language = request.before or "en"
        if request.turn is not None and request.turn + position(0.5) < change < end - position(0.2):
            return RecognitionResult((), "en", None, 0.0, 0.0, changed=(change, "fr"))
        inside = tuple(word for word in spoken if request.start <= word.start and word.end <= end)
        whole = (max(request.start, request.turn or 0), end)
        return RecognitionResult(inside, language, 0.9, -0.1, 0.0, detected=whole)

    run = stream(voice(words, position(10)), listen)
    closed = [event.segment for event in run.only(SegmentClosed)]
    assert [{word.language for word in segment.words} for segment in closed] == [{"en"}, {"fr"}]
    assert [event.language for event in run.only(LanguageDetected)] == ["en", "fr"]
    assert [word.text for word in run.committed] == [word.text for word in words]


def test_a_given_language_is_never_detected():
    words = talk(5)
    run = stream(voice(words, position(4)), perfect(words), options=StreamOptions(language="es"))
    assert {request.language for request in run.requests} == {"es"}
    assert not run.only(LanguageDetected)


def test_a_newer_request_replaces_one_that_was_not_started():
    core = StreamCore(StreamOptions())
    words = talk(20)
    requests = []
    for probability in voice(words, position(4)):
        core.receive_audio(QUIET, [probability])
        if core.decode_due:
            if requests:
                core.withdraw()
            requests.append(core.decode_wanted())
    assert len(requests) > 4
    ends = [request.start + len(request.samples) for request in requests]
    assert ends == sorted(set(ends))
    core.receive_hypothesis(perfect(words)(requests[-1]))
    core.finish()
    core.receive_hypothesis(perfect(words)(core.decode_wanted()))
    committed = [event for event in core.events_received() if isinstance(event, WordsCommitted)]
    assert sum(len(event.words) for event in committed) == 9


def test_a_failed_partial_is_asked_again_and_nothing_is_lost():
    words = talk(12)
    failing = cycle([True, False, True])
    run = stream(voice(words, position(6)), lambda r: None if next(failing) and not r.final else perfect(words)(r))
    assert run.text == join_words(words)
    assert run.core.counts.failures > 1
    assert not run.only(Warned)


def test_a_final_that_keeps_failing_is_replaced_by_what_was_heard_before_and_said_so():
    words = talk(6)
    run = stream(voice(words, position(5)), lambda r: None if r.final else perfect(words)(r))
    assert [event.code for event in run.only(Warned)] == ["engine_failed"]
    assert run.core.counts.failures == ATTEMPTS
    assert [word.text for word in run.committed][:5] == [word.text for word in words][:5]
    assert len(run.only(SegmentClosed)) == 1


def test_a_core_that_gets_no_answer_says_it_is_full_before_thirty_seconds_are_undecided():
    core = StreamCore(StreamOptions())
    for probability in repeat(0.9):
        if not core.room:
            break
        core.receive_audio(QUIET, [probability])
        core.decode_wanted()
    assert position(29.9) <= core.position <= position(30)
    with pytest.raises(ValueError, match="full"):
        core.receive_audio(QUIET, [0.9])


def test_a_wider_pace_asks_less_often():
    words = talk(25)

    def count_partials(step: int) -> int:
        core = StreamCore(StreamOptions())
        core.pace(step)
        for probability in voice(words, position(10)):
            core.receive_audio(QUIET, [probability])
            if (request := core.decode_wanted()) is not None:
                core.receive_hypothesis(perfect(words)(request))
        return core.counts.partials

    assert count_partials(position(2)) <= count_partials(position(0.5)) // 3


@pytest.mark.parametrize("endpointing", [0.1, 0.5, 2.0])
def test_a_pause_of_endpointing_length_ends_the_turn_and_a_shorter_one_does_not(endpointing):
    options = StreamOptions(turns=TurnOptions(endpointing=position(endpointing)))
    short, long = endpointing - 0.08, endpointing + 0.12
    first = talk(2)
    second = talk(2, start=1.3 + short)
    third = talk(2, start=second[-1].end / RATE + long)
    words = (*first, *second, *third)
    run = stream(voice(words, third[-1].end + position(endpointing + 0.5)), perfect(words), options=options)
    assert [len(event.segment.words) for event in run.only(SegmentClosed)] == [4, 2]
    assert run.text == join_words(words)


def test_the_protocol_is_checked():
    core = StreamCore(StreamOptions())
    with pytest.raises(ValueError, match="in flight"):
        core.receive_hypothesis(result_of())
    core.finish()
    with pytest.raises(ValueError, match="after finish"):
        core.receive_audio(QUIET, [0.0])
    with pytest.raises(ValueError, match="27 s"):
        StreamOptions(longest=position(25), turns=TurnOptions(endpointing=position(5)))


@settings(max_examples=30)
@given(words=speeches(), delays=ANY_DELAYS, windows=st.integers(1, 200_000))
def test_a_stream_that_starts_later_in_a_recording_decides_the_same_later(words, delays, windows):
    at = windows * WINDOW

    def later(word: Word) -> Word:
        return word.at(word.start + at, word.end + at)

    def listen(request: DecodeRequest) -> RecognitionResult:
        return perfect(tuple(map(later, words)))(request)

    speech = list(voice(words, words[-1].end + position(1)))
    first = stream(iter(speech), perfect(words), delays=delays)
    second = stream(iter(speech), listen, start=StreamStart(at=at), delays=delays)
    assert second.committed == tuple(map(later, first.committed))
    assert [event.at for event in second.only(SpeechEnded)] == [event.at + at for event in first.only(SpeechEnded)]
    assert second.core.decided == first.core.decided + at


@pytest.mark.parametrize("spoken_from", [41, 80])
def test_the_rest_of_a_word_that_was_decided_is_silent_where_a_later_window_begins_with_it(spoken_from):
    """A model takes it for the beginning of the next word. The first window has the last words whole."""
    at, settled = 40 * WINDOW, 75 * WINDOW + 100
    core = StreamCore(StreamOptions(), StreamStart(at=at, settled=settled))
    request = None
    for number in range(40, 140):
        core.receive_audio(np.full((1, WINDOW), 0.1, np.float32), [0.95 if number >= spoken_from else 0.02])
        request = request or core.decode_wanted()
    assert request is not None
    loud = request.start + int(np.flatnonzero(request.samples)[0])
    first_voiced = request.voiced[0][0]
    if spoken_from == 41:
        assert (request.start, loud, first_voiced) == (at, at, 41 * WINDOW), "the first window is whole"
    else:
        assert at < request.start < settled == loud
        assert first_voiced >= settled


def test_a_stream_starts_between_two_windows():
    with pytest.raises(ValueError, match="multiple of 512"):
        StreamCore(StreamOptions(), StreamStart(at=100))


def test_no_word_begins_where_an_earlier_stream_decided_everything():
    words = talk(20)
    settled = words[6].start + 1
    run = stream(voice(words, position(10)), perfect(words), start=StreamStart(settled=settled))
    assert [word.text for word in run.committed] == [word.text for word in words[6:]]
    assert min(word.start for word in run.committed) >= settled
