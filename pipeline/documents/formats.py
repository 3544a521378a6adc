"""Renders a Transcript as the files that users download. All of them have the same words in the same order."""

import io
import zipfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import orjson

from pipeline.audio import seconds
from pipeline.documents.cues import USUAL_SHAPE, Cue, SubtitleShape, cues, end_before_next, milliseconds
from pipeline.documents.paragraphs import Paragraph, paragraph_objects, paragraphs_of
from pipeline.documents.service_v1 import SCHEMA
from pipeline.languages import columns, kept_right_to_left, reads_right_to_left
from pipeline.text.phrase_replacement import units_of
from pipeline.words import Segment, SpeakerTurn, Transcript, Word, join_words, speaker_members, words_in_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What the files have that does not come from the Transcript: members of the JSON file, the shape of subtitles."""

    job_id: str
    created_at: str  # RFC 3339
    metadata: Mapping[str, str] = field(default_factory=dict)
    words: bool = False  # list every word with its times?
    subtitles: SubtitleShape = USUAL_SHAPE
    paragraphs: bool = False
    search: tuple[str, ...] = ()  # terms to look for
    translations: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # by target, as in the JSON


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """One kind of output file. *is_text*: else it is in answers as Base64. *translated*: translations have it, too."""

    media_type: str
    extension: str
    render: Callable[[Transcript, Heading], bytes]
    is_text: bool = True
    translated: bool = False


def service_v1(transcript: Transcript, heading: Heading) -> bytes:
    """Return the transcript as UTF-8 JSON of the type ServiceV1, with `words` only if the heading asks for it."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "job_id": heading.job_id,
        "created_at": heading.created_at,
        "duration": seconds(transcript.duration),
        "language": transcript.language,
        "language_probability": rounded(transcript.language_probability),
        **({"languages": language_objects(transcript.languages)} if transcript.languages else {}),
        "model": transcript.model,
        "engine": transcript.engine,
        "text": transcript.text,
        "segments": [segment_object(index, segment) for index, segment in enumerate(transcript.segments)],
    }
    if heading.words:
        document["words"] = [word_object(*pair) for pair in words_in_time(transcript.segments)]
    document |= search_members(transcript.segments, paragraphs=heading.paragraphs, terms=heading.search)
    if transcript.turns is not None:
        document["speakers"] = speaker_objects(transcript)
        document["turns"] = [turn_object(turn) for turn in transcript.turns]
    if heading.translations:
        document["translations"] = heading.translations
    document["metadata"] = dict(heading.metadata)
    return orjson.dumps(document)


def search_members(segments: Sequence[Segment], *, paragraphs: bool, terms: Sequence[str]) -> dict[str, Any]:
    """Return the members of the JSON file and of records that were requested: paragraphs, and where terms were said."""
    return {
        **({"paragraphs": paragraph_objects(segments)} if paragraphs else {}),
        **({"search": search_objects(segments, terms)} if terms else {}),
    }


def word_object(word: Word, segment: Segment | None = None) -> dict[str, Any]:
    """Return a word in the form of the JSON file, records and events.

    Times are in seconds. *segment* has the speaker.
    """
    return {
        "word": word.text,
        "start": seconds(word.start),
        "end": seconds(word.end),
        "probability": rounded(word.probability),
        **({} if word.heard is None else {"heard": word.heard}),
        **({"redacted": True} if word.redacted else {}),
        **({"corrected": True} if word.corrected else {}),
        **({} if word.language is None else {"language": word.language}),
        **({} if segment is None else speaker_members(segment.channel, segment.voice)),
    }


def word_event(word: Word, segment: Segment | None = None) -> dict[str, Any]:
    """Return a word in the form of events. `spaced` says whether a space belongs before it when words are joined."""
    shown = word_object(word, segment)
    return shown if word.spaced else {**shown, "spaced": False}


def segment_object(index: int, segment: Segment) -> dict[str, Any]:
    """Return a segment as the JSON file has it. Times are in seconds; its end is the latest end of its words."""
    return {
        "id": index,
        "start": seconds(segment.start),
        "end": seconds(max(word.end for word in segment.words)),
        "text": segment.text,
        "avg_logprob": rounded(segment.avg_logprob),
        "no_speech_prob": rounded(segment.no_speech_prob),
        **({} if segment.language is None else {"language": segment.language}),
        **speaker_members(segment.channel, segment.voice),
    }


def language_objects(spoken: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the languages that were found, given the length of the speech in each, with their shares of all speech."""
    whole = sum(spoken.values()) or 1
    return [{"language": language, "share": round(length / whole, 4)} for language, length in spoken.items()]


def speaker_objects(transcript: Transcript) -> list[dict[str, Any]]:
    """Return the speakers in the form of the JSON file and records, with the seconds that each speaks."""
    return [{"speaker": speaker, "seconds": seconds(spoken)} for speaker, spoken in transcript.speakers.items()]


def turn_object(turn: SpeakerTurn) -> dict[str, Any]:
    """Return a turn in the form of the JSON file. Times are in seconds."""
    return {"start": seconds(turn.start), "end": seconds(turn.end), **speaker_members(turn.channel, turn.speaker)}


def srt(transcript: Transcript, shape: SubtitleShape = USUAL_SHAPE) -> bytes:
    """Return SubRip in UTF-8, without a byte order mark, with LF. It is empty if nothing was said.

    If the speakers are known, each cue begins with its speaker's name. Cues never overlap, because many players show
    only one at a time.
    """
    found = end_before_next(_cues(transcript.segments, transcript.duration, shape, transcript.language))
    return "".join(
        f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{_text(cue, _label(cue.speaker))}\n\n"
        for number, cue in enumerate(found, start=1)
    ).encode()


def vtt(transcript: Transcript, shape: SubtitleShape = USUAL_SHAPE) -> bytes:
    """Return WebVTT in UTF-8, without a byte order mark, with LF. It is only the header if nothing was said.

    If the speakers are known, each cue is in a voice tag (`<v S1>`).
    """
    return _webvtt(_cues(transcript.segments, transcript.duration, shape, transcript.language))


def growing_vtt(
    segments: Sequence[Segment],
    duration: int,
    shape: SubtitleShape = USUAL_SHAPE,
    speakers: Sequence[SpeakerTurn] | None = None,
    *,
    language: str | None = None,
) -> bytes:
    """Return WebVTT of a recording of which the first *duration* samples are known.

    *language*: of words that do not say theirs.

    *speakers*: the speaker of each word that has one yet. A cue gets the voice of most of its words. Speakers do
    not change how cues are cut, because the label of a word may still change.

    When more segments follow, the cues stay as they are, but for the end of the last one.
    """
    if speakers is None:
        return _webvtt(_cues(segments, duration, shape, language, growing=True))
    channels = dict.fromkeys(segment.channel for segment in segments)
    found = [
        cue
        for channel in channels
        for cue in _voiced_cues(segments, duration, shape, speakers, channel=channel, language=language)
    ]
    return _webvtt(sorted(found, key=lambda cue: cue.start_ms))


def _voiced_cues(
    segments: Sequence[Segment],
    duration: int,
    shape: SubtitleShape,
    said: Sequence[SpeakerTurn],
    *,
    channel: int | None,
    language: str | None,
) -> list[Cue]:
    """Return the cues of a channel, each with the speaker of most of its words."""
    found = cues([one.words for one in segments if one.channel == channel], duration, shape, language=language)
    starts = [cue.start_ms for cue in found]
    spoken: list[Counter[str]] = [Counter() for _ in found]
    for word in said:
        cue = bisect_right(starts, milliseconds(word.start)) - 1
        if word.channel == channel and cue >= 0:
            spoken[cue][word.speaker] += word.end - word.start
    return [
        replace(cue, speaker=counts.most_common(1)[0][0] if counts else None)
        for cue, counts in zip(found, spoken, strict=True)
    ]


def _cues(
    segments: Sequence[Segment], duration: int, shape: SubtitleShape, language: str | None, *, growing: bool = False
) -> list[Cue]:
    """Return the cues of all speakers, in the order of their starts. Cues of two speakers or channels may overlap.

    Lines leave room for the speaker's name before them, but never more than half of their columns: names can be wide.
    """
    found: list[Cue] = []
    for channel, speaker in dict.fromkeys((segment.channel, segment.speaker) for segment in segments):
        runs = [segment.words for segment in segments if (segment.channel, segment.speaker) == (channel, speaker)]
        if not growing:
            runs = [tuple(word for run in runs for word in run)]
        own = cues(runs, duration, shape, language=language, label_columns=columns(_label(speaker)))
        found += [replace(cue, speaker=speaker) for cue in own]
    return sorted(found, key=lambda cue: cue.start_ms)


def _webvtt(shown: Sequence[Cue]) -> bytes:
    lines = ["WEBVTT\n\n"]
    for cue in shown:
        voice = "" if cue.speaker is None else f"<v {_escape(cue.speaker)}>"
        lines.append(f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{voice}{_escape(_text(cue))}\n\n")
    return "".join(lines).encode()


def txt(transcript: Transcript, *, paragraphs: bool = False) -> bytes:
    """Return the text and a newline; nothing if nothing was said. If the speakers are known, each turn has a line.

    With *paragraphs* they are separated by empty lines.
    """
    if paragraphs:
        found = paragraphs_of(transcript.segments)
        return "\n".join(f"{_turn(one.speaker, join_words(one.words))}\n" for one in found).encode()
    turns = groupby(transcript.segments, key=lambda segment: segment.speaker)
    text = "\n".join(
        _turn(speaker, join_words(word for segment in turn for word in segment.words)) for speaker, turn in turns
    )
    return f"{text}\n".encode() if text else b""


OUTPUT_FORMATS: Mapping[str, OutputFormat] = MappingProxyType(
    {
        "json": OutputFormat("application/json", "json", service_v1),
        "srt": OutputFormat(
            "application/x-subrip; charset=utf-8",
            "srt",
            lambda transcript, heading: srt(transcript, heading.subtitles),
            translated=True,
        ),
        "vtt": OutputFormat(
            "text/vtt; charset=utf-8",
            "vtt",
            lambda transcript, heading: vtt(transcript, heading.subtitles),
            translated=True,
        ),
        "txt": OutputFormat(
            "text/plain; charset=utf-8",
            "txt",
            lambda transcript, heading: txt(transcript, paragraphs=heading.paragraphs),
            translated=True,
        ),
        "docx": OutputFormat(
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "docx",
            lambda transcript, _heading: docx(transcript.segments, language=transcript.language),
            is_text=False,
        ),
    }
)
"""Every output file of a job, by the name that requests use."""


def _clock(ms: int, point: str) -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def _label(speaker: str | None) -> str:
    return "" if speaker is None else f"{speaker}: "


def _turn(speaker: str | None, text: str) -> str:
    return kept_right_to_left(_label(speaker) + text, text) if speaker else text


def _text(cue: Cue, label: str = "") -> str:
    text = "".join(cue.lines)
    first, *others = cue.lines
    return "\n".join(kept_right_to_left(line, text) for line in (label + first, *others))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rounded(number: float | None) -> float | None:
    """Return a probability or score as documents and events have it."""
    return None if number is None else round(number, 4) + 0.0  # + 0.0 turns -0.0 into 0.0


_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_SCHEMAS = "http://schemas.openxmlformats.org"
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_CONTENT_TYPES = (
    f'{_HEAD}<Types xmlns="{_SCHEMAS}/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_MAIN}.document.main+xml"/>'
    f'<Override PartName="/word/styles.xml" ContentType="{_MAIN}.styles+xml"/></Types>'
)
_RELATION = f"{_SCHEMAS}/officeDocument/2006/relationships"
_PACKAGE_RELATIONS = (
    f'{_HEAD}<Relationships xmlns="{_SCHEMAS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATION}/officeDocument" Target="word/document.xml"/></Relationships>'
)
_DOCUMENT_RELATIONS = (
    f'{_HEAD}<Relationships xmlns="{_SCHEMAS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATION}/styles" Target="styles.xml"/></Relationships>'
)
_NAMESPACE = f'xmlns:w="{_SCHEMAS}/wordprocessingml/2006/main"'


def docx(segments: Sequence[Segment], *, language: str | None = None) -> bytes:
    """Return the words as a Word document (ECMA-376): paragraphs, each with its speaker if that is known.

    The same words make the same bytes. python-docx would bring lxml, 20 MB of native code, for these four small files.

    *language*: of the text, as an ISO 639 code, for the spelling checks of word processors.
    """
    found = paragraphs_of(segments)
    body = "".join(_paragraph(one, found[at - 1].speaker if at else None) for at, one in enumerate(found))
    document = f"{_HEAD}<w:document {_NAMESPACE}><w:body>{body or '<w:p/>'}</w:body></w:document>"
    parts = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _PACKAGE_RELATIONS,
        "word/document.xml": document,
        "word/_rels/document.xml.rels": _DOCUMENT_RELATIONS,
        "word/styles.xml": _styles(language),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in parts.items():
            package.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _paragraph(paragraph: Paragraph, before: str | None) -> str:
    """Return a paragraph. The speaker's name begins it, unless the one *before* it has the same speaker."""
    text = join_words(paragraph.words)
    right = reads_right_to_left(text)
    name = paragraph.speaker
    label = "" if name is None or name == before else _run(f"{name}: ", "<w:b/><w:bCs/>", right=right)
    return f"<w:p>{'<w:pPr><w:bidi/></w:pPr>' if right else ''}{label}{_run(text, '', right=right)}</w:p>"


def _run(text: str, look: str, *, right: bool) -> str:
    """Return a piece of text. Signs that XML does not allow are left out."""
    shown = "".join(sign for sign in text if sign >= " " and sign not in "\ufffe\uffff")
    look += "<w:rtl/>" if right else ""
    return f'<w:r>{f"<w:rPr>{look}</w:rPr>" if look else ""}<w:t xml:space="preserve">{escape(shown)}</w:t></w:r>'


def _styles(language: str | None) -> str:
    name = quoteattr(language or "en")
    return (
        f'{_HEAD}<w:styles {_NAMESPACE}><w:docDefaults><w:rPrDefault><w:rPr><w:sz w:val="24"/><w:szCs w:val="24"/>'
        f"<w:lang w:val={name} w:bidi={name}/></w:rPr></w:rPrDefault><w:pPrDefault><w:pPr>"
        '<w:spacing w:after="160" w:line="276" w:lineRule="auto"/></w:pPr></w:pPrDefault></w:docDefaults>'
        '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style></w:styles>'
    )


MAX_HITS = 1000
"""The most hits of one term. A hundred terms may each fit every word of hours of speech."""


def search_objects(segments: Sequence[Segment], terms: Sequence[str]) -> list[dict[str, Any]]:
    """Return where each of *terms* was said, in the form of the JSON file and of records. Times are in seconds.

    Case and marks do not count. In scripts without spaces a term is found wherever its signs follow each other, however
    the recogniser cut the words. A word that the text stage has replaced is found by both of its texts.

    Of a term the first MAX_HITS are returned. All words of a hit are of one channel. They may lie in two segments.
    """
    numbers = dict.fromkeys(segment.channel for segment in segments)
    channels = [
        _Channel([word for one in segments if one.channel == number for word in one.words]) for number in numbers
    ]
    return [
        {"query": term, "hits": list(islice((hit for channel in channels for hit in channel.hits(term)), MAX_HITS))}
        for term in terms
    ]


class _Channel:
    """The words of one channel, as they are written and as they were recognised."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        self._rows = [_Row(words)]
        if any(word.heard for word in words):
            self._rows.append(_Row([replace(word, text=word.heard or word.text) for word in words]))

    def hits(self, term: str) -> Iterator[dict[str, Any]]:
        """Yield the places of *term*, which do not overlap."""
        wanted = [text for text, _ in _comparable([Word(part, 0, 0, 1.0) for part in term.split()])]
        reached = 0
        for start, stop in sorted({place for row in self._rows for place in row.places(wanted)}):
            if start >= reached:
                yield _hit(self._words[start:stop])
                reached = stop


class _Row:
    """The units of words, with the places of each: a recording of many hours may have many terms."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._units = list(_comparable(words))
        self._places: dict[str, list[int]] = {}
        for place, (text, _) in enumerate(self._units):
            self._places.setdefault(text, []).append(place)

    def places(self, wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield (first word, word after the last) of each place with the units *wanted*. No places share a unit."""
        reached = 0
        for at in self._places.get(wanted[0], ()) if wanted else ():
            stop = at + len(wanted)
            if at >= reached and [text for text, _ in self._units[at:stop]] == wanted:
                yield self._units[at][1], self._units[stop - 1][1] + 1
                reached = stop


def _comparable(words: Sequence[Word]) -> Iterator[tuple[str, int]]:
    """Yield the units of *words*, each with the index of its word."""
    for number, word in enumerate(words):
        yield from ((unit.text, number) for unit in units_of(word.text))


def _hit(words: Sequence[Word]) -> dict[str, Any]:
    return {
        "start": seconds(words[0].start),
        "end": seconds(words[-1].end),
        "confidence": round(sum(word.probability for word in words) / len(words), 4),
        "snippet": join_words(words),
    }
