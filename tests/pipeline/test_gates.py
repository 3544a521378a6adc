"""Tests of gates.py: which answers count as no speech or as repetition, and what is left of repeated text."""

import pytest

from pipeline.audio import position
from pipeline.recognition.engines.gates import compression_ratio, count_before_echo, failed_gate, without_echo
from pipeline.recognition.engines.hypotheses import Encoded, Hypothesis, better
from pipeline.words import Word

SPEECH = " And so my fellow Americans ask not what your country can do for you."


def gate_of(
    text: str = SPEECH,
    *,
    seconds: float = 6.0,
    avg_logprob: float = -0.2,
    no_speech_prob: float = 0.01,
    cut_off: bool = False,
) -> str | None:
    return failed_gate(text, seconds=seconds, avg_logprob=avg_logprob, no_speech_prob=no_speech_prob, cut_off=cut_off)


def test_plain_speech_passes() -> None:
    assert gate_of() is None


def test_unlikely_text_where_the_model_doubts_speech_is_no_speech() -> None:
    assert gate_of(" Thank you.", no_speech_prob=0.9, avg_logprob=-1.1) == "no_speech"


def test_the_few_letters_that_noise_is_given_need_less_doubt() -> None:
    assert gate_of(" Nunca.", no_speech_prob=0.7, avg_logprob=-0.6) == "no_speech"
    assert gate_of(" Nunca.", no_speech_prob=0.7, avg_logprob=-0.4) is None


@pytest.mark.parametrize(("no_speech_prob", "avg_logprob"), [(0.9, -0.9), (0.5, -1.5)])
def test_neither_doubt_is_enough_alone(no_speech_prob: float, avg_logprob: float) -> None:
    assert gate_of(no_speech_prob=no_speech_prob, avg_logprob=avg_logprob) is None


def test_a_loop_is_a_repetition() -> None:
    assert gate_of(" very" * 30) == "repetition"
    assert compression_ratio(SPEECH) < 1.5


def test_an_answer_that_had_to_be_stopped_is_a_repetition() -> None:
    assert gate_of(cut_off=True) == "repetition"


def test_more_letters_than_anybody_can_say_are_too_fast() -> None:
    assert gate_of(SPEECH, seconds=1.0) == "too_fast"
    assert gate_of(" Yes, indeed.", seconds=0.3) is None


def test_marks_without_a_letter_are_no_words() -> None:
    assert gate_of(" ?") == gate_of(" ...") == gate_of("") == "no_words"


@pytest.mark.parametrize(
    "text", ["我的朋友们不要问你们的国家能为你们做什么", "मेरे साथी देशवासियों यह मत पूछो", "เพื่อนร่วมชาติของฉัน"]
)
def test_other_scripts_pass_at_the_pace_they_are_spoken(text: str) -> None:
    assert gate_of(text, seconds=4.0) is None


def without_echo_text(text: str, voiced_s: float, audio_s: float = 0.0) -> str:
    words = text.split()
    return " ".join(words[: without_echo(words, voiced_s=voiced_s, audio_s=audio_s or voiced_s)])


def test_a_sentence_said_again_in_no_time_is_cut_to_its_first_time() -> None:
    assert (
        without_echo_text("and so produced the block books produced the block books", 1.5)
        == "and so produced the block books"
    )
    assert without_echo_text("produced the block books " * 8 + "produced the", 1.5) == "produced the block books"


def test_a_sentence_said_twice_at_the_pace_of_speech_is_left() -> None:
    text = "we were all going direct to heaven we were all going direct to heaven"
    assert without_echo_text(text, 4.2) == text


def test_what_is_not_repeated_is_left_however_fast() -> None:
    text = "ask not what your country can do for you"
    assert without_echo_text(text, 0.5) == text


def test_a_word_said_again_and_again_is_left_if_the_audio_is_long_enough() -> None:
    assert without_echo_text("wait wait wait wait", 0.4, audio_s=1.9) == "wait wait wait wait"
    assert without_echo_text("please wait wait wait wait", 0.4, audio_s=1.9) == "please wait wait wait wait"
    assert without_echo_text("wait " * 30, 0.4, audio_s=1.9) == "wait"


def test_a_short_word_said_twice_is_left() -> None:
    assert without_echo_text("no no", 0.1) == "no no"


def test_a_word_is_believed_sooner_where_somebody_is_known_to_speak() -> None:
    doubtful = {"seconds": 1.1, "avg_logprob": -0.7, "no_speech_prob": 0.55, "cut_off": False}
    assert failed_gate(" In short.", **doubtful) == "no_speech"
    assert failed_gate(" In short.", **doubtful, voiced_s=0.6) is None


def before_echo(text: str, seconds: float, voiced: list[tuple[float, float]]) -> str:
    texts = text.split()
    words = [
        Word(said, *(position(seconds * n / len(texts)) for n in (at, at + 1)), 0.9) for at, said in enumerate(texts)
    ]
    spans = [(position(start), position(end)) for start, end in voiced]
    return " ".join(texts[: count_before_echo(words, spans)])


def test_a_phrase_that_begins_anew_in_the_silence_after_it_is_cut() -> None:
    text = "Please call before noon for the quarterly budget review, for the quarterly budget"
    assert before_echo(text, 6.0, [(0.2, 3.0)]) == "Please call before noon for the quarterly budget review,"
    assert before_echo(text, 6.0, [(0.2, 5.9)]) == text, "there is speech for both"


def test_a_number_that_begins_anew_is_cut_to_its_first_time() -> None:
    number = "nine one zero four five"
    assert before_echo(f"order {number} {number}", 3.0, [(0.0, 0.9)]) == f"order {number}"
    figures = "7 2 3 5"
    assert before_echo(f"{figures} {figures}", 1.6, [(0.2, 1.2)]) == figures, "nobody says eight figures in a second"
    assert before_echo(f"{figures} {figures}", 1.6, [(0.0, 1.6)]) == f"{figures} {figures}"


def test_a_word_that_is_repeated_without_end_is_a_loop_however_slow() -> None:
    assert (
        before_echo("the doctor can see you at zig" + " zig" * 8, 6.0, [(0.0, 6.0)])
        == "the doctor can see you at zig zig"
    )


def test_figures_and_short_words_may_be_repeated() -> None:
    for text in ("five five five five five five", "no no no no", "and one and two and three and one and two"):
        assert before_echo(text, 2.0, [(0.0, 2.0)]) == text


def test_of_two_answers_that_are_about_as_likely_the_one_that_leaves_out_a_sentence_is_not_better():
    def answer(text: str, avg_logprob: float) -> Hypothesis:
        return Hypothesis((), text, "en", 1.0, "transcribe", avg_logprob, 0.0, None, Encoded(None, 20, 0, 1), 0)

    part = "I see three items here for a total of $86 and 40 cents."
    whole = answer(f"Please. Sure. It is 206, 555, 0147. {part}", -0.42)
    assert better(whole, answer(part, -0.4), 9.0) == whole
    assert better(whole, answer(part, -0.4), 4.0).text == part, "there is no time for more"
    assert better(whole, answer(part, -0.4), 0.0).text == part, "nobody knows for how long somebody speaks"
    assert better(answer(whole.text, -0.9), answer(part, -0.2), 9.0).text == part, "it is much likelier"


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
def test_credits_of_subtitles_are_refused_where_hardly_anybody_spoke(credit: str) -> None:
    unsure = {"seconds": 5.0, "avg_logprob": -0.2, "cut_off": False}
    assert failed_gate(credit, no_speech_prob=0.7, voiced_s=0.3, **unsure) == "credit"
    assert failed_gate(credit, no_speech_prob=0.01, voiced_s=0.3, **unsure) == "credit"


@pytest.mark.parametrize("credit", CREDITS)
def test_credits_that_somebody_read_aloud_stay(credit: str) -> None:
    assert failed_gate(credit, seconds=5.0, avg_logprob=-0.2, no_speech_prob=0.1, cut_off=False, voiced_s=2.5) is None


def test_a_sentence_about_subtitles_is_no_credit() -> None:
    text = "The subtitles by the second translator were late, so we asked the first one again."
    assert failed_gate(text, seconds=5.0, avg_logprob=-0.2, no_speech_prob=0.7, cut_off=False, voiced_s=0.3) is None


@pytest.mark.parametrize(
    ("text", "no_speech_prob", "failed"),
    [
        ("ТРЕВОЖНАЯ МУЗЫКА", 0.83, "caption"),
        ("MUZIEK.", 0.54, "caption"),
        ("Тревожная музыка", 0.83, None),
        ("MUZIEK.", 0.3, None),
        ("FBI", 0.83, None),
    ],
)
def test_a_caption_of_a_sound_in_capitals_is_no_speech(text: str, no_speech_prob: float, failed: str | None) -> None:
    assert failed_gate(text, seconds=5, avg_logprob=-0.4, no_speech_prob=no_speech_prob, cut_off=False) == failed


def test_a_full_width_letter_counts_two_because_it_is_a_syllable_or_a_word() -> None:
    assert (
        failed_gate(
            "今天天气很好我们去公园散步吧" * 2, seconds=1.0, avg_logprob=-0.2, no_speech_prob=0.0, cut_off=False
        )
        == "too_fast"
    )
