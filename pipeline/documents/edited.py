"""Reads a subtitle file or text that a person edited, and finds what it changes in a transcript. Pure.

    requests = changes_in(read_edited(data, "srt"), state)      # raises NotAligned

Editors break lines anew, join and split cues, add styling, and keep the words. So the words of the file are aligned
with those of the transcript, whatever cues they stand in, by the fewest insertions, deletions and replacements. Times
of the file are not used: they are those of cues, and words have better ones.
"""

import html
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import orjson
from rapidfuzz.distance import Levenshtein

from pipeline.corrections import Correcting, Request, SpeakerRequest, TextRequest, tokens_of
from pipeline.languages import comparable, is_unspaced
from pipeline.words import join_words

LONGEST_STRANGE = 40
"""The most words in a row that may be replaced by others. More is another text, not a correction."""

LEAST_COMMON = 0.3
"""The least share of the file's words that must be those of the transcript."""

FORMATS = ("srt", "vtt", "txt", "json")

_CUE_TIME = re.compile(r"^\s*(?:\d+:)?\d{1,2}:\d\d[,.]\d{1,3}\s*-->")
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}|<\d[\d:.]*>")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]+)>")
_LABEL = re.compile(r"^([^:\n]{1,64}):\s+")
_DASH = re.compile(r"^[-\u2013\u2014]\s+")


class UnreadableDocument(ValueError):
    """These bytes are no file of the format."""


class NotAligned(Exception):
    """Parts of the file have no place in the transcript. *parts* says which; *requests* is what could be placed."""

    def __init__(self, parts: Sequence[str], requests: Sequence[Request]) -> None:
        super().__init__("; ".join(parts))
        self.parts = tuple(parts)
        self.requests = tuple(requests)


@dataclass(frozen=True, slots=True)
class EditedLine:
    """A line of the file without styling, and who speaks in it, if it says so."""

    text: str
    speaker: str | None = None


def read_edited(data: bytes, kind: str, known: Sequence[str] = ()) -> list[EditedLine]:
    """Return the lines of a file of *kind*, one of FORMATS. *known*: names and labels that may begin a line ("Anna: ").

    Raises UnreadableDocument.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableDocument("The file is not UTF-8.") from error
    if kind == "json":
        return _of_json(text)
    if kind == "txt":
        return [_labelled(line, known) for line in text.split("\n") if line.strip()]
    if not any(_CUE_TIME.match(line) for line in text.split("\n")) and text.strip() not in {"", "WEBVTT"}:
        raise UnreadableDocument(f"The file has no cue of {kind.upper()}: lines with times and -->.")
    return list(_of_cues(text, kind, known))


def _of_json(text: str) -> list[EditedLine]:
    try:
        segments = orjson.loads(text)["segments"]
        return [EditedLine(segment["text"], segment.get("speaker")) for segment in segments]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableDocument("The file is no JSON output with segments that have a text.") from error


def _of_cues(text: str, kind: str, known: Sequence[str]) -> Iterator[EditedLine]:
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        at = next((number for number, line in enumerate(lines) if _CUE_TIME.match(line)), None)
        if at is None:
            continue  # the header, a note, a style
        speaker = None
        for line in lines[at + 1 :]:
            if kind == "vtt" and (voice := _VOICE.search(line)):
                speaker = html.unescape(voice[1].strip())
            plain = _TAGS.sub("", line)
            plain = html.unescape(plain) if kind == "vtt" else plain
            found = _labelled(_DASH.sub("", plain.strip()), known)
            speaker = found.speaker or speaker
            if found.text:
                yield EditedLine(found.text, speaker)


def _labelled(line: str, known: Sequence[str]) -> EditedLine:
    """Cut a known speaker's name off the beginning of a line."""
    line = line.strip().lstrip("\u200e\u200f\ufeff")
    label = _LABEL.match(line)
    if label and label[1] in known:
        return EditedLine(line[label.end() :], label[1])
    return EditedLine(line)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word, or a sign of a word in a script without spaces, and where it belongs."""

    key: str
    at: int  # the word's number, or the token's place in the file


def changes_in(lines: Sequence[EditedLine], state: Correcting) -> list[Request]:
    """Return the changes that make the transcript read as the file does, as few and small as possible.

    Raises NotAligned if parts of the file are another text.
    """
    numbers = [number for number in range(len(state.said)) if state.words_at(number)]
    tokens = [_Token(token, spaced, line.speaker) for line in lines for token, spaced in tokens_of(line.text)]
    ours = [unit for number in numbers for word in state.words_at(number) for unit in _units(word.text, number)]
    theirs = [unit for at, token in enumerate(tokens) for unit in _units(token.text, at)]
    blocks = Levenshtein.opcodes([unit.key for unit in ours], [unit.key for unit in theirs])
    pairs = [
        (ours[block.src_start + at].at, theirs[block.dest_start + at].at)
        for block in blocks
        if block.tag == "equal"
        for at in range(block.src_end - block.src_start)
    ]
    if theirs and len(pairs) < LEAST_COMMON * len(theirs):
        raise NotAligned([f"Only {len(pairs)} of the file's {len(theirs)} words are those of the transcript."], [])

    found = _anchors(pairs, ours, theirs)
    requests: list[Request] = []
    strange: list[str] = []
    for first, last, begin, end in _pieces(numbers, len(tokens), found):
        text = "".join(f" {token.text}" if token.spaced else token.text for token in tokens[begin:end]).strip()
        present = join_words(word for number in range(first, last + 1) for word in state.words_at(number))
        wide = max(state.ranges.get(number, number) for number in range(first, last + 1))
        if text == present:
            continue
        if max(last + 1 - first, end - begin) > LONGEST_STRANGE:
            strange.append(f"words {first} to {last} ({present[:60]!r}) would become {text[:60]!r}")
        else:
            requests.append(TextRequest(first=first, last=max(last, wide), text=text))
    requests += _speakers(state, found, tokens)
    if strange:
        raise NotAligned(strange, requests)
    return requests


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of the file."""

    text: str
    spaced: bool
    speaker: str | None


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A word of the transcript, by its number, that tokens *begin* to *end* of the file are, and nothing else."""

    number: int
    begin: int
    end: int


def _anchors(pairs: Sequence[tuple[int, int]], ours: Sequence[_Unit], theirs: Sequence[_Unit]) -> list[_Anchor]:
    """Return the words all of whose units are those of tokens that have no other units, in order."""
    units = Counter(unit.at for unit in ours), Counter(unit.at for unit in theirs)
    paired = Counter(number for number, _ in pairs), Counter(token for _, token in pairs)
    by_number: dict[int, set[int]] = {}
    by_token: dict[int, set[int]] = {}
    for number, token in pairs:
        by_number.setdefault(number, set()).add(token)
        by_token.setdefault(token, set()).add(number)
    return [
        _Anchor(number, min(tokens), max(tokens) + 1)
        for number, tokens in by_number.items()
        if paired[0][number] == units[0][number]
        and all(by_token[one] == {number} and paired[1][one] == units[1][one] for one in tokens)
        and max(tokens) - min(tokens) + 1 == len(tokens)
    ]


def _pieces(numbers: Sequence[int], tokens: int, anchors: Sequence[_Anchor]) -> Iterator[tuple[int, int, int, int]]:
    """Yield pieces of the transcript and of the file that stand for each other: first, last, begin, end.

    Words that the file adds belong to the word before them, or else to the one after them.
    """
    at, token = 0, 0  # in *numbers* and in the file: what is before is yielded
    open_piece: tuple[int, int, int, int] | None = None
    for anchor in [*anchors, None]:
        stop = bisect_left(numbers, anchor.number) if anchor else len(numbers)
        until = anchor.begin if anchor else tokens
        if stop > at:  # words without an anchor
            if open_piece:
                yield open_piece
            open_piece = numbers[at], numbers[stop - 1], token, until
        elif until > token and open_piece:
            open_piece = (*open_piece[:3], until)
        if anchor:
            if open_piece:
                yield open_piece
            begin = anchor.begin if open_piece or until == token else token
            open_piece = anchor.number, anchor.number, begin, anchor.end
            at, token = stop + 1, anchor.end
    if open_piece:
        yield open_piece


def _speakers(state: Correcting, anchors: Sequence[_Anchor], tokens: Sequence[_Token]) -> list[Request]:
    """Return which runs of words the file gives to other speakers."""
    said = [
        (anchor.number, state.label_of(speaker))
        for anchor in anchors
        if (speaker := tokens[anchor.begin].speaker) is not None
    ]
    requests: list[Request] = []
    for speaker, run in groupby(said, key=lambda one: one[1]):
        wrong = [number for number, _ in run if state.label_of(state.speaker_at(number) or "") != speaker]
        if wrong:
            requests.append(SpeakerRequest(first=wrong[0], last=wrong[-1], speaker=speaker))
    return requests


def _units(text: str, at: int) -> Iterator[_Unit]:
    if is_unspaced(text):
        yield from (_Unit(sign, at) for sign in text)
    else:
        yield _Unit(comparable(text) or text, at)
