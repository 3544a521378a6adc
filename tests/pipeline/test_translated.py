"""Tests of transcripts in another language, which are made of the translations of a timeline."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import srt, txt
from pipeline.documents.translated import in_language, output_format, translated_outputs, translation_objects
from pipeline.timeline import StoredWord, Translation, Words, end_of, entries_of
from pipeline.transcription import Transcription
from pipeline.words import Chunk, Segment, Transcript, Word


def spoken(*segments: str, language: str | None = None, channel: int | None = None) -> list[Segment]:
    """Return segments of two words a second, with a second between them."""
    made, at = [], 0.0
    for text in segments:
        words = []
        for one in text.split():
            words.append(Word(one, position(at), position(at + 0.4), 0.9, language=language))
            at += 0.5
        made.append(Segment(tuple(words), -0.1, 0.0, channel))
        at += 1
    return made


def told(
    segments: list[Segment], *translations: tuple[int, int, str], target: str = "de"
) -> tuple[Transcript, Transcription]:
    end = max(segment.end for segment in segments)
    chunk = Chunk(0, 1, 0, end, tuple(segments), "en", 0.9)
    entries = entries_of(chunk, words=0, segments=0, shown=True)
    entries += [Translation(target, first, last, 0, 0, text) for first, last, text in translations]
    transcription = Transcription.of(entries)
    return assemble(transcription.chunks(), duration=end, engine="e", model_of=lambda _: "m"), transcription


def test_a_translation_stands_where_its_words_were_said():
    segments = spoken("Good morning all of you.", "How are you today?")
    there = in_language(*told(segments, (0, 4, "Guten Morgen euch allen."), (5, 8, "Wie geht es heute?")), "de")
    assert there.text == "Guten Morgen euch allen. Wie geht es heute?"
    assert there.language == "de"
    first, second = there.segments
    assert (first.start, first.end) == (segments[0].start, segments[0].end)
    assert (second.start, second.end) == (segments[1].start, segments[1].end)
    assert srt(there).decode().count("-->") == 2


def test_what_has_no_translation_is_left_out_and_a_later_one_replaces_an_earlier():
    segments = spoken("One two.", "Three four.")
    there = in_language(*told(segments, (2, 3, "Drei fier."), (2, 3, "Drei vier.")), "de")
    assert txt(there) == b"Drei vier.\n"


def test_words_of_the_targets_own_language_are_kept():
    segments = [*spoken("Guten Tag.", language="de")]
    segments += [Segment(tuple(w.at(w.start + position(9), w.end + position(9)) for w in one.words), -0.1, 0.0)
                 for one in spoken("Hello there.", language="en")]  # fmt: skip
    transcript, transcription = told(segments, (2, 3, "Hallo allerseits."))
    assert in_language(transcript, transcription, "de").text == "Guten Tag. Hallo allerseits."
    assert in_language(transcript, transcription, "de", written="en").text == "Hallo allerseits."


def test_words_of_two_channels_are_numbered_together():
    left, right = spoken("a b. c d.", channel=0), spoken("e f. g h.", channel=1)
    entries = []
    for first, segment, run in ((0, 0, left[0].words[:2]), (2, 1, right[0].words), (6, 0, left[0].words[2:])):
        entries.append(Words(first, segment, tuple(map(StoredWord.of, run)), segment))
    entries += [end_of(0, left[0]), end_of(1, right[0])]
    entries += [Translation("de", 0, 7, 0, 0, "A B C D", 0), Translation("de", 2, 5, 0, 0, "E F G H", 1)]
    transcription = Transcription.of(entries)
    there = in_language(Transcript((*left, *right), position(3), "en", 0.9, "e", "m"), transcription, "de")
    assert [(segment.channel, segment.text) for segment in there.segments] == [(0, "A B C D"), (1, "E F G H")]


def test_japanese_is_cut_into_signs_with_their_marks():
    there = in_language(*told(spoken("Good morning, Tokyo 2026."), (0, 3, "おはよう、Tokyo 2026。"), target="ja"), "ja")
    assert [word.text for word in there.words] == ["お", "は", "よ", "う、", "Tokyo", "2026。"]
    assert there.text == "おはよう、Tokyo 2026。"


@given(st.lists(st.sampled_from(["a", "wort", "längeres,", "ende."]), min_size=1, max_size=30), st.integers(1, 20))
def test_times_stay_inside_the_words_and_in_order(text: list[str], count: int):
    segments = spoken(" ".join(["word"] * count), "and more.")
    words = in_language(*told(segments, (0, count + 1, " ".join(text))), "de").words
    assert " ".join(word.text for word in words) == " ".join(text)
    assert words[0].start == 0
    assert words[-1].end == segments[-1].end
    assert all(one.start <= one.end and one.start <= two.start for one, two in pairwise(words))


def test_the_names_of_translated_files():
    assert translated_outputs(("json", "srt", "txt"), ("de", "fr")) == ("srt.de", "srt.fr", "txt.de", "txt.fr")
    assert output_format("srt.de")[1] == "de"
    assert output_format("srt")[1] is None
    with pytest.raises(KeyError):
        output_format("pdf.de")


def test_the_json_names_the_words_of_each_translation():
    _, transcription = told(spoken("One two."), (0, 1, "Eins zwei."))
    assert translation_objects(transcription, ["de", "fr"]) == {
        "de": [{"first": 0, "last": 1, "start": 0.0, "end": 0.0, "text": "Eins zwei."}],
        "fr": [],
    }
