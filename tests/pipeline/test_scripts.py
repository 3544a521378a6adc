"""Tests of ScriptWriter: Chinese in the characters that the client asked for, live and in files."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.options import TextOptions
from pipeline.text.stage import ScriptWriter, TextStage
from pipeline.words import Word, join_words

SIMPLIFIED = (
    "\u6211\u7684\u5934\u53d1\u5f88\u957f\uff0c\u6211\u53d1\u73b0\u4e86\u7406\u53d1\u5e97\u3002\u4e00\u53ea\u9762\u5305"
)
TRADITIONAL = (
    "\u6211\u7684\u982d\u9aee\u5f88\u9577\uff0c\u6211\u767c\u73fe\u4e86\u7406\u9aee\u5e97\u3002\u4e00\u96bb\u9eb5\u5305"
)
BOTH_WAYS = [("Hant", SIMPLIFIED, TRADITIONAL), ("Hans", TRADITIONAL, SIMPLIFIED)]


def words_in_parts(text: str, cuts: list[int], language: str | None = None) -> list[Word]:
    bounds = sorted({0, len(text), *cuts})
    return [
        Word(text[start:end], start * 3000, end * 3000, 0.9, spaced=False, language=language)
        for start, end in pairwise(bounds)
    ]


def stage_for(script: str, language: str | None, *, patient: bool = False) -> TextStage:
    return TextStage(TextOptions(script=script), language=language, patient=patient)


@pytest.mark.parametrize("patient", [False, True], ids=["live", "file"])
@pytest.mark.parametrize(("script", "recognised", "written"), BOTH_WAYS)
@given(cuts=st.lists(st.integers(1, len(SIMPLIFIED) - 1)))
def test_phrases_are_written_in_the_script_however_the_words_are_cut(script, recognised, written, cuts, *, patient):
    stage = stage_for(script, "zh", patient=patient)
    words = words_in_parts(recognised, cuts)
    shown = [placed for word in words for placed in stage.add(word, 0)] + stage.flush()
    assert [(word.start, word.end) for word, _ in shown] == [(word.start, word.end) for word in words]
    assert join_words(word for word, _ in shown) == written


def test_partials_are_in_the_script_too():
    stage = stage_for("Hant", "zh")
    assert join_words(stage.preview(words_in_parts(SIMPLIFIED, [3, 9]))) == TRADITIONAL


def test_japanese_keeps_its_own_characters():
    text = "\u5b66\u6821\u3067\u4f1a\u3046"
    stage = stage_for("Hant", "ja")
    assert [word.text for word, _ in [*stage.add(Word(text, 0, 8000, 0.9), 0), *stage.flush()]] == [text]


def test_of_a_session_in_several_languages_only_chinese_is_converted():
    stage = stage_for("Hans", None)
    [japanese] = words_in_parts("\u5b78\u6821", [], "ja")
    [chinese] = words_in_parts("\u5b78\u6821", [], "zh")
    stage.change_language("ja")
    shown = [*stage.add(japanese, 0), *stage.change_language("zh"), *stage.add(chinese, 1), *stage.flush()]
    assert [word.text for word, _ in shown] == ["\u5b78\u6821", "\u5b66\u6821"]


@given(
    st.text(st.characters(min_codepoint=0x3400, max_codepoint=0x9FFF), max_size=60), st.sampled_from(["Hans", "Hant"])
)
def test_every_word_keeps_its_length(text, script):
    words = [Word(text, 0, 1, 0.9)] if text else []
    assert [len(word.text) for word in ScriptWriter(script).apply(words)] == [len(word.text) for word in words]
