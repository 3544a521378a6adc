"""Tests of the text stage: what it holds and for how long, and that pieces make no difference."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.events import Event, Finalized, Partial, SegmentClosed, SpeechStarted, Warned, WordsCommitted
from pipeline.text.figures import Reader
from pipeline.text.options import LABELS, OF_FIGURES, REDACTIONS, TextOptions, TextSettings
from pipeline.text.rewriting import SegmentRewriter, TextRewriter
from pipeline.text.stage import MAX_HELD, MAX_HELD_WORDS, TextStage
from pipeline.words import Segment, Word, join_words
from server.config import ConfigError
from server.engines import read_swear_words
from tests.pipeline.decided_words import text_of, words_of

EVERYTHING = TextOptions(
    numerals=True,
    redact=REDACTIONS,
    profanity_filter=True,
    replace=("new york city:NYC", "fox:dog", "uh:"),
    sounds_like=("Kubernetes", "New Yorker", "Fred"),
    phone_region="DE",
)
WORDS = (  # noqa: SIM905  a list of words would be hard to read
    "the fox at new york city uh damn 4242 four two twenty five hundred and double oh a n G B 29 at example dot "
    "com cooper netties fret new yoke x@y.org point expires first, second. (1.5) (2.5) (5.0) to I is DE89 3704"
).split()
SENTENCE = st.lists(st.sampled_from(WORDS), max_size=40)
OPTIONS = st.builds(
    TextOptions,
    numerals=st.booleans(),
    redact=st.lists(st.sampled_from(REDACTIONS), unique=True).map(tuple),
    profanity_filter=st.booleans(),
    replace=st.sampled_from([(), EVERYTHING.replace]),
    sounds_like=st.sampled_from([(), EVERYTHING.sounds_like]),
    phone_region=st.sampled_from([None, "DE"]),
)


def events_of(words: list[Word], cuts: list[int]) -> list[Event]:
    """Return *words* as segments that end after these numbers of words."""
    events: list[Event] = []
    at = index = 0
    for number, cut in enumerate([*cuts, len(words)]):
        some = tuple(words[at : at + cut])
        at += cut
        if some:
            events += [WordsCommitted((word,), index + place, number) for place, word in enumerate(some)]
            events.append(SegmentClosed(number, Segment(some, -0.1, 0.0)))
            index += len(some)
    return events


def rewrite_events(events: list[Event], options: TextOptions, *, step: int = 1) -> list[Event]:
    """Return what is told of *events*, passed on in groups of *step*."""
    rewriter = TextRewriter(TextStage(options, language="en"))
    told: list[Event] = []
    decided = 0
    for at in range(0, len(events), step):
        some = events[at : at + step]
        decided = max(
            [decided, *(word.end for event in some if isinstance(event, WordsCommitted) for word in event.words)]
        )
        told += rewriter.rewrite(some, decided=decided)
    return [*told, *rewriter.flush()]


@settings(max_examples=max(200, settings.default.max_examples), deadline=None)
@given(SENTENCE, st.lists(st.integers(1, 12), max_size=8), OPTIONS, st.integers(1, 9))
def test_words_give_the_same_text_in_any_pieces_and_in_order(parts, cuts, options, step):
    words = words_of(" ".join(parts))
    events = events_of(words, cuts)
    told = rewrite_events(events, options)
    assert told == rewrite_events(events, options, step=step) == rewrite_events(events, options, step=len(events) + 1)
    committed = [word for event in told if isinstance(event, WordsCommitted) for word in event.words]
    closed = [word for event in told if isinstance(event, SegmentClosed) for word in event.segment.words]
    assert committed == closed
    assert all(before.start <= after.start and before.end <= after.end for before, after in pairwise(committed))
    index = 0
    for event in told:
        if isinstance(event, WordsCommitted):
            assert event.index == index
            index += len(event.words)
    segments = [event.id for event in told if isinstance(event, SegmentClosed)]
    assert segments == sorted(set(segments))


@settings(max_examples=max(100, settings.default.max_examples), deadline=None)
@given(SENTENCE, OPTIONS)
def test_nothing_is_held_for_longer_than_it_may(parts, options):
    stage = TextStage(options, language="en")
    for word in words_of(" ".join(parts)):
        stage.add(word, 0)
        assert len(stage._held) < MAX_HELD_WORDS
        assert stage.held_from is None or word.end - stage.held_from < MAX_HELD
        stage.reach(word.end + position(1))
    stage.reach(10**9)
    assert stage.held_from is None


@settings(max_examples=max(100, settings.default.max_examples), deadline=None)
@given(SENTENCE)
def test_no_option_changes_nothing(parts):
    events = events_of(words_of(" ".join(parts)), [7, 7, 7])
    flat = [event for event in rewrite_events(events, TextOptions()) if isinstance(event, SegmentClosed)]
    assert flat == [event for event in events if isinstance(event, SegmentClosed)]


SECRET = st.lists(
    st.tuples(
        st.sampled_from(("two", "seven", "eight", "five", "oh", "42", "777", "0-1", "double seven", "nine")),
        st.sampled_from(("", "", ",", " uh", " dash")),
        st.sampled_from((0.1, 0.3, 0.7, 1.2)),  # the length of a word
        st.sampled_from((0.0, 0.1, 0.8, 1.9)),  # the pause after it
    ),
    min_size=12,
    max_size=19,
)


@settings(max_examples=max(100, settings.default.max_examples), deadline=None)
@given(SECRET, st.sampled_from(sorted(OF_FIGURES)), st.booleans(), st.integers(1, 5))
def test_a_number_is_never_told_in_part_however_slowly_it_is_said(parts, kind, everything, step):
    words, at = words_of("my code is"), position(2)
    secret = [("seven", "", 0.3, 0.1), *parts]
    for figure, mark, length_s, pause_s in secret:
        for text in f"{figure}{mark}".split():
            words.append(Word(text, at, at + position(length_s), 0.9))
            at = words[-1].end
        at += position(pause_s)
    figures = words[3:]
    words += [replace(word, start=word.start + at, end=word.end + at) for word in words_of("is that right")]
    more = {"numerals": True, "replace": ("seven is:x", "five two:y"), "sounds_like": ("Ada", "Soho", "Five Points")}
    options = TextOptions(redact=(kind,), **more) if everything else TextOptions(redact=(kind,))
    stage = TextStage(options, language="en")
    rewriter = TextRewriter(stage)
    told: list[Event] = []
    for number, word in enumerate(words):
        told += rewriter.rewrite([Partial(tuple(words[number : number + step]), 0)], decided=word.start)
        told += rewriter.rewrite([WordsCommitted((word,), number, 0)], decided=word.end)
    told += rewriter.flush()
    shown = [word for event in told if isinstance(event, Partial | WordsCommitted) for word in event.words]
    assert not [word.text for word in shown if not word.redacted and Reader("en").has_figure(word.text)]
    assert {word.text.rstrip(",") for word in shown if word.redacted} == {LABELS[kind]}
    figures = [word for word in figures if Reader("en").has_figure(word.text)]
    hidden = stage.redacted
    assert not [word for word in figures if not any(start <= word.start and word.end <= end for start, end in hidden)]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_card_is_one_over_the_end_of_a_segment(cut):
    words = words_of("my card is 4242 4242 (1.5) 4242 4242 thanks")
    told = rewrite_events(events_of(words, [cut]), TextOptions(redact=("pci",)))
    texts = [event.segment.text for event in told if isinstance(event, SegmentClosed)]
    assert " ".join(texts) == "my card is [CARD] thanks"


def test_a_run_that_goes_on_for_too_long_has_its_label_then_and_the_rest_is_hidden():
    stage = TextStage(TextOptions(redact=("pci",)), language="en")
    words = words_of("card four two four two four two four two four two four two four two four two thanks")
    told = [(word.text, len(stage.redacted)) for one in words for word, _ in stage.add(one, 0)]
    assert [text for text, _ in told] == ["card", "[CARD]", "thanks"]
    assert stage.redacted[0][0] == words[1].start
    assert stage.redacted[-1][1] == words[16].end


def test_after_a_restart_the_rest_of_a_number_stays_hidden():
    options = TextOptions(redact=("pci",))
    words = words_of("card four two four two four two four two four two four two four two four two thanks")
    first = TextStage(options, language="en")
    before = [placed[0] for word in words[:13] for placed in first.add(word, 0)]
    assert join_words(before) == "card [CARD]"
    second = TextStage(options, language="en", earlier=before)
    assert [word.text for one in words[13:] for word, _ in second.add(one, 0)] == ["thanks"]


def test_a_partial_shows_nothing_that_may_be_hidden_later():
    rewriter = TextRewriter(TextStage(TextOptions(redact=("pci", "email")), language="en"))
    words = words_of("my card is 4242 or bob at home")
    partial = Partial(tuple(words), 0)
    [told] = rewriter.rewrite([partial], decided=0)
    assert isinstance(told, Partial)
    assert told.text == "my card is"
    [committed] = rewriter.rewrite([WordsCommitted(tuple(words[:4]), 0, 0)], decided=words[3].end)
    assert isinstance(committed, WordsCommitted)
    assert join_words(committed.words) == "my card is"
    assert rewriter.rewrite([Partial(tuple(words[4:]), 0)], decided=words[3].end) == []
    numbered = TextRewriter(TextStage(TextOptions(numerals=True), language="en"))
    [told] = numbered.rewrite([Partial(tuple(words_of("twenty five people")), 0)], decided=0)
    assert isinstance(told, Partial)
    assert told.text == "25 people"


def test_a_number_that_goes_on_in_another_language_is_hidden_in_both():
    rewriter = TextRewriter(TextStage(TextOptions(redact=("pci",))))
    german = [replace(word, language="de") for word in words_of("Karte vier zwei vier zwei vier zwei")]
    english = [replace(word, language="en") for word in words_of("(2.5) four two four two two two thanks")]
    events: list[Event] = [WordsCommitted(tuple(german), 0, 0), Partial(tuple(english), 0)]
    told = rewriter.rewrite(events, decided=german[-1].end, language="de")
    told += rewriter.rewrite([WordsCommitted(tuple(english), len(german), 1)], decided=english[-1].end, language="en")
    told += rewriter.flush()
    text = [join_words(event.words) for event in told if isinstance(event, WordsCommitted | Partial)]
    assert text == ["Karte", "[CARD]", "thanks"]


def test_number_words_are_known_by_the_guessed_language_before_it_is_sure():
    rewriter = TextRewriter(TextStage(TextOptions(redact=("pci",))))
    [told] = rewriter.rewrite([Partial(tuple(words_of("Meine Karte ist vier zwei")), 0)], decided=0, language="de")
    assert isinstance(told, Partial)
    assert told.text == "Meine Karte ist"


def test_a_writer_who_wants_everything_decided_gets_it_and_other_events_pass():
    rewriter = TextRewriter(TextStage(EVERYTHING, language="en"))
    words = words_of("my card is 4242")
    told = rewriter.rewrite([SpeechStarted(0), WordsCommitted(tuple(words), 0, 0)], decided=words[-1].end)
    assert [type(event) for event in told] == [SpeechStarted, WordsCommitted]
    told = rewriter.rewrite([Finalized(30_000)], decided=words[-1].end)
    assert [type(event) for event in told] == [WordsCommitted, Finalized]
    assert join_words(told[0].words) == "[CARD]"  # type: ignore[union-attr]  # any label: it may have gone on


@pytest.mark.parametrize("pause", ["", "uh", "(1.5)"])
def test_a_number_that_a_writer_cuts_off_after_its_first_figures_is_hidden_from_there_on(pause):
    rewriter = TextRewriter(TextStage(TextOptions(redact=("phone",)), language="en"))
    words = words_of(f"it is two one {pause} two five five five oh one seven three thanks two one two")
    first = rewriter.rewrite([WordsCommitted(tuple(words[:4]), 0, 0), Finalized(words[3].end)], decided=words[3].end)
    rest = rewriter.rewrite([WordsCommitted(tuple(words[4:]), 4, 1)], decided=words[-1].end)
    told = [event for event in [*first, *rest, *rewriter.flush()] if isinstance(event, WordsCommitted)]
    text = " ".join(join_words(event.words) for event in told).replace(" uh", "")
    assert text == "it is two one [PHONE] thanks two one two"


@pytest.mark.parametrize("text", ["x" * 20_000, "x" + "!" * 20_000 + "x", "x" + "\u0301" * 20_000])
def test_a_word_of_very_many_signs_costs_little(text):
    stage = TextStage(EVERYTHING, language="en")
    began_s = time.process_time()
    for number in range(3):
        stage.add(Word(text, number, number + 1, 0.9), 0)
    assert time.process_time() - began_s < 1  # 20 s if the square of its length is looked at


def test_segments_of_a_file_pass_as_those_of_a_stream_do():
    words = words_of("my card is 4242 4242 4242 4242 thanks uh new york city")
    segments = [Segment(tuple(words[:5]), -0.1, 0.0), Segment(tuple(words[5:]), -0.2, 0.0)]
    rewriter = SegmentRewriter(TextStage(EVERYTHING, patient=True))
    first = rewriter.rewrite(segments[:1], language="en", reached=words[4].end)
    assert (first, rewriter.complete) == ([], False)
    rest = rewriter.rewrite(segments[1:], language="en", reached=words[-1].end + position(9))
    assert [segment.text for segment in [*rest, *rewriter.flush()]] == ["my card is [CARD]", "thanks NYC"]


def test_an_operators_swear_words_take_the_place_of_those_that_are_known(tmp_path):
    path = tmp_path / "words"
    path.write_text("Heck  darn # mild ones\n# damn\n", encoding="utf-8")
    stage = TextStage(
        TextOptions(profanity_filter=True), language="de", settings=TextSettings(swearing=read_swear_words(path))
    )
    told = [word for one in words_of("Oh heck, damn DARN") for word, _ in stage.add(one, 0)]
    assert join_words(told) == "Oh h***, damn D***"
    assert read_swear_words(None) is None
    path.write_text("heck*", encoding="utf-8")
    options, settings_ = TextOptions(profanity_filter=True), TextSettings(swearing=read_swear_words(path))
    stage = TextStage(options, language="de", settings=settings_)
    assert [word.text for one in words_of("Heckweather damn") for word, _ in stage.add(one, 0)] == [
        "H**********",
        "damn",
    ]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="PROFANITY_FILE must be a text file in UTF-8"):
        read_swear_words(path)


@pytest.mark.parametrize(
    ("text", "options", "shown"),
    [
        ("The Fox, the fox's fox.", TextOptions(replace=("fox:dog",)), "The dog, the fox's dog."),
        ("in cooper netties, yes", TextOptions(replace=("cooper netties:Kubernetes",)), "in Kubernetes, yes"),
        ("in New York City now", TextOptions(replace=("new york:NY", "new york city:NYC")), "in NYC now"),
        ("a:b is 1:2", TextOptions(replace=("a:b:c",)), "a:b is 1:2"),
        ("time a day", TextOptions(replace=("a:b:c",)), "time b:c day"),
        ("for your country. Ask", TextOptions(replace=("country:",)), "for your. Ask"),
        ("Um. Well, um, is it, um? Yes, um... right um!", TextOptions(replace=("um:",)), "Well, is it, Yes, right!"),
        ("Damn, it is fucking shit!", TextOptions(profanity_filter=True), "D***, it is f****** s***!"),
        ("fox 4242 4242 4242 4242", TextOptions(redact=("pci",), replace=("card:x", "4242:y")), "fox [CARD]"),
        ("twenty five", TextOptions(numerals=True, replace=("25:XXV",)), "XXV"),
    ],
)
def test_words_are_replaced_and_swear_words_starred(text, options, shown):
    assert text_of(text, options) == shown


@pytest.mark.parametrize(
    ("language", "text", "shown"),
    [
        ("de", "Scheißwetter, Hundescheiße, Arschgeige!", "S***********, H***********, A*********!"),
        ("de", "Der Marsch, ein Barsch und harsche Worte.", "Der Marsch, ein Barsch und harsche Worte."),
        ("nl", "Kutweer en kloteweg, hoera!", "K****** en k*******, hoera!"),
        ("en", "A clusterfuck, a shitshow in Scunthorpe", "A c**********, a s******* in Scunthorpe"),
        ("es", "Es una disputa, gilipolleces.", "Es una disputa, g***********."),
        ("sv", "Vilket skitväder", "Vilket s********"),
    ],
)
def test_swear_words_in_compounds_are_starred(language, text, shown):
    assert text_of(text, TextOptions(profanity_filter=True), language=language) == shown


@pytest.mark.parametrize(
    ("said", "replacements", "shown"),
    [
        ("私 は 公 園 に", ("公園:動物園",), "私は動物園に"),
        ("公園公 に", ("公:X",), "X園Xに"),
        ("我们 在 北 京大学", ("北京:上海",), "我们在上海大学"),
        ("ส วัส ดี ครั บ", ("สวัสดี:หวัดดี",), "หวัดดีครับ"),
    ],
)
def test_a_phrase_is_replaced_however_words_without_spaces_are_cut(said, replacements, shown):
    words = [replace(word, spaced=False) for word in words_of(said)]
    stage = TextStage(TextOptions(replace=replacements), language="ja")
    told = [word for one in words for word, _ in stage.add(one, 0)] + [word for word, _ in stage.release()]
    assert join_words(told) == shown
    assert join_words([replace(word, text=word.heard or word.text) for word in told]) == join_words(words)


@pytest.mark.parametrize(
    ("text", "replacement", "shown"),
    [
        ("a Cafe\u0301 or a Café", "café:bar", "a bar or a bar"),
        ("a Café", "cafe\u0301:bar", "a bar"),
        ("C++, C and C# or c++.", "C++:Rust", "Rust, C and C# or Rust."),
        ("C++, C and C# or c++.", "C:Ada", "C++, Ada and C# or c++."),
        ("It is 50% or 3 % of $5.", "%:percent", "It is 50 percent or 3 percent of $5."),
        ("a fox-trot, AT&T and R&D", "at&t:American", "a fox-trot, American and R&D"),
        ("a fox-trot", "fox:dog", "a fox-trot"),
    ],
)
def test_signs_count_and_composed_letters_are_the_same_as_decomposed_ones(text, replacement, shown):
    assert text_of(text, TextOptions(replace=(replacement,))) == shown


@pytest.mark.parametrize(
    ("options", "language", "warnings"),
    [
        (TextOptions(numerals=True), "ru", ["number_words_unknown"]),
        (TextOptions(redact=("pci",)), "ru", ["number_words_unknown"]),
        (TextOptions(redact=("pci", "email")), "ja", ["number_words_unknown", "address_words_unknown"]),
        (TextOptions(redact=("email",)), "ja", ["address_words_unknown"]),
        (TextOptions(redact=("email",), profanity_filter=True), "ru", []),
        (TextOptions(numerals=True, redact=REDACTIONS), "en", []),
        (TextOptions(profanity_filter=True), "ja", []),
    ],
)
def test_readers_are_warned_once_if_words_that_an_option_needs_are_not_known(options, language, warnings):
    rewriter = TextRewriter(TextStage(options))
    told = [
        event
        for number, word in enumerate(words_of("one two three"))
        for event in rewriter.rewrite([WordsCommitted((word,), number, 0)], decided=word.end, language=language)
    ]
    assert [event.code for event in told if isinstance(event, Warned)] == warnings
    whole = SegmentRewriter(TextStage(options))
    words = tuple(words_of("one two three"))
    whole.rewrite([Segment(words, -0.5, 0.1)], language=language, reached=words[-1].end)
    assert [note.partition(": ")[0] for note in whole.notes] == warnings
