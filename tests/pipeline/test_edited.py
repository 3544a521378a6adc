"""Tests of files that people edited: what a subtitle editor does to them, and what they change in a transcript."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corrections import Correcting, SpeakerRequest, TextRequest
from pipeline.documents.edited import EditedLine, NotAligned, UnreadableDocument, changes_in, read_edited
from pipeline.timeline import Correction
from tests.pipeline.test_corrections import Transcript, keep

SPEECH = (
    "And so my fellow Americans ask not what your country can do for you ask what you can do for your country "
    "it was the best of times it was the worst of times"
)


def give_back(transcript: Transcript, data: str, kind: str) -> None:
    """Correct the transcript by an edited file."""
    state = transcript.state
    lines = read_edited(data.encode(), kind, state.known_speakers())
    for request in changes_in(lines, state):
        transcript.correct(request)


SRT = """1
00:00:00,330 --> 00:00:03,710
<i>And so, my fellow</i>
Americans: ask not

2
00:00:04,010 --> 00:00:11,000
{\\an8}what your country can do
for you - ask what you

3
00:00:11,000 --> 00:00:14,000
can do for your country! It was
the best of times, it was the worst of times.
"""


def test_a_subtitle_file_with_lines_broken_anew_and_styling_changes_only_what_was_written():
    transcript = Transcript(SPEECH)
    give_back(transcript, SRT, "srt")
    assert transcript.text == (
        "And so, my fellow Americans: ask not what your country can do for you - ask what you can do for your country! "
        "It was the best of times, it was the worst of times."
    )
    before = [word for word, _ in transcript.said]
    assert [word.start for word in transcript.words if word.text != "-"] == [word.start for word in before]


def test_a_file_without_changes_changes_nothing():
    transcript = Transcript(SPEECH)
    give_back(transcript, SPEECH.replace(" it was", "\nit was"), "txt")
    assert transcript.corrections == []


def test_a_name_is_mended_and_a_word_removed_and_words_added():
    transcript = Transcript("we went to lubliana um last year")
    give_back(transcript, "Oh, we went to Ljubljana last year together", "txt")
    assert transcript.text == "Oh, we went to Ljubljana last year together"
    assert [word.start for word in transcript.words if word.text in {"last", "year"}] == [80_000, 96_000]


def test_a_corrected_transcript_can_be_given_back_again():
    transcript = Transcript("we went to lubliana um last year")
    give_back(transcript, "we went to Ljubljana and Maribor last year", "txt")
    give_back(transcript, "we went to Ljubljana, Koper and Maribor last year", "txt")
    assert transcript.text == "we went to Ljubljana, Koper and Maribor last year"


def test_voices_and_known_names_say_who_speaks():
    transcript = Transcript("hello there my friend", ["S1", "S1", "S1", "S1"])
    lines = read_edited(
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n<v S1>hello there\n\n00:02.000 --> 00:04.000\n<v Ben>my friend\n", "vtt"
    )
    assert changes_in(lines, transcript.state) == [SpeakerRequest(first=2, last=3, speaker="Ben")]
    [line] = read_edited(b"1\n00:00:00,000 --> 00:00:01,000\nS1: so: what", "srt", ["S1"])
    assert line == EditedLine("so: what", "S1")
    [line] = read_edited(b"Note: this", "txt", ["S1"])
    assert line == EditedLine("Note: this")


def test_scripts_without_spaces_are_aligned_sign_by_sign():
    transcript = Transcript("\u6771 \u4eac \u3067 \u3059")
    transcript.said = [
        (word.__class__(word.text, word.start, word.end, 0.9, False), None) for word, _ in transcript.said
    ]
    give_back(transcript, "\u4eac\u90fd\u3067\u3059\u3002", "txt")
    assert transcript.text == "\u4eac\u90fd\u3067\u3059\u3002"
    assert transcript.words[-1].start == 48_000


def test_another_text_is_not_aligned_and_says_so():
    with pytest.raises(NotAligned, match="Only 0 of the file's 5 words"):
        changes_in([EditedLine("the cat sat over there")], Transcript("ask not what your country").state)


def test_a_long_strange_piece_is_named_and_the_rest_can_still_be_had():
    transcript = Transcript(" ".join(f"w{number}" for number in range(200)))
    strange = " ".join(f"x{number}" for number in range(50))
    text = (
        " ".join(f"w{number}" for number in range(100))
        + f" {strange} "
        + " ".join(f"w{n}" for n in range(150, 199))
        + " end"
    )
    with pytest.raises(NotAligned, match=r"words 100 to 149 \('w100 w101") as caught:
        changes_in([EditedLine(text)], transcript.state)
    assert caught.value.requests == (TextRequest(first=199, last=199, text="end"),)


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (b"\xff\xfe", "srt", "not UTF-8"),
        (b"just text", "srt", "no cue of SRT"),
        (b"just text", "vtt", "no cue of VTT"),
        (b"{}", "json", "no JSON output"),
        (b"[1", "json", "no JSON output"),
    ],
)
def test_what_is_no_such_file_is_refused(data, kind, reason):
    with pytest.raises(UnreadableDocument, match=reason):
        read_edited(data, kind)


def test_our_own_json_is_read():
    lines = read_edited(b'{"segments": [{"text": "hello there", "speaker": "S1"}, {"text": "bye"}]}', "json")
    assert lines == [EditedLine("hello there", "S1"), EditedLine("bye")]


WORDS = st.sampled_from(["the", "a", "of", "times", "was", "best", "worst", "country", "Ask", "ask,", "you"])


@given(
    st.lists(WORDS, min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.lists(WORDS, max_size=2)), max_size=3),
)
def test_whatever_is_edited_the_transcript_then_reads_as_the_file(words, edits):
    edited = list(words)
    for at, count, new in edits:
        edited[at : at + count] = new
    transcript = Transcript(" ".join(words))
    try:
        requests = changes_in([EditedLine(" ".join(edited))], transcript.state)
    except NotAligned:
        return
    if requests:
        changes = Correcting(transcript.said, transcript.labels, []).changes_of(requests, keep)
        transcript.corrections.append(Correction(1, "me", changes))
    assert transcript.text == " ".join(edited)
