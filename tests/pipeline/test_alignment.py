"""Tests of alignment.py: words with punctuation, in all scripts, with times that never leave the window."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from faster_whisper.tokenizer import Tokenizer as FasterWhisperTokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.audio import RATE, Samples
from pipeline.languages import UNSPACED, continues_grapheme
from pipeline.recognition.engines.whisper.alignment import (
    ENCODER_FRAME,
    TextPiece,
    with_whole_characters,
    words_of,
)
from pipeline.words import Word, join_words


def sound(*parts: tuple[float, float]) -> Samples:
    """Return a sound of stretches (seconds, loudness)."""
    rng = np.random.default_rng(1)
    return np.concatenate(
        [(rng.standard_normal(round(seconds * RATE)) * loudness).astype(np.float32) for seconds, loudness in parts]
    )


def align_tokens(
    texts: list[str],
    begins_s: list[float],
    samples: Samples,
    *,
    probabilities: list[float] | None = None,
    language: str = "en",
    final: bool = True,
    start: int = 0,
) -> tuple[Word, ...]:
    """Return words of one token each. *begins_s* has one more entry, for the end token."""
    return words_of(
        [TextPiece(text, 1) for text in texts],
        [(token, round(begin * RATE / ENCODER_FRAME)) for token, begin in enumerate(begins_s)],
        probabilities or [0.9] * len(texts),
        samples,
        start=start,
        language=language,
        final=final,
    )


STEADY = sound((2.0, 0.1))  # without silence, so the times are those of the attention


def texts(words: tuple[Word, ...]) -> list[str]:
    return [word.text for word in words]


def test_words_have_the_times_of_their_tokens_on_the_streams_clock():
    words = align_tokens([" So", " my"], [0.2, 0.5, 0.9], STEADY, start=1000, final=False)
    assert words == (
        Word("So", 1000 + 3200, 1000 + 8000, 0.9, language="en"),
        Word("my", 1000 + 8000, 1000 + 14_400, 0.9, language="en"),
    )


def test_marks_join_the_word_they_belong_to_and_lend_it_their_time():
    words = align_tokens([" ¿", "Dónde", " está", "?"], [0.1, 0.2, 0.5, 0.8, 1.0], STEADY, language="es", final=False)
    assert texts(words) == ["¿Dónde", "está?"]
    assert words[1].end == RATE


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([" well", "-known"], ["well-known"]),
        ([" 100", "%"], ["100%"]),
        ([" R", " &", " D"], ["R", "&", "D"]),
        ([' "', "Yes", ',"'], ['"Yes,"']),
        ([" ...", " so"], ["so"]),
        ([" and", " -", " then"], ["and-", "then"]),
    ],
)  # fmt: skip
def test_spellings(pieces, words):
    begins = [0.1 * number for number in range(len(pieces) + 1)]
    assert texts(align_tokens(pieces, begins, STEADY)) == words


def test_scripts_without_spaces_are_written_without_them():
    words = align_tokens(["你", "好", "。", " iPhone"], [0.1, 0.3, 0.5, 0.6, 1.0], STEADY, language="zh")
    assert texts(words) == ["你", "好。", "iPhone"]
    assert join_words(words) == "你好。 iPhone"


def test_a_word_neither_starts_nor_ends_in_silence():
    samples = sound((0.5, 0.0), (0.4, 0.1), (0.6, 0.0), (0.4, 0.1), (0.5, 0.0))
    first, second = align_tokens([" one", " two"], [0.0, 0.9, 2.0], samples)
    assert (first.start, first.end) == (RATE * 5 // 10, RATE * 9 // 10)
    assert (second.start, second.end) == (RATE * 15 // 10, RATE * 19 // 10)


def test_the_last_word_of_a_final_lasts_until_the_sound_stops():
    samples = sound((0.2, 0.0), (0.8, 0.1), (0.5, 0.0))
    assert align_tokens([" one"], [0.2, 0.6], samples)[0].end == RATE
    assert align_tokens([" one"], [0.2, 0.6], samples, final=False)[0].end == round(0.6 * RATE)


def test_the_last_word_is_not_drawn_out_for_ever():
    samples = sound((0.2, 0.0), (5.0, 0.1), (0.2, 0.0))
    assert align_tokens([" one"], [0.2, 0.6], samples)[0].end == round(1.1 * RATE)


def test_a_word_that_the_attention_stepped_over_gets_a_part_of_its_neighbour():
    is_it, dark = align_tokens([" it", " dark"], [0.3, 0.3, 0.8], STEADY)
    assert is_it.end - is_it.start == RATE // 25
    assert dark.start == is_it.end


@st.composite
def alignments(draw: st.DrawFn) -> tuple[list[str], list[float], Samples]:
    pieces = draw(st.lists(st.sampled_from([" a", " bc", ",", ".", " ¿", "-d", " &", "的"]), min_size=1, max_size=12))
    steps = draw(st.lists(st.integers(0, 20), min_size=len(pieces) + 1, max_size=len(pieces) + 1))
    begins = [float(total) * ENCODER_FRAME / RATE for total in np.cumsum(steps)]
    loudness = draw(st.lists(st.sampled_from([0.0, 0.001, 0.1]), min_size=1, max_size=6))
    return pieces, begins, sound(*[(draw(st.floats(0.01, 1.0)), level) for level in loudness])


@given(alignments(), st.sampled_from(["en", "zh"]), st.booleans())
def test_words_are_in_order_inside_the_window_and_no_letter_is_lost(
    case: tuple[list[str], list[float], Samples],
    language: str,
    final: bool,  # noqa: FBT001  hypothesis fills it
) -> None:
    pieces, begins, samples = case
    words = align_tokens(pieces, begins, samples, language=language, final=final, start=500)
    assert all(500 <= word.start <= word.end <= 500 + len(samples) for word in words)
    assert all(one.end <= two.start for one, two in pairwise(words))
    assert all(word.text == word.text.strip() != "" for word in words)
    letters = [sign for sign in "".join(pieces) if sign.isalnum()]
    assert [sign for sign in "".join(word.text for word in words) if sign.isalnum()] == letters


# Characters that span tokens

WHISPER = Tokenizer.from_file(str(Path(__file__).parents[1] / "speech" / "tiny-whisper" / "tokenizer.json"))
WRITTEN = {
    "zh": "今天𠮷野家很好。",
    "ja": "こんにちは、太郎です。",
    "th": "สวัสดีครับ น้ำ",
    "my": "မင်္ဂလာပါ",
    "km": "សួស្តី",
    "hi": " नमस्ते दुनिया",
    "ar": " مرحبا بكم",
    "ko": " 안녕하세요 여러분",
    "fr": " Aujourd'hui l’été, qu'il dit",  # noqa: RUF001  an apostrophe as people write it
    "it": " Nell'acqua c'è dell'olio",
    "en": " don't \U0001f468\u200d\U0001f469\u200d\U0001f467 rock",
}


def words_of_tokens(tokens: Sequence[int], language: str) -> tuple[Word, ...]:
    """Return words as the engine makes them of these tokens, a tenth of a second each."""
    kept = with_whole_characters(tuple(tokens), WHISPER.decode)
    split = FasterWhisperTokenizer(WHISPER, multilingual=True, task="transcribe", language=language)
    pieces, parts = (split.split_tokens_on_unicode if language in UNSPACED else split.split_tokens_on_spaces)(
        list(kept)
    )
    return words_of(
        [TextPiece(text, len(part)) for text, part in zip(pieces, parts, strict=True)],
        [(token, 5 * token) for token in range(len(kept) + 1)],
        [0.9] * len(kept),
        sound((len(kept) / 10 + 1, 0.1)),
        start=0,
        language=language,
        final=False,
    )


@pytest.mark.parametrize("language", WRITTEN)
def test_an_answer_cut_off_anywhere_has_only_whole_characters(language):
    text = WRITTEN[language]
    tokens = WHISPER.encode(text, add_special_tokens=False).ids
    for count in range(len(tokens) + 1):
        shown = join_words(words_of_tokens(tokens[:count], language))
        assert "\ufffd" not in shown
        assert text.strip().replace(" ", "").startswith(shown.replace(" ", ""))
    assert join_words(words_of_tokens(tokens, language)) == text.strip()


def test_bytes_that_never_become_a_character_are_left_out():
    [token, *_] = WHISPER.encode("今", add_special_tokens=False).ids
    tokens = [
        *WHISPER.encode("天", add_special_tokens=False).ids,
        token,
        *WHISPER.encode("好", add_special_tokens=False).ids,
    ]
    assert texts(words_of_tokens(tokens, "zh")) == ["天", "好"]


@pytest.mark.parametrize(
    ("language", "written"),
    [("fr", ["Aujourd'hui", "l’été,", "qu'il", "dit"]), ("it", ["Nell'acqua", "c'è", "dell'olio"])],  # noqa: RUF001
)
def test_elided_words_are_one_as_they_are_written_with_one_time(language, written):
    words = words_of_tokens(WHISPER.encode(WRITTEN[language], add_special_tokens=False).ids, language)
    assert texts(words) == written
    assert all(before.end <= after.start for before, after in pairwise(words))


@pytest.mark.parametrize("language", ["th", "my", "hi", "km"])
def test_no_word_begins_in_the_middle_of_a_grapheme(language):
    words = words_of_tokens(WHISPER.encode(WRITTEN[language], add_special_tokens=False).ids, language)
    assert not any(continues_grapheme(a.text, b.text) for a, b in pairwise(words) if not b.spaced)
