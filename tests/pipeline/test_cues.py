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
    columns,
    cues,
)
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
def test_every_cue_fits_the_screen_and_the_clock(words, shape):
    for cue in cues([words], 3600 * RATE, shape):
        assert 1 <= len(cue.lines) <= shape.max_lines
        assert all(0 < len(line) <= columns(line) <= shape.max_columns for line in cue.lines)
        assert 0 < cue.end_ms - cue.start_ms <= shape.max_cue_ms


@settings(max_examples=200)
@given(recognised_words(), SHAPES)
def test_cues_never_overlap_and_never_go_back(words, shape):
    for cue, following in pairwise(cues([words], 3600 * RATE, shape)):
        assert cue.end_ms <= following.start_ms


@settings(max_examples=200)
@given(recognised_words(), SHAPES)
def test_no_letter_is_lost_added_or_moved(words, shape):
    def letters(text: str) -> str:
        # Without dashes, because "-->" must lose one, and without control characters, which cannot be written.
        return "".join(c for c in text if not (c == "-" or c.isspace() or c < " " or "\x7f" <= c <= "\x9f"))

    assert letters(texts(cues([words], 3600 * RATE, shape))) == letters("".join(word.text for word in words))


@settings(max_examples=200)
@given(recognised_words())
def test_no_line_can_be_taken_for_markup_of_the_file(words):
    for cue in cues([words], 3600 * RATE):
        for line in cue.lines:
            assert "-->" not in line
            assert line.splitlines() == [line]
            assert line.strip()


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
    assert all(columns(line) <= USUAL_SHAPE.max_columns for line in lines)


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
