"""Tests of cues.py: every word is shown once, in order, in two lines that can be read in time."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.documents.cues import (
    PAUSE_MS,
    SHORTEST_MS,
    USUAL_SHAPE,
    Cue,
    SubtitleShape,
    cues,
    end_before_next,
    milliseconds,
)
from pipeline.languages import columns, graphemes, profile_of
from pipeline.words import Word
from server.model import bounds

MS = RATE // 1000


def timed_words(text: str, *, start_ms: int = 0, ms_per_letter: int = 70, gap_ms: int = 50) -> list[Word]:
    """Return the words of *text* at an even pace."""
    words = []
    for token in text.split():
        end_ms = start_ms + len(token) * ms_per_letter
        words.append(Word(token, start_ms * MS, end_ms * MS, 0.9))
        start_ms = end_ms + gap_ms
    return words


def written_lines(words: list[Word], shape: SubtitleShape = USUAL_SHAPE) -> list[tuple[str, ...]]:
    return [cue.lines for cue in cues([words], 3600 * RATE, shape)]


def texts(found: list[Cue]) -> str:
    return " ".join(line for cue in found for line in cue.lines)


TEXT = st.text(
    st.one_of(
        st.sampled_from("abcdefgh.,!?-><&'\"#\u00e9\u4eca\u3002\u00a0\n\r\t\x00\u2028"),
        st.characters(exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=60,
).filter(lambda text: text == text.strip())


@st.composite
def recognised_words(draw: st.DrawFn) -> list[Word]:
    """Make words in the order of their starts, with any times: overlapping, without length, far apart."""
    words = []
    start = 0
    for text, spaced in draw(st.lists(st.tuples(TEXT, st.booleans()), max_size=40)):
        start += draw(st.sampled_from([0, 0, 1, 7, 800, 4800, RATE, 4 * RATE]))
        length = draw(st.sampled_from([0, 1, 8, 1600, 4800, 8000, 3 * RATE, 9 * RATE]))
        words.append(Word(text, start, start + length, 0.5, spaced))
    return words


SHAPES = st.just(USUAL_SHAPE) | st.builds(
    SubtitleShape,
    max_columns=st.sampled_from(bounds.MAX_COLUMNS),
    max_lines=st.sampled_from(bounds.MAX_LINES),
    max_cue_s=st.floats(*bounds.MAX_CUE_S),
    columns_per_second=st.floats(*bounds.COLUMNS_PER_SECOND),
)


@settings(max_examples=200)
@given(recognised_words(), SHAPES)
def test_every_cue_fits_the_screen_the_clock_and_the_file(words, shape):
    for cue in cues([words], 3600 * RATE, shape):
        assert 1 <= len(cue.lines) <= shape.max_lines
        assert all(0 < columns(line) <= shape.of_language(None).max_columns for line in cue.lines)
        assert 0 < cue.end_ms - cue.start_ms <= shape.max_cue_ms
        for line in cue.lines:  # none can be taken for markup of the file
            assert "-->" not in line
            assert line.splitlines() == [line]
            assert line.strip()


@settings(max_examples=200)
@given(recognised_words(), SHAPES)
def test_cues_never_overlap_and_no_letter_is_lost_added_or_moved(words, shape):
    def letters(text: str) -> str:
        # Without dashes, because "-->" must lose one, and without control characters, which cannot be written.
        return "".join(c for c in text if not (c == "-" or c.isspace() or c < " " or "\x7f" <= c <= "\x9f"))

    found = cues([words], 3600 * RATE, shape)
    assert letters(texts(found)) == letters("".join(word.text for word in words))
    assert all(cue.end_ms <= following.start_ms for cue, following in pairwise(found))


def test_a_cue_starts_with_its_first_word_and_ends_no_earlier_than_its_last():
    (cue,) = cues([[Word("Hello", 8_000, 16_000, 0.9), Word("there.", 16_800, 40_000, 0.9)]], 60 * RATE)
    assert cue == Cue(500, 2500, ("Hello there.",))


def test_cues_end_at_the_ends_of_sentences():
    text = "We measured the bridge on Monday. The steel was sound, but the bolts were not. They were replaced."
    assert written_lines(timed_words(text)) == [
        ("We measured the bridge on Monday.",),
        ("The steel was sound,", "but the bolts were not."),
        ("They were replaced.",),
    ]


def test_a_long_sentence_is_cut_at_its_comma():
    text = (
        "The committee which had been waiting for hours in the cold, "
        "then began to discuss the matter of the bridge across the river."
    )
    assert written_lines(timed_words(text)) == [
        ("The committee which had been", "waiting for hours in the cold,"),
        ("then began to discuss the matter", "of the bridge across the river."),
    ]


def test_without_any_punctuation_it_is_cut_at_a_breath():
    before = timed_words("the committee had been waiting for hours in the cold", ms_per_letter=60)
    start_ms = before[-1].end // MS + 500
    after = timed_words("then it began to discuss the matter of the old bridge", start_ms=start_ms, ms_per_letter=60)
    assert [" ".join(lines) for lines in written_lines(before + after)] == [
        "the committee had been waiting for hours in the cold",
        "then it began to discuss the matter of the old bridge",
    ]


@pytest.mark.parametrize("name", ["Dr. Smith", "J. Bach", "etc. and"])
def test_not_every_full_stop_ends_a_sentence(name):
    text = f"all of the people there had heard of {name} before the evening"
    assert all(
        not line.endswith(name.split()[0]) for line in written_lines(timed_words(text, ms_per_letter=60))[0][-1:]
    )


def test_words_after_a_long_silence_never_show_early():
    first, second = Word("One.", 0, RATE, 0.9), Word("Two.", RATE + PAUSE_MS * MS, 4 * RATE, 0.9)
    found = cues([[first, second]], 5 * RATE)
    assert [(cue.start_ms, cue.lines) for cue in found] == [(0, ("One.",)), (3000, ("Two.",))]


def test_a_short_word_stays_long_enough_to_be_seen():
    (cue,) = cues([[Word("No.", RATE, RATE + 1600, 0.9)]], 60 * RATE)
    assert (cue.start_ms, cue.end_ms) == (1000, 1000 + SHORTEST_MS)


def test_showing_on_stops_at_the_next_cue_and_at_the_end_of_the_recording():
    short = Word("No.", 0, 1600, 0.9)
    late = Word("Never.", 3 * RATE, 3 * RATE + 1600, 0.9)
    found = cues([[short, late]], 3 * RATE + 4800)
    assert [(cue.start_ms, cue.end_ms) for cue in found] == [(0, 1000), (3000, 3300)]


def test_a_word_wider_than_the_screen_is_cut_into_lines_and_its_time_shared_out():
    found = cues([[Word("a" * 42 + "b" * 42 + "c" * 21, 0, 5 * RATE, 0.9)]], 60 * RATE)
    assert found == [Cue(0, 2000, ("a" * 42,)), Cue(2000, 5705, ("b" * 42, "c" * 21))]


def test_scripts_without_spaces_are_joined_without_and_measured_in_columns():
    text = "今天天气很好我们一起去公园散步吧好吗、当然可以我先换一件衣服然后就出发。"
    words = [Word(sign, i * 3000, i * 3000 + 3000, 0.9, spaced=False) for i, sign in enumerate(text)]
    (lines,) = written_lines(words)
    assert lines == ("今天天气很好我们一起去公园散步吧好吗、", "当然可以我先换一件衣服然后就出发。")
    assert all(columns(line) <= 42 for line in lines)


SENTENCE = (
    "The committee which had been waiting for hours in the cold, "
    "then began to discuss the matter of the bridge across the river."
)


@pytest.mark.parametrize(
    ("shape", "lines"),
    [
        (
            SubtitleShape(max_lines=1),
            [
                ("The committee which had been waiting for",),
                ("hours in the cold, then began to discuss",),
                ("the matter of the bridge across the river.",),
            ],
        ),
        (
            SubtitleShape(max_columns=80, max_lines=1),
            [
                ("The committee which had been waiting for hours in the cold,",),
                ("then began to discuss the matter of the bridge across the river.",),
            ],
        ),
        (
            SubtitleShape(max_columns=24, max_lines=3),
            [
                ("The committee which", "had been waiting for", "hours in the cold,"),
                ("then began to discuss", "the matter of the bridge", "across the river."),
            ],
        ),
    ],
)
def test_a_client_may_ask_for_other_lines(shape, lines):
    assert written_lines(timed_words(SENTENCE), shape) == lines


def test_slow_readers_are_shown_a_cue_for_longer():
    words = timed_words("Nobody came.")
    (usual,) = cues([words], 60 * RATE)
    (slow,) = cues([words], 60 * RATE, SubtitleShape(columns_per_second=6))
    assert usual.end_ms - usual.start_ms == SHORTEST_MS
    assert slow.end_ms - slow.start_ms == 2000


GAPS_MS = st.lists(st.tuples(st.text("abc.,", min_size=1, max_size=12), st.integers(0, 900)), min_size=2, max_size=60)


@settings(max_examples=200)
@given(GAPS_MS, st.data(), SHAPES)
def test_a_further_run_of_words_changes_nothing_but_the_end_of_the_last_cue(timed, data, shape):
    words, at = [], 0
    for text, gap_ms in timed:
        words.append(Word(text, at * MS, (at + 200) * MS, 0.5))
        at += 200 + gap_ms
    middle = data.draw(st.integers(1, len(words) - 1))
    before = cues([words[:middle]], words[middle - 1].end, shape)
    after = cues([words[:middle], words[middle:]], at * MS, shape)
    assert after[: len(before) - 1] == before[:-1]
    assert [(cue.start_ms, cue.lines) for cue in after[: len(before)]] == [(cue.start_ms, cue.lines) for cue in before]


# By language

SCRIPTS = {
    "zh": "今天天气很好我们去公园，散步吧。当然可以！",  # noqa: RUF001
    "ja": "きょうは、東京タワーのちかくで「ラーメン」をたべました。ちょっとまって！",  # noqa: RUF001
    "th": "สวัสดีครับผมชื่อสมชายทำงานที่กรุงเทพเไปน้ำ",
    "lo": "ສະບາຍດີຂ້ອຍຊື່ນ້ຳ",
    "km": "សួស្តីខ្ញុំឈ្មោះ។",
    "my": "မင်္ဂလာပါကျွန်တော်။",
    "hi": "नमस्ते दुनिया क्षमा कीजिए",
    "ko": "안녕하세요 여러분",
    "ar": "مَرحَبًا بكم في البرنامج؟",
    "en": "a\u0301e\u0308 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea don't",
}


@st.composite
def native_words(draw: st.DrawFn, languages: tuple[str, ...] = tuple(SCRIPTS)) -> tuple[str, list[Word]]:
    """Make words of one language from its own signs, in the pieces in which a recogniser may give them."""
    language = draw(st.sampled_from(languages))
    spaced = profile_of(language).spaced
    signs = st.sampled_from(SCRIPTS[language].replace(" ", ""))
    texts = draw(st.lists(st.text(signs, min_size=1, max_size=8), min_size=1, max_size=60))
    return language, [
        Word(text, number * 4000, number * 4000 + 3900, 0.9, spaced=spaced) for number, text in enumerate(texts)
    ]


@settings(max_examples=200)
@given(native_words(), SHAPES)
def test_a_cut_never_parts_a_grapheme(spoken, shape):
    language, words = spoken
    found = cues([words], 3600 * RATE, shape, language=language)
    texts_apart = [word.text for word in words] if words[0].spaced else ["".join(word.text for word in words)]
    lines = [part for cue in found for line in cue.lines for part in line.split(" ")]
    assert [sign for line in lines for sign in graphemes(line)] == [
        sign for text in texts_apart for sign in graphemes(text.strip()) if not sign.isspace()
    ]


@settings(max_examples=100)
@given(native_words())
def test_without_a_word_from_the_client_lines_have_the_width_of_their_language(spoken):
    language, words = spoken
    for cue in cues([words], 3600 * RATE, language=language):
        assert all(columns(line) <= profile_of(language).columns for line in cue.lines)
    said = [Word(word.text, word.start, word.end, 0.9, spaced=word.spaced, language=language) for word in words]
    assert cues([said], 3600 * RATE) == cues([words], 3600 * RATE, language=language)


@settings(max_examples=100)
@given(native_words(("zh", "ja", "th", "lo", "km", "my")))
def test_no_space_is_put_into_a_script_without_spaces(spoken):
    language, words = spoken
    assert not any(" " in line for cue in cues([words], 3600 * RATE, language=language) for line in cue.lines)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["か", "東京", "カナ"]), st.sampled_from(["", "", "。", "、"])), min_size=1))
def test_no_line_begins_with_a_mark_that_belongs_to_the_line_before(said):
    texts_said = [text for pair in said for text in pair if text]
    words = [Word(text, n * 1600, n * 1600 + 1600, 0.9, spaced=False) for n, text in enumerate(texts_said)]
    lines = [line for cue in cues([words], 3600 * RATE, language="ja") for line in cue.lines]
    assert all(line[0] not in "。、" for line in lines[1:])


@settings(max_examples=100)
@given(st.lists(native_words(), min_size=1, max_size=4))
def test_a_cue_has_words_of_one_language(parts):
    words, at = [], 0
    for language, some in parts:
        for word in some:
            words.append(Word(word.text, at, at + 1600, 0.9, spaced=word.spaced, language=language))
            at += 1600
    longest = {word.language: 0 for word in words}
    for cue in cues([words], 3600 * RATE):
        inside = {w.language for w in words if cue.start_ms <= milliseconds(w.start) < cue.end_ms}
        assert len(inside) <= 1  # none where a word is cut over two cues
        longest |= {language: max(longest[language], *map(columns, cue.lines)) for language in inside}
    assert all(width <= profile_of(language).columns for language, width in longest.items())


def test_readers_of_slow_scripts_are_shown_a_cue_for_longer():
    word = Word("これはとても長い文章です", 0, RATE, 0.9, spaced=False)
    (japanese,) = cues([[word]], 60 * RATE, language="ja")
    (chinese,) = cues([[word]], 60 * RATE, language="zh")
    assert (japanese.end_ms, chinese.end_ms) == (int(24 / 14 * 1000), int(24 / 22 * 1000))


def test_chinese_is_cut_after_a_full_width_comma():
    text = "昨天下午我们一起去了博物馆，看到了很多没有见过的东西，大家都非常非常高兴，晚上才回到家里。"  # noqa: RUF001
    words = [Word(sign, i * 3200, i * 3200 + 3200, 0.9, spaced=False) for i, sign in enumerate(text)]
    found = cues([words], 60 * RATE, language="zh")
    assert all(cue.lines[-1][-1] in "，。" for cue in found)  # noqa: RUF001
    assert all(columns(line) <= 32 for cue in found for line in cue.lines)


@settings(max_examples=200)
@given(st.lists(recognised_words(), max_size=4))
def test_cues_of_people_who_speak_at_once_follow_each_other(people):
    found = [cue for words in people for cue in cues([words], 3600 * RATE)]
    shown = end_before_next(found)
    assert sorted(cue.lines for cue in shown) == sorted(cue.lines for cue in found)
    for cue, following in pairwise(shown):
        assert cue.start_ms < cue.end_ms <= following.start_ms


def test_of_two_who_speak_at_once_both_can_be_read():
    one, other = Cue(0, 3000, ("Hello.",), "S1"), Cue(45, 2045, ("Yes.",), "S2")
    assert [(cue.start_ms, cue.end_ms) for cue in end_before_next([one, other])] == [(0, 1000), (1000, 2045)]
