"""Tests of the names of languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.languages import NamedLanguage, english_name, language_named, nearest_language, unknown_language
from tests.pipeline.layouts import LANGUAGES

CODES = st.sampled_from(LANGUAGES)
SUBTAGS = st.lists(st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True), max_size=3)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en-US", "en"), ("pt_BR", "pt"), ("EN", "en"), (" de ", "de"), ("deu", "de"), ("ger", "de"), ("german", "de"),
        ("German", "de"), ("iw", "he"), ("in", "id"), ("ji", "yi"), ("nb", "no"), ("nb-NO", "no"), ("no", "no"),
        ("nn", "nn"), ("cmn", "zh"), ("fil", "tl"), ("jv", "jw"), ("jw", "jw"), ("haitian creole", "ht"),
        ("burmese", "my"), ("yue", "yue"), ("zh-yue", "yue"), ("castilian", "es"), ("fra", "fr"), ("fre", "fr"),
        ("es-419", "es"), ("sr-Latn-RS", "sr"), ("Deutsch", "de"), ("Español", "es"), ("日本語", "ja"),
    ],
)  # fmt: skip
def test_tags_codes_of_all_kinds_and_names_are_understood(text, code):
    assert language_named(text) == NamedLanguage(code)


@pytest.mark.parametrize(
    ("text", "script"),
    [("zh", None), ("zh-CN", "Hans"), ("zh-Hans", "Hans"), ("zh_SG", "Hans"), ("zh-TW", "Hant"), ("zh-HK", "Hant"),
     ("zh-Hant-TW", "Hant"), ("zh-Hans-HK", "Hans"), ("cmn-Hant", "Hant"), ("chinese", None)],
)  # fmt: skip
def test_a_chinese_tag_settles_the_script(text, script):
    assert language_named(text) == NamedLanguage("zh", script)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("germna", "german (de)"), ("franch", "french (fr)"), ("cz", "czech (cs)"), ("jp", "japanese (ja)"), ("xx", None),
     ("Spansih-MX", "spanish (es)"), ("", None), ("语言", None), ("espanol", "spanish (es)"), ("simlish", None)],
)  # fmt: skip
def test_an_unknown_name_has_the_nearest_one(text, nearest):
    assert (language_named(text), nearest_language(text)) == (None, nearest)


def test_several_languages_in_one_name_are_told_where_they_belong():
    assert unknown_language("en,fr").endswith("list several in the member languages")


@given(CODES, SUBTAGS, st.sampled_from("-_"), st.booleans())
def test_any_tag_of_a_language_is_that_language(code: str, more: list[str], sign: str, upper: bool) -> None:  # noqa: FBT001
    tag = sign.join([code, *more])
    found = language_named(tag.upper() if upper else tag)
    assert found.code == code or (code, found.code) == ("zh", "yue")


@given(CODES)
def test_every_code_of_whisper_and_its_english_name_are_understood(code):
    assert language_named(code) == language_named(english_name(code)) == NamedLanguage(code)


@given(st.text(max_size=200))
def test_any_text_is_a_language_or_none(text):
    found = language_named(text)
    assert found is None or found.code in LANGUAGES
    nearest_language(text)
