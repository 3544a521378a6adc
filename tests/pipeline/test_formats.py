"""Tests of formats.py: the exact bytes of the text files, and that all have the same words."""

import re
from dataclasses import replace
from html import unescape

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pipeline.audio import RATE, seconds
from pipeline.documents.cues import SubtitleShape, cues
from pipeline.documents.formats import OUTPUT_FORMATS, Heading, growing_vtt, srt, txt, vtt
from pipeline.documents.service_v1 import service_v1_schema
from pipeline.words import Segment, SpeakerTurn, Transcript, Word

HEADING = Heading(job_id="job_01JD4W2M8Q7Z5K3N9V6B1XTRGH", created_at="2026-11-20T11:30:00.123Z", words=True)
SCHEMA = Draft202012Validator(service_v1_schema("https://example.org"))

SPOKEN = Transcript(
    segments=(
        Segment(
            (
                Word("Tom", 8_000, 12_000, 0.97),
                Word("&", 12_000, 13_000, 0.5),
                Word("<Ann>", 13_000, 20_009, 0.91236),
                Word("-->", 20_009, 24_000, 0.25),
                Word("you.", 24_000, 30_000, 1.0),
            ),
            avg_logprob=-0.21049,
            no_speech_prob=0.01,
        ),
        Segment((Word("Bye.", 58_000_000, 58_008_000, 0.9),), avg_logprob=-0.00001, no_speech_prob=0.0),
    ),
    duration=58_016_008,
    language="en",
    language_probability=0.98765,
    engine="whisper",
    model="base",
)
SILENT = Transcript((), 3 * RATE, None, None, "whisper", "base")

GOLDEN_SRT = """\
1
00:00:00,500 --> 00:00:01,875
Tom & <Ann> -> you.

2
01:00:25,000 --> 01:00:26,000
Bye.

"""
GOLDEN_VTT = """\
WEBVTT

00:00:00.500 --> 00:00:01.875
Tom &amp; &lt;Ann&gt; -&gt; you.

01:00:25.000 --> 01:00:26.000
Bye.

"""
GOLDEN_JSON = {
    "schema": "service_v1",
    "job_id": "job_01JD4W2M8Q7Z5K3N9V6B1XTRGH",
    "created_at": "2026-11-20T11:30:00.123Z",
    "duration": 3626.001,
    "language": "en",
    "language_probability": 0.9877,
    "model": "base",
    "engine": "whisper",
    "text": "Tom & <Ann> --> you. Bye.",
    "segments": [
        {
            "id": 0,
            "start": 0.5,
            "end": 1.875,
            "text": "Tom & <Ann> --> you.",
            "avg_logprob": -0.2105,
            "no_speech_prob": 0.01,
        },
        {"id": 1, "start": 3625.0, "end": 3625.5, "text": "Bye.", "avg_logprob": 0.0, "no_speech_prob": 0.0},
    ],
    "words": [
        {"word": "Tom", "start": 0.5, "end": 0.75, "probability": 0.97},
        {"word": "&", "start": 0.75, "end": 0.813, "probability": 0.5},
        {"word": "<Ann>", "start": 0.813, "end": 1.251, "probability": 0.9124},
        {"word": "-->", "start": 1.251, "end": 1.5, "probability": 0.25},
        {"word": "you.", "start": 1.5, "end": 1.875, "probability": 1.0},
        {"word": "Bye.", "start": 3625.0, "end": 3625.5, "probability": 0.9},
    ],
    "metadata": {},
}


def render(name: str, transcript: Transcript, heading: Heading = HEADING) -> bytes:
    return OUTPUT_FORMATS[name].render(transcript, heading)


def test_srt_to_the_byte():
    assert render("srt", SPOKEN) == srt(SPOKEN) == GOLDEN_SRT.encode()


def test_vtt_to_the_byte():
    assert render("vtt", SPOKEN) == vtt(SPOKEN) == GOLDEN_VTT.encode()


def test_txt_is_the_text_and_a_newline():
    assert render("txt", SPOKEN) == txt(SPOKEN) == b"Tom & <Ann> --> you. Bye.\n"


def test_json_member_by_member():
    document = orjson.loads(render("json", SPOKEN))
    assert document == GOLDEN_JSON
    assert list(document) == list(GOLDEN_JSON)


def test_json_lists_words_only_when_asked():
    without = Heading(job_id=HEADING.job_id, created_at=HEADING.created_at)
    assert orjson.loads(render("json", SPOKEN, without)) == {k: v for k, v in GOLDEN_JSON.items() if k != "words"}


def test_json_echoes_the_metadata():
    heading = Heading(job_id=HEADING.job_id, created_at=HEADING.created_at, metadata={"room": "7"})
    assert orjson.loads(render("json", SPOKEN, heading))["metadata"] == {"room": "7"}


def test_a_silent_file_is_empty_in_every_format():
    assert render("srt", SILENT) == b""
    assert render("txt", SILENT) == b""
    assert render("vtt", SILENT) == b"WEBVTT\n\n"
    document = orjson.loads(render("json", SILENT))
    assert (document["text"], document["segments"], document["words"]) == ("", [], [])
    assert (document["language"], document["language_probability"], document["duration"]) == (None, None, 3.0)
    SCHEMA.validate(document)


def test_every_format_names_its_type_and_extension():
    assert {name: (kind.media_type, kind.extension) for name, kind in OUTPUT_FORMATS.items()} == {
        "json": ("application/json", "json"),
        "srt": ("application/x-subrip; charset=utf-8", "srt"),
        "vtt": ("text/vtt; charset=utf-8", "vtt"),
        "txt": ("text/plain; charset=utf-8", "txt"),
        "docx": ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    }


CALL = Transcript(
    segments=(
        Segment((Word("Hello,", 0, 8_000, 0.9), Word("Ann?", 16_000, 24_000, 0.9)), -0.2, 0.01, channel=0),
        Segment((Word("Yes.", 12_000, 20_000, 0.8),), -0.3, 0.02, channel=1),
        Segment((Word("Good.", 80_000, 90_000, 0.9),), -0.2, 0.01, channel=1),
    ),
    duration=6 * RATE,
    language="en",
    language_probability=1.0,
    engine="whisper",
    model="base",
)


def test_the_speakers_of_a_call_are_named_in_every_file():
    assert srt(CALL).decode() == (
        "1\n00:00:00,000 --> 00:00:00,875\nS1: Hello, Ann?\n\n"
        "2\n00:00:00,875 --> 00:00:01,750\nS2: Yes.\n\n"
        "3\n00:00:05,000 --> 00:00:06,000\nS2: Good.\n\n"
    )
    assert "\n<v S2>Yes.\n" in vtt(CALL).decode()
    assert txt(CALL).decode() == "S1: Hello, Ann?\nS2: Yes. Good.\n"
    document = orjson.loads(render("json", CALL))
    SCHEMA.validate(document)
    assert document["text"] == "Hello, Ann? Yes. Good."
    assert [(segment["channel"], segment["speaker"]) for segment in document["segments"]] == [
        (0, "S1"),
        (1, "S2"),
        (1, "S2"),
    ]
    assert [(word["word"], word["speaker"]) for word in document["words"]] == [
        ("Hello,", "S1"),
        ("Yes.", "S2"),
        ("Ann?", "S1"),
        ("Good.", "S2"),
    ]


def right_to_left(text: str, **members: object) -> Transcript:
    words = tuple(Word(one, n * RATE, (n + 1) * RATE, 0.9) for n, one in enumerate(text.split()))
    return replace(CALL, segments=(Segment(words, -0.2, 0.01, **members),), turns=(), language="ar")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["مرحبا بكم", "שלום לכולם", "- سلام به همه", "3 کتابیں ہیں", "IBM أعلنت عن نتائجها"])
def test_a_cue_that_reads_from_right_to_left_does_so_after_a_latin_name_a_dash_or_a_figure(text):
    named = srt(right_to_left(text, voice="Ann")).decode().splitlines()[2]
    assert named == f"\u200fAnn: {text}"
    plain = vtt(right_to_left(text)).decode().splitlines()[3]
    assert plain == (text if text[0] in "مש" else f"\u200f{text}")
    assert txt(right_to_left(text, voice="Ann")).decode() == f"\u200fAnn: {text}\n"


@given(st.text("abc مشש-3.?", min_size=1, max_size=30).filter(lambda text: text == " ".join(text.split()) != ""))
def test_the_letters_of_a_cue_stay_in_logical_order(text):
    blocks = srt(right_to_left(text)).decode().replace("\u200f", "").strip("\n").split("\n\n")
    lines = [line for block in blocks for line in block.split("\n")[2:]]
    assert " ".join(lines).split() == text.split()


@pytest.mark.parametrize("name", ["Margaret Atwood", "\u540d\u524d\u540d\u524d\u540d\u524d", "x" * 64])
def test_a_name_as_wide_as_a_line_leaves_half_of_it_to_the_text(name):
    text = " ".join(["one by"] * 20)
    words = tuple(Word(word, n * 8_000, n * 8_000 + 7_000, 0.9) for n, word in enumerate(text.split()))
    spoken = replace(CALL, segments=(Segment(words, -0.2, 0.01, voice=name),), duration=30 * RATE)
    for width in (10, 20):
        lines = [
            line
            for line in srt(spoken, SubtitleShape(max_columns=width)).decode().splitlines()
            if re.search("[a-z]", line)
        ]
        shown = [line.removeprefix(f"{name}: ") for line in lines]
        assert " ".join(shown) == text
        assert max(map(len, shown)) <= width // 2
        assert f"<v {name}>" in vtt(spoken, SubtitleShape(max_columns=width)).decode()


def test_a_person_heard_on_two_channels_at_once_has_cues_of_both_that_can_be_read():
    segments = tuple(replace(segment, voice="Ann") for segment in CALL.segments)
    turns = tuple(SpeakerTurn("Ann", *times) for times in ((0, 24_000, 0), (12_000, 20_000, 1), (80_000, 90_000, 1)))
    call = replace(CALL, segments=segments, turns=turns)
    named = srt(CALL).decode().replace("S1: ", "Ann: ").replace("S2: ", "Ann: ")
    assert srt(call).decode() == named
    assert orjson.loads(render("json", call))["speakers"] == [{"speaker": "Ann", "seconds": seconds(34_000)}]


def test_the_schema_is_one_and_carries_the_address_it_is_served_at():
    schema = service_v1_schema("https://example.org")
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "https://example.org/schemas/service_v1.json"
    assert schema["$defs"].keys() == {
        "Found",
        "Translation",
        "Hit",
        "Paragraph",
        "Segment",
        "Sentence",
        "Speaker",
        "SpokenLanguage",
        "Turn",
        "Word",
    }


@pytest.mark.parametrize(
    ("member", "value"),
    [("schema", "service_v2"), ("job_id", "7"), ("language", "English"), ("duration", -1), ("segments", None)],
)
def test_the_schema_refuses_what_is_not_service_v1(member, value):
    assert not SCHEMA.is_valid({**GOLDEN_JSON, member: value})


# For every transcript

WORD_TEXT = st.text(
    st.one_of(st.sampled_from("ab.,?-><&"), st.characters(exclude_categories=["C", "Z"])), min_size=1, max_size=30
).map(lambda text: re.sub(r"\s|-{2,}>", "x", text))


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Make transcripts as assemble() returns them: words in order, inside the duration."""
    segments = []
    start = end = 0
    for texts in draw(st.lists(st.lists(WORD_TEXT, min_size=1, max_size=12), max_size=5)):
        words = []
        for text in texts:
            start = end + draw(st.sampled_from([0, 1, 9, 800, 8000, 50_000]))
            end = start + draw(st.sampled_from([1, 3, 1600, 4800, 9001]))
            words.append(Word(text, start, end, draw(st.floats(0, 1))))
        segments.append(Segment(tuple(words), -draw(st.floats(0, 9)), draw(st.floats(0, 1))))
    return Transcript(tuple(segments), end + draw(st.integers(0, 90_000)), "de", 0.5, "whisper", "base")


def clock_ms(text: str) -> int:
    hours, minutes, rest = text.split(":")
    whole, fraction = re.split("[.,]", rest)
    assert len(fraction) == 3
    assert len(hours) >= 2
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1000 + int(fraction)


def parse_srt(data: bytes) -> list[tuple[int, int, str]]:
    """Read SRT as players do: blocks with a counter, a line of times and text, separated by blank lines."""
    blocks = [block for block in data.decode().split("\n\n") if block]
    read = []
    for number, block in enumerate(blocks, start=1):
        counter, times, *lines = block.split("\n")
        assert counter == str(number)
        match = re.fullmatch(r"(\d{2,}:\d\d:\d\d,\d{3}) --> (\d{2,}:\d\d:\d\d,\d{3})", times)
        read.append((clock_ms(match[1]), clock_ms(match[2]), " ".join(lines)))
    return read


def parse_vtt(data: bytes) -> list[tuple[int, int, str]]:
    header, *blocks = data.decode().removesuffix("\n\n").split("\n\n")
    assert header == "WEBVTT"
    read = []
    for block in blocks:
        times, *lines = block.split("\n")
        match = re.fullmatch(r"(\d{2,}:\d\d:\d\d\.\d{3}) --> (\d{2,}:\d\d:\d\d\.\d{3})", times)
        assert not re.search("[<>]|&(?!amp;|lt;|gt;)", "".join(lines))
        read.append((clock_ms(match[1]), clock_ms(match[2]), unescape(" ".join(lines))))
    return read


@settings(max_examples=200)
@given(transcripts())
def test_srt_and_vtt_parse_back_to_the_same_cues(transcript):
    found = cues([transcript.words], transcript.duration)
    expected = [(cue.start_ms, cue.end_ms, " ".join(cue.lines)) for cue in found]
    assert parse_srt(srt(transcript)) == parse_vtt(vtt(transcript)) == expected


@settings(max_examples=200)
@given(transcripts())
def test_all_four_files_hold_the_same_words_and_every_json_file_is_service_v1(transcript):
    words = [word.text for word in transcript.words]
    document = orjson.loads(render("json", transcript))
    assert [word["word"] for word in document["words"]] == words
    assert " ".join(segment["text"] for segment in document["segments"]).split() == words
    assert document["text"].split() == words
    assert txt(transcript).decode().split() == words
    assert " ".join(text for _, _, text in parse_srt(srt(transcript))).split() == words
    assert " ".join(text for _, _, text in parse_vtt(vtt(transcript))).split() == words
    SCHEMA.validate(document)
    assert document["duration"] == seconds(transcript.duration)
    last = 0.0
    for word in document["words"]:
        assert last <= word["start"] <= word["end"] <= document["duration"]
        assert all(round(word[key], 3) == word[key] for key in ("start", "end"))
        last = word["start"]


def test_a_growing_cue_has_the_voice_of_most_of_its_words_and_changes_nothing_else():
    words = tuple(Word(text, at * RATE, (at + 1) * RATE, 1.0) for at, text in enumerate(("One", "two", "three")))
    segments = [Segment(words, avg_logprob=0.0, no_speech_prob=0.0)]
    plain = growing_vtt(segments, 3 * RATE).decode()
    assert growing_vtt(segments, 3 * RATE, speakers=[]).decode() == plain
    for speakers, voice in ((("S1", "S1", "S2"), "S1"), (("S2", "S1", "S2"), "S2")):
        said = [SpeakerTurn(who, word.start, word.end) for who, word in zip(speakers, words, strict=True)]
        assert growing_vtt(segments, 3 * RATE, speakers=said).decode() == plain.replace("One", f"<v {voice}>One")
