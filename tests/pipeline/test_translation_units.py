"""Tests of which words are translated together."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.translation.units import MOST_WORDS, Backlog, NumberedWord, Unit, spans_of
from pipeline.words import Word


def said(
    text: str, *, number: int = 0, at: float = 0.0, language: str | None = "en", channel: int | None = None
) -> list[NumberedWord]:
    """Return the words of *text*, two a second, numbered from *number* on."""
    return [
        NumberedWord(
            number + index,
            Word(one, position(at + index / 2), position(at + index / 2 + 0.4), 0.9, True, None, "[" in one, language),
            channel,
        )
        for index, one in enumerate(text.split())
    ]


def taken(backlog: Backlog, *, joined: bool = False) -> list[str]:
    units = []
    while (unit := backlog.take(joined=joined)) is not None:
        units.append(unit.text)
    return units


def test_a_unit_ends_at_a_sentence_a_clause_a_pause_and_after_fifteen_words():
    backlog = Backlog("de")
    backlog.add(said("Good morning. This is the one, who came"))
    backlog.add(said("late", number=8, at=9))
    assert taken(backlog) == ["Good morning.", "This is the one,", "who came"]
    backlog.add(said("word " * MOST_WORDS, number=9, at=9.5))
    assert taken(backlog) == [" ".join(["late", *["word"] * (MOST_WORDS - 1)])]
    backlog.close_all()
    assert taken(backlog) == ["word"]


def test_a_short_clause_goes_with_the_next_and_full_width_marks_count():
    backlog = Backlog("en")
    backlog.add(said("Ja, das ist gut。 Und?", language="de"))
    assert taken(backlog) == ["Ja, das ist gut。", "Und?"]


def test_silence_ends_a_unit_once_nothing_earlier_can_come():
    backlog = Backlog("de")
    backlog.add(said("and so"))
    backlog.reach(None, position(1.2))
    assert not backlog.ready
    backlog.reach(None, position(1.7))
    assert taken(backlog) == ["and so"]


def test_words_in_the_targets_language_are_left_out_and_part_units():
    backlog = Backlog("en")
    backlog.add(said("hola amigos", language="es"))
    backlog.add(said("hello", number=2, at=1, language="en"))
    backlog.add(said("como estas", number=3, at=1.5, language="es"))
    backlog.close_all()
    assert taken(backlog, joined=True) == ["hola amigos", "como estas"], "what is between them is in neither"


def test_what_waits_is_joined_up_to_a_window_of_one_channel_and_language():
    backlog = Backlog("en")
    for index in range(30):
        backlog.add(said("eins zwei drei.", number=3 * index, at=1.5 * index, language="de", channel=index % 2))
    backlog.add(said("un deux trois.", number=90, at=45, language="fr", channel=0))
    units = []
    while (unit := backlog.take()) is not None:
        units.append(unit)
    assert all(unit.end - unit.start <= position(28) for unit in units)
    assert len(units) < 20
    assert sorted(one.number for unit in units for one in unit.words) == list(range(93))
    assert all(len({(one.channel, one.word.language) for one in unit.words}) == 1 for unit in units)


def test_a_file_is_translated_by_the_sentence():
    backlog = Backlog("de", live=False)
    backlog.add(said("This is the one, who came late. And stayed."))
    assert taken(backlog, joined=True) == ["This is the one, who came late.", "And stayed."]


def test_a_redacted_word_is_a_unit_of_its_own_where_the_sound_is_translated():
    words = said("mi numero es [PHONE] gracias amigo.", language="es")
    heard, read = Backlog("en", by_sound=True), Backlog("en")
    heard.add(words)
    read.add(words)
    assert taken(heard, joined=True) == ["mi numero es", "[PHONE]", "gracias amigo."]
    assert taken(read) == ["mi numero es [PHONE] gracias amigo."]


LANGUAGES = ["de", "en", None]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b,", "c.", "[X]"]), st.sampled_from(LANGUAGES), st.integers(0, 1))),
    st.lists(st.sampled_from(["take", "joined", "back", "last", "reach"])),
    st.tuples(st.booleans(), st.booleans()),
)
def test_no_word_is_lost_or_translated_twice(
    spoken: Sequence[tuple[str, str | None, int]], steps: Sequence[str], kind: tuple[bool, bool]
):
    backlog, units, words = Backlog("de", spoken="fr", live=kind[0], by_sound=kind[1]), [], []
    for number, (text, language, channel) in enumerate(spoken):
        words += said(text, number=number, at=number * 0.6, language=language, channel=channel)
    for index, step in enumerate(steps):
        backlog.add(words[index : index + 1])
        if step == "reach":
            backlog.reach(index % 2, position(index))
        elif (unit := backlog.take(joined=step == "joined")) is not None:
            if step in ("back", "last"):
                backlog.put_back(last=step == "last")
            else:
                units.append(unit)
    backlog.add(words[len(steps) :])
    backlog.close_all()
    while (unit := backlog.take()) is not None:
        units.append(unit)
    assert sorted(one.number for unit in units for one in unit.words) == [
        one.number for one in words if one.word.language != "de"
    ]
    for unit in units:
        covered = [one for one in words if unit.first <= one.number <= unit.last and one.channel == unit.channel]
        assert covered == list(unit.words), "its numbers name its words alone"


def test_spans_without_a_pause_between_them_are_one():
    units = [Unit(tuple(said("a b", at=at))) for at in (0, 1, 9)]
    assert spans_of(units) == [(0, position(1.9)), (position(9), position(9.9))]
