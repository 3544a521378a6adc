"""Tests of gates in answers.py: which answers are no speech or repetition, and what is left of repeated text."""

import pytest

from pipeline.audio import position
from pipeline.recognition.engines.whisper.answers import before_timeless, compression_ratio, failed_gate, without_echo
from pipeline.words import Word, join_words
from tests.pipeline.scripted_streams import timed_words

SPEECH = " And so my fellow Americans ask not what your country can do for you."


def gate_of(
    text: str = SPEECH,
    *,
    seconds: float = 6.0,
    avg_logprob: float = -0.2,
    no_speech_prob: float = 0.01,
    cut_off: bool = False,
    voiced_s: float = 0.0,
) -> str | None:
    scores = {"avg_logprob": avg_logprob, "no_speech_prob": no_speech_prob}
    return failed_gate(text, seconds=seconds, cut_off=cut_off, voiced_s=voiced_s, **scores)


def test_plain_speech_passes():
    assert gate_of() is None


def test_where_the_model_doubts_speech_its_text_must_be_likely_and_somebody_must_be_heard():
    assert gate_of(" Thank you.", no_speech_prob=0.9, avg_logprob=-1.1, voiced_s=2.0) == "no_speech"
    assert gate_of(" Nunca.", no_speech_prob=0.5, avg_logprob=-0.2, voiced_s=0.3) == "no_speech"
    assert gate_of(" Nunca.", no_speech_prob=0.1, avg_logprob=-1.2, voiced_s=0.3) is None
    assert gate_of(" Nunca.", no_speech_prob=0.9, avg_logprob=-0.2, voiced_s=0.6) is None
    assert gate_of(no_speech_prob=0.5, avg_logprob=-1.5, voiced_s=2.0) is None, "one doubt is not enough"


def test_a_loop_is_a_repetition_and_what_fits_its_time_is_none():
    assert gate_of(" very" * 30) == "repetition"
    assert gate_of(" very" * 30, voiced_s=6.0) is None
    assert gate_of(SPEECH * 8, seconds=30.0, voiced_s=28.0) is None
    assert gate_of(SPEECH * 8, seconds=30.0, voiced_s=6.0) == "repetition", "nobody says it in the time of the speech"
    assert compression_ratio(SPEECH) < 1.5


def test_an_answer_that_had_to_be_stopped_is_a_repetition():
    assert gate_of(cut_off=True) == "repetition"


def test_more_letters_than_anybody_can_say_are_too_fast():
    assert gate_of(SPEECH, seconds=1.0) == "too_fast"
    assert gate_of(" Yes, indeed.", seconds=0.3) is None


def test_marks_without_a_letter_are_no_words():
    assert gate_of(" ?") == gate_of(" ...") == gate_of("") == "no_words"


@pytest.mark.parametrize(
    "text", ["我的朋友们不要问你们的国家能为你们做什么", "मेरे साथी देशवासियों यह मत पूछो", "เพื่อนร่วมชาติของฉัน"]
)
def test_other_scripts_pass_at_the_pace_they_are_spoken(text):
    assert gate_of(text, seconds=4.0) is None


def echo_cut_from(text: str, seconds: float, voiced: list[tuple[float, float]]) -> str:
    texts = text.split()
    words = [
        Word(said, *(position(seconds * n / len(texts)) for n in (at, at + 1)), 0.9) for at, said in enumerate(texts)
    ]
    spans = [(position(start), position(end)) for start, end in voiced]
    return " ".join(word.text for word in without_echo(words, spans))


def test_a_phrase_that_begins_anew_in_the_silence_after_it_is_cut():
    text = "Please call before noon for the quarterly budget review, for the quarterly budget"
    assert echo_cut_from(text, 6.0, [(0.2, 3.0)]) == "Please call before noon for the quarterly budget review,"
    assert echo_cut_from(text, 6.0, [(0.2, 5.9)]) == text, "there is speech for both"


@pytest.mark.parametrize("times", [2, 3, 8])
@pytest.mark.parametrize(
    ("said", "seconds"), [("we were all going direct to heaven", 2.1), ("stop", 0.4), ("you", 0.3), ("no go", 0.5)]
)
def test_what_fits_its_time_is_no_echo_and_what_does_not_is_there_once(said, seconds, times):
    text = " ".join([said] * times)
    assert echo_cut_from(text, times * seconds, [(0.0, times * seconds)]) == text
    if len(text) > 30:
        assert echo_cut_from(text, 0.1 * seconds, [(0.0, 0.1 * seconds)]) == said


def test_rounds_that_got_no_time_were_not_said():
    phrase = ["and", "so", "my", "fellow", "Americans"]
    times = [(start + 0.4 * at, 0.4) for start in (0.0, 2.2, 4.4) for at in range(5)]
    times += [(6.2 + 0.08 * at, 0.08) for at in range(5)]
    words = [
        Word(text, position(start), position(start + length), 0.9)
        for text, (start, length) in zip(phrase * 4, times, strict=True)
    ]
    assert len(without_echo(words, [(0, position(7))])) == 3 * len(phrase)


@pytest.mark.parametrize("after", [(), (("greeting.", 10.9, 11.9),)])
def test_an_answer_ends_before_words_that_got_no_time(after):
    ahead = [(text, 10.7, 10.7) for text in ["Press", "5", "to", "change", "your", "password"]]
    words = timed_words(("your", 10.0, 10.3), ("temporary", 10.3, 10.7), *ahead, *after)
    assert join_words(before_timeless(words)) == "your temporary"
    assert before_timeless(words[:4]) == words[:4], "two in a row may be said in the same moment"


def test_figures_and_short_words_may_be_repeated():
    for text in ("five five five five five five", "no no no no", "and one and two and three and one and two"):
        assert echo_cut_from(text, 2.0, [(0.0, 2.0)]) == text


CREDITS = [
    "Untertitel im Auftrag des ZDF für funk, 2017",
    "Sous-titrage Société Radio-Canada",
    "Subtítulos realizados por la comunidad de Amara.org",
    "Субтитры сделал DimaTorzok",
    "ご視聴ありがとうございました",
    "字幕由 Amara.org 社群提供",
    "Thank you for watching!",
    "시청해주셔서 감사합니다.",
]


@pytest.mark.parametrize("credit", CREDITS)
def test_credits_of_subtitles_are_refused_where_hardly_anybody_spoke(credit):
    assert gate_of(credit, seconds=5.0, no_speech_prob=0.7, voiced_s=2.5) == "credit"
    assert gate_of(credit, seconds=5.0, no_speech_prob=0.01, voiced_s=0.3) == "credit"


@pytest.mark.parametrize("credit", CREDITS)
def test_credits_that_somebody_read_aloud_stay(credit):
    assert failed_gate(credit, seconds=5.0, avg_logprob=-0.2, no_speech_prob=0.1, cut_off=False, voiced_s=2.5) is None


def test_a_sentence_about_subtitles_is_no_credit():
    text = "The subtitles by the second translator were late, so we asked the first one again."
    assert gate_of(text, seconds=5.0, no_speech_prob=0.7, voiced_s=0.6) is None


def test_a_full_width_letter_counts_two_because_it_is_a_syllable_or_a_word():
    assert (
        failed_gate(
            "今天天气很好我们去公园散步吧" * 2, seconds=1.0, avg_logprob=-0.2, no_speech_prob=0.0, cut_off=False
        )
        == "too_fast"
    )
