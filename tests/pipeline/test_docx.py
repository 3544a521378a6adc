"""Tests of docx(): what a word processor finds in the file."""

import io
import zipfile
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.documents.formats import docx
from pipeline.words import Segment, Word

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def segment(text: str, start: int = 0, *, voice: str | None = None) -> Segment:
    starts = range(start, start + 1_000_000, 1000)
    words = tuple(Word(word, at, at + 900, 0.9) for at, word in zip(starts, text.split(" "), strict=False))
    return Segment(words, avg_logprob=-0.1, no_speech_prob=0.0, voice=voice)


def paragraphs(document: bytes) -> list[ET.Element]:
    with zipfile.ZipFile(io.BytesIO(document)) as package:
        assert package.testzip() is None
        for name in package.namelist():
            ET.fromstring(package.read(name))
        return ET.fromstring(package.read("word/document.xml")).findall(f".//{W}p")


def text_of(paragraph: ET.Element) -> str:
    return "".join(text.text or "" for text in paragraph.iter(f"{W}t"))


def test_each_paragraph_names_its_speaker_once():
    found = paragraphs(
        docx([
            segment("Good morning.", voice="S1"),
            segment("I go on.", 100_000, voice="S1"),
            segment("Tom & <Ann>.", 200_000, voice="S2"),
        ])
    )  # fmt: skip
    assert [text_of(one) for one in found] == ["S1: Good morning.", "I go on.", "S2: Tom & <Ann>."]
    assert [len(one.findall(f".//{W}b")) for one in found] == [1, 0, 1]


def test_arabic_is_written_from_right_to_left():
    arabic, english = paragraphs(docx([segment("مرحبا بكم.", voice="S1"), segment("Hello.", 50_000, voice="S2")]))
    assert arabic.find(f"{W}pPr/{W}bidi") is not None
    assert len(arabic.findall(f".//{W}rtl")) == 2
    assert english.find(f".//{W}bidi") is None


def test_silence_is_an_empty_document():
    assert [text_of(one) for one in paragraphs(docx([]))] == [""]


@settings(max_examples=50)
@given(st.text(min_size=1).filter(lambda text: text.strip() == text and " " not in text))
def test_any_word_makes_a_document_that_can_be_read(word):
    (found,) = paragraphs(docx([segment(word)]))
    assert text_of(found) == "".join(sign for sign in word if sign >= " " and sign not in "\ufffe\uffff")
