"""Tests of what documents say about the languages that were found."""

import orjson
import pytest

from pipeline.audio import position
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import Heading, service_v1
from pipeline.words import Chunk, Segment, Transcript, Word
from tests.pipeline.timelines import stored_parts

HEADING = Heading(job_id="job_1", created_at="2026-01-01T00:00:00Z", words=True)


def said(start: float, end: float, language: str | None, sure: float | None = 0.9) -> Segment:
    """One word that is said all the time."""
    word = Word("word", position(start), position(end), 0.9, language=language)
    return Segment((word,), -0.1, 0.0, language_probability=sure)


def whole(*segments: Segment) -> Transcript:
    end = segments[-1].end
    chunk = Chunk(0, 1, 0, end, segments, segments[-1].language, 0.9)
    return assemble([chunk], duration=end, engine="whisper", model_of=lambda _: "base")


def test_the_language_of_most_speech_is_that_of_the_recording_and_each_has_its_share():
    transcript = whole(said(0, 2, "fr", 0.8), said(2, 8, "en", 0.6), said(8, 9, "fr"), said(9, 10, "en", 1.0))
    document = orjson.loads(service_v1(transcript, HEADING))
    assert (document["language"], document["language_probability"]) == ("en", round((6 * 0.6 + 1) / 7, 4))
    assert document["languages"] == [{"language": "en", "share": 0.7}, {"language": "fr", "share": 0.3}]
    assert [segment["language"] for segment in document["segments"]] == ["fr", "en", "fr", "en"]
    assert [word["language"] for word in document["words"]] == ["fr", "en", "fr", "en"]


def test_where_one_language_was_found_words_and_segments_do_not_repeat_it():
    document = orjson.loads(service_v1(whole(said(0, 2, "fr"), said(2, 3, "fr")), HEADING))
    assert document["languages"] == [{"language": "fr", "share": 1.0}]
    assert not any("language" in one for one in (*document["segments"], *document["words"]))


def test_where_the_order_says_the_language_nothing_was_found():
    transcript = whole(said(0, 2, None, None))
    chunk = Chunk(0, 1, 0, position(2), transcript.segments, "de", 1.0)
    transcript = assemble([chunk], duration=position(2), engine="whisper", model_of=lambda _: "base")
    document = orjson.loads(service_v1(transcript, HEADING))
    assert (document["language"], document["language_probability"]) == ("de", 1.0)
    assert "languages" not in document


@pytest.mark.parametrize(
    ("language", "spoken_s", "sure", "notes"),
    [
        ("cy", 3.1, 0.49, ["cy"]),
        ("cy", 3.1, 0.5, []),
        ("cy", 2.9, 0.1, []),
        ("cy", 9, None, []),
        ("en", 3.1, 0.1, []),  # it is sure on average
    ],
)
def test_more_than_three_seconds_in_a_doubtful_language_are_worth_a_warning(language, spoken_s, sure, notes):
    transcript = whole(said(0, 20, "en"), said(20, 20 + spoken_s, language, sure))
    assert [note.split(" than ")[1][:2] for note in transcript.notes] == notes
    assert all(note.startswith("language_doubtful: 3.1 s of speech may be in another") for note in transcript.notes)


@pytest.mark.parametrize(
    ("length_s", "sure", "warned"), [(8, 0.2, True), (2, 0.2, False), (8, 0.9, False), (8, None, False)]
)
def test_speech_without_a_word_in_a_doubtful_language_is_worth_a_warning(length_s, sure, warned):
    chunk = Chunk(0, 1, 0, position(length_s), (), "tr" if sure else None, sure)
    notes = assemble([chunk], duration=position(length_s), engine="whisper", model_of=lambda _: "base").notes
    assert [note.startswith("language_doubtful: no words were found") for note in notes] == [True] * warned


def test_a_chunk_remembers_how_sure_each_language_is():
    chunk = Chunk(0, 1, 0, position(2), (said(0, 1, "en", 0.25), said(1, 2, None, None)), "en", 0.5)
    assert stored_parts([chunk]) == [chunk]
