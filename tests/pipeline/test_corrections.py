"""Tests of corrections by people: what is written, which times words have, how revisions are taken back."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corrections import (
    ChangeRefused,
    Correcting,
    JoinRequest,
    NameRequest,
    RevertRefused,
    SpeakerRequest,
    TextRequest,
    by_people,
    corrected_chunks,
    redaction_of,
    reverted,
    tokens_of,
)
from pipeline.documents.assemble import assemble
from pipeline.text.options import TextOptions, TextSettings
from pipeline.timeline import Correction, pack, unpack
from pipeline.words import Chunk, Segment, Word, join_words

SECOND = 16_000


def said(text: str, *, channel: int | None = None) -> list[tuple[Word, int | None]]:
    """Return the words of *text*, one a second, each half a second long."""
    words = text.split()
    return [(Word(word, at * SECOND, at * SECOND + 8000, 0.9), channel) for at, word in enumerate(words)]


def keep(_before: Sequence[Word], words: Sequence[Word], _after: Sequence[Word]) -> Sequence[Word]:
    return words


class Transcript:
    """A transcript and the corrections that people made in it, stored and read back each time."""

    def __init__(self, text: str, labels: Sequence[str | None] | None = None) -> None:
        self.said = said(text)
        self.labels = labels or [None] * len(self.said)
        self.corrections: list[Correction] = []

    @property
    def state(self) -> Correcting:
        return Correcting(self.said, self.labels, self.corrections)

    @property
    def words(self) -> list[Word]:
        state = self.state
        return [word for number in range(len(self.said)) for word in state.words_at(number)]

    @property
    def text(self) -> str:
        return join_words(self.words)

    def correct(self, *requests, redact=keep) -> None:
        self._add(self.state.changes_of(requests, redact))

    def revert(self, revision: int) -> None:
        self._add(reverted(self.said, self.labels, self.corrections, revision), reverts=revision)

    def _add(self, changes, reverts: int | None = None) -> None:
        made = Correction(len(self.corrections) + 1, "Anna's key", tuple(changes), reverts)
        stored = unpack(pack(made))
        assert stored == made
        self.corrections.append(stored)


def test_a_word_is_replaced_by_another_of_the_same_time():
    transcript = Transcript("we met in Lubliana today")
    transcript.correct(TextRequest(first=3, last=3, text="Ljubljana"))
    word = transcript.words[3]
    assert transcript.text == "we met in Ljubljana today"
    assert (word.start, word.end) == (3 * SECOND, 3 * SECOND + 8000)
    assert (word.corrected, word.heard, word.probability) == (True, "Lubliana", 1.0)


def test_words_that_stay_keep_their_times_and_new_ones_share_what_is_left_by_length():
    transcript = Transcript("one two three four")
    transcript.correct(TextRequest(first=0, last=3, text="one a bcd four"))
    assert [(word.text, word.start, word.end, word.corrected) for word in transcript.words] == [
        ("one", 0, 8000, False),
        ("a", 16_000, 22_000, True),
        ("bcd", 22_000, 40_000, True),
        ("four", 48_000, 56_000, False),
    ]


def test_an_inserted_word_has_the_gap_between_its_neighbours():
    transcript = Transcript("ask not what")
    transcript.correct(TextRequest(first=0, last=1, text="ask me not"))
    assert [(word.text, word.start, word.end) for word in transcript.words[:3]] == [
        ("ask", 0, 8000),
        ("me", 8000, 16_000),
        ("not", 16_000, 24_000),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("a b c d e f g h i j", list("abcdefghij")),
        ("\u6771\u4eac\u3067\u3059\u3002", ["\u6771", "\u4eac", "\u3067", "\u3059\u3002"]),
        ("\u0645\u0631\u062d\u0628\u0627 \u064a\u0627", ["\u0645\u0631\u062d\u0628\u0627", "\u064a\u0627"]),
        ("GPT\u3068\u8a71\u3059", ["GPT", "\u3068", "\u8a71", "\u3059"]),
    ],
)
def test_any_text_may_stand_in_place_of_any_words(text, words):
    transcript = Transcript("all of these words go")
    transcript.correct(TextRequest(first=0, last=4, text=text))
    assert [word.text for word in transcript.words] == words
    assert transcript.text == text
    starts = [word.start for word in transcript.words]
    assert starts == sorted(starts)


def test_a_change_that_meets_an_earlier_one_must_cover_it():
    transcript = Transcript("a b c d e f")
    transcript.correct(TextRequest(first=1, last=3, text="x y"))
    with pytest.raises(ChangeRefused, match=r"Words 1 to 3 were changed together"):
        transcript.correct(TextRequest(first=3, last=4, text="z"))
    transcript.correct(TextRequest(first=1, last=3, text="x z"))
    transcript.correct(TextRequest(first=0, last=4, text="w"))
    assert transcript.text == "w f"


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (0, 3), (3, 3)])
def test_words_that_are_not_there_cannot_be_changed(first, last):
    with pytest.raises(ChangeRefused, match="words 0 to 2"):
        Transcript("a b c").correct(TextRequest(first=first, last=last, text="x"))


def test_a_revision_is_taken_back_and_that_too():
    transcript = Transcript("the quick brown fox")
    transcript.correct(TextRequest(first=1, last=1, text="slow"))
    transcript.correct(TextRequest(first=1, last=2, text="very slow red"))
    transcript.revert(2)
    assert transcript.text == "the slow brown fox"
    transcript.revert(1)
    assert transcript.words == [word for word, _ in transcript.said]
    transcript.revert(4)
    assert transcript.text == "the slow brown fox"


def test_a_revision_under_a_later_one_cannot_be_taken_back():
    transcript = Transcript("the quick brown fox")
    transcript.correct(TextRequest(first=1, last=1, text="slow"))
    transcript.correct(TextRequest(first=0, last=2, text="a"))
    with pytest.raises(RevertRefused, match="Revision 2 lies over it"):
        transcript.revert(1)
    transcript.revert(2)
    with pytest.raises(RevertRefused, match="no revision 2"):
        transcript.revert(2)
    with pytest.raises(RevertRefused, match="no revision 9"):
        transcript.revert(9)
    transcript.revert(1)
    assert transcript.text == "the quick brown fox"


def documents_of(transcript: Transcript, *, turns=None):
    """Return the transcript that documents are made of."""
    words = tuple(word for word, _ in transcript.said)
    end = words[-1].end
    chunk = Chunk(0, 0, 0, end, (Segment(words, -0.1, 0.0),), "en", 0.9, turns=turns)
    state = transcript.state
    return by_people(
        assemble(corrected_chunks([chunk], state), duration=end, engine="test", model_of=lambda _: "test"), state
    )


def test_words_are_given_to_a_speaker_and_speakers_are_named_and_joined():
    transcript = Transcript("hello there my friend goodbye", ["S1", "S1", "S2", "S2", "S3"])
    transcript.correct(SpeakerRequest(first=1, last=1, speaker="S2"))
    transcript.correct(NameRequest(speaker="S2", name="Anna"))
    transcript.correct(JoinRequest(speaker="S3", into="Anna"))
    state = transcript.state
    assert [state.name_of(state.speaker_at(number)) for number in range(5)] == ["S1", "Anna", "Anna", "Anna", "Anna"]
    transcript.correct(NameRequest(speaker="S2", name=""))
    assert transcript.state.name_of("S2") == "S2"
    transcript.revert(3)
    assert transcript.state.name_of("S3") == "S3"


def test_documents_are_cut_where_a_person_gave_words_to_somebody():
    transcript = Transcript("hello there my friend")
    transcript.correct(SpeakerRequest(first=2, last=3, speaker="Ben"), TextRequest(first=3, last=3, text="mate"))
    made = documents_of(transcript)
    assert [(segment.voice, segment.text) for segment in made.segments] == [(None, "hello there"), ("Ben", "my mate")]


def test_all_words_of_a_segment_may_go():
    transcript = Transcript("um er")
    transcript.correct(TextRequest(first=0, last=1, text=""))
    assert documents_of(transcript).text == ""


@pytest.mark.parametrize("request_", [NameRequest(speaker="S9", name="x"), JoinRequest(speaker="S1", into="S9")])
def test_nobody_who_does_not_speak_is_named_or_joined(request_):
    with pytest.raises(ChangeRefused, match="Nobody is called 'S9'; speakers are S1"):
        Transcript("a b", ["S1", "S1"]).correct(request_)


def test_what_a_person_types_is_redacted_and_a_redacted_word_gives_nothing_away():
    def hide(_before, words, _after):
        return [
            Word("[NUMBER]", word.start, word.end, 1.0, redacted=True) if word.text == "42" else word for word in words
        ]

    transcript = Transcript("it is secret now")
    transcript.said[2] = (Word("[NUMBER]", 2 * SECOND, 2 * SECOND + 8000, 0.9, redacted=True), None)
    transcript.correct(TextRequest(first=2, last=3, text="42 then"), redact=hide)
    assert transcript.text == "it is [NUMBER] then"
    assert [word.heard for word in transcript.words] == [None] * 4


def test_typed_numbers_are_hidden_as_spoken_ones_are_with_the_words_around_them():
    redact = redaction_of(TextOptions(redact=("phone", "email")), TextSettings(phone_region="US"), "en")
    transcript = Transcript("call me at the number they gave")
    transcript.correct(TextRequest(first=3, last=4, text="212 555 0123 or anna@example.org today"), redact=redact)
    assert transcript.text == "call me at [PHONE] or [EMAIL] today they gave"
    plain = redaction_of(TextOptions(), TextSettings(), "en")
    transcript.correct(TextRequest(first=0, last=0, text="212 555 0123"), redact=plain)
    assert transcript.text.startswith("212 555 0123 me")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 11),
            st.integers(0, 3),
            st.lists(st.sampled_from(["a", "b", "c", "w3", "w5", "xyz"]), max_size=4),
        ),
        max_size=8,
    )
)
def test_words_that_no_change_touched_keep_their_times_after_any_changes(changes):
    transcript = Transcript(" ".join(f"w{number}" for number in range(12)))
    touched: set[int] = set()
    for first, more, words in changes:
        last = min(11, first + more)
        try:
            transcript.correct(TextRequest(first=first, last=last, text=" ".join(words)))
        except ChangeRefused:
            continue
        touched |= set(range(first, last + 1))
    state = transcript.state
    for number in set(range(12)) - touched:
        assert state.words_at(number) == (transcript.said[number][0],)
    starts = [word.start for word in transcript.words]
    assert starts == sorted(starts)
    assert all(word.start <= word.end for word in transcript.words)
    for revision in range(len(transcript.corrections), 0, -1):
        transcript.revert(revision)
    assert transcript.words == [word for word, _ in transcript.said]


@given(st.text(max_size=40))
def test_tokens_have_all_signs_of_a_text_and_join_to_it(text):
    tokens = tokens_of(text)
    joined = "".join(f" {token}" if spaced else token for token, spaced in tokens).strip()
    assert joined == " ".join(text.split())
    assert all(token for token, _ in tokens)
