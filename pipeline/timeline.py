"""The timeline of a job: the one record of what was said, as entries that are only ever appended.

    stored = [pack(entry) for entry in entries]      # each is a row of the job's timeline
    past = Transcription.of(map(unpack, stored))     # pipeline/transcription.py

A file and a live session write the same entries, and nothing else holds words. What readers get is a rendering of
entries (server/model/events.py); where a killed job goes on, and its transcript, are their fold
(pipeline/transcription.py). Positions are samples since the recording began, and floats keep their last bit.

Words are numbered through the job from 0, and `Words.first` says where a run begins, so that later entries name words
by their numbers. A new kind of entry is a class with a tag of its own and a member of Entry; assert_never() then finds
where it has to be rendered and folded.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Annotated, Any, TypeAlias

from msgspec import DecodeError, Meta, Struct, ValidationError
from msgspec.json import Decoder, encode
from msgspec.structs import astuple

from pipeline.errors import PipelineError
from pipeline.words import Chunk, Segment, SpeakerTurn, Word

Position: TypeAlias = Annotated[int, Meta(ge=0)]
"""Samples since the recording began."""


class DamagedEntry(PipelineError):
    """These bytes are no entry of a timeline."""


class StoredWord(Struct, frozen=True, array_like=True):
    """A Word as readers got it. Fields that have their default are left out at the end of the stored form."""

    text: str
    start: Position
    end: Position
    probability: float
    lag_ms: int | None = None  # from the arrival of its end until it was reported; None in files
    speaker: str | None = None  # its label by voice that readers got; "": not known yet; None: that of its channel
    language: str | None = None
    spaced: bool = True
    heard: str | None = None
    redacted: bool = False
    corrected: bool = False

    @classmethod
    def of(cls, word: Word, *, lag_ms: int | None = None, speaker: str | None = None) -> "StoredWord":
        return cls(
            word.text,
            word.start,
            word.end,
            word.probability,
            lag_ms,
            speaker,
            word.language,
            word.spaced,
            word.heard,
            word.redacted,
            word.corrected,
        )

    @property
    def word(self) -> Word:
        return Word(
            self.text,
            self.start,
            self.end,
            self.probability,
            self.spaced,
            self.heard,
            self.redacted,
            self.language,
            self.corrected,
        )


class Words(Struct, frozen=True, array_like=True, tag="w"):
    """Words of one segment that never change. At least one."""

    first: int  # the number of the first of them among all words of the job
    segment: int  # the number of their segment
    words: Annotated[tuple[StoredWord, ...], Meta(min_length=1)]
    channel: int | None = None
    emitted_at: int | None = None  # when a live session reported them, in ms since 1970 UTC
    audio_end: int | None = None  # where the audio ended, if the last word is timed beyond that
    shown: bool = True  # False: the request asks for no words in its events


class SegmentEnd(Struct, frozen=True, array_like=True, tag="s"):
    """All words of the segment are there. What readers got of the segment, apart from its scores, comes from them."""

    segment: int
    start: Position
    end: Position
    text: str
    avg_logprob: float
    no_speech_prob: float
    channel: int | None = None
    language: str | None = None
    language_probability: float | None = None
    speaker: str | None = None  # by voice, of most of its words when it ended; "" and None as in StoredWord
    forced: bool | None = None  # it was too long, and the speaker did not pause; None in files


class LanguageFound(Struct, frozen=True, array_like=True, tag="l"):
    """The language of a live channel is known, or has changed."""

    language: str
    probability: float
    channel: int | None = None


class DecidedUpTo(Struct, frozen=True, array_like=True, tag="d"):
    """Everything on the channel before the position is decided: a silence, or a mark up to which a file is done."""

    position: Position
    channel: int | None = None
    jobs_done: int = 0  # decode jobs of the file (and channel) that are finished
    language: str | None = None  # of the file so far, None until there was speech
    language_probability: float | None = None
    notes: tuple[str, ...] = ()  # as in Chunk


class StoredTurn(Struct, frozen=True, array_like=True):
    """A SpeakerTurn."""

    speaker: str
    start: Position
    end: Position
    channel: int | None = None


class SpeakerTurns(Struct, frozen=True, array_like=True, tag="t"):
    """The turns of all speakers, in order. No word follows."""

    turns: tuple[StoredTurn, ...]


class StoredRun(Struct, frozen=True, array_like=True):
    """The speaker of the words *first* to *last*, both included."""

    first: int
    last: int
    speaker: str


class SpeakersRevised(Struct, frozen=True, array_like=True, tag="r"):
    """Words that readers have get other speakers. *final*: these are the last ones, of all words."""

    runs: tuple[StoredRun, ...]
    final: bool = False


class Translation(Struct, frozen=True, array_like=True, tag="o"):
    """The words *first* to *last* of a channel in another language. A later one of the same words replaces it."""

    target: str  # a code of languages.py
    first: int
    last: int
    start: Position
    end: Position
    text: str  # empty: they get no translation
    channel: int | None = None
    lag_ms: int | None = None  # from the arrival of its end until it was reported; None in files


class TurnEnd(Struct, frozen=True, array_like=True, tag="e"):
    """A turn, whose last word ends at *at*, is over. See pipeline.events.TurnEnded."""

    at: Position
    probability: float | None = None
    channel: int | None = None


class FinalizedUpTo(Struct, frozen=True, array_like=True, tag="f"):
    """The answer to a writer's finalize. See pipeline.events.Finalized."""

    at: Position
    channel: int | None = None


class SpeechStart(Struct, frozen=True, array_like=True, tag="b"):
    at: Position
    channel: int | None = None


class SpeechEnd(Struct, frozen=True, array_like=True, tag="p"):
    at: Position
    channel: int | None = None


class Notice(Struct, frozen=True, array_like=True, tag="n"):
    """A warning that readers got. *code* is a stable name."""

    code: str
    message: str
    channel: int | None = None


class StateChange(Struct, frozen=True, array_like=True, tag="j"):
    """The job was queued or claimed."""

    state: str
    progress: float = 0.0


class Progress(Struct, frozen=True, array_like=True, tag="g"):
    progress: float


class WordsReplaced(Struct, frozen=True, array_like=True, tag="t"):
    """In place of the words *first* to *last*, both included, stand these, with their times."""

    first: int
    last: int
    words: tuple[StoredWord, ...]


class WordsGiven(Struct, frozen=True, array_like=True, tag="g"):
    """The words *first* to *last* were said by this speaker; "": as recognised."""

    first: int
    last: int
    speaker: str


class SpeakerName(Struct, frozen=True, array_like=True, tag="n"):
    """Documents call the speaker by this name; "": by the label."""

    speaker: str
    name: str


class SpeakersJoined(Struct, frozen=True, array_like=True, tag="j"):
    """The speaker is the same person as *into*; as itself: no longer."""

    speaker: str
    into: str


Change: TypeAlias = WordsReplaced | WordsGiven | SpeakerName | SpeakersJoined


class Correction(Struct, frozen=True, array_like=True, tag="c"):
    """What a person changed. *revision* counts from 1; words are named by the numbers that they have at revision 0."""

    revision: int
    by: str  # the name of a key, or of a link
    changes: tuple[Change, ...]
    reverts: int | None = None  # the revision that this one takes back


class JobEnd(Struct, frozen=True, array_like=True, tag="x"):
    """The job ended in this state. Of the machine's work nothing follows."""

    state: str


Entry: TypeAlias = (
    Words
    | SegmentEnd
    | LanguageFound
    | DecidedUpTo
    | SpeakerTurns
    | SpeakersRevised
    | Translation
    | TurnEnd
    | FinalizedUpTo
    | SpeechStart
    | SpeechEnd
    | Notice
    | StateChange
    | Progress
    | Correction
    | JobEnd
)

_decode = Decoder(Entry).decode


def tag_of(kind: type[Entry]) -> str:
    """Return the tag with which the stored form of this kind of entry begins."""
    return str(kind.__struct_config__.tag)


def pack(entry: Entry) -> bytes:
    """Return the stored form: a JSON array that begins with the tag. unpack() makes an equal entry of it.

    Raises ValueError if a number is not finite, because JSON cannot hold it.
    """
    return encode(_stored(entry))


def unpack(data: bytes) -> Entry:
    """Return the entry that pack() made *data* of. Raises DamagedEntry for anything else."""
    try:
        entry: Entry = _decode(data)
    except (DecodeError, ValidationError, ValueError) as error:
        raise DamagedEntry(f"{len(data)} bytes are no entry of a timeline: {error}") from error
    return entry


def _stored(struct: Struct) -> list[Any]:
    tag = struct.__struct_config__.tag
    return _values(struct) if tag is None else [tag, *_values(struct)]


def _values(struct: Struct) -> list[Any]:
    """The fields in order, without the last ones that have their default."""
    values, defaults = list(astuple(struct)), struct.__struct_defaults__
    for default in reversed(defaults):
        if values[-1] != default:
            break
        values.pop()
    for place, value in enumerate(values):
        if type(value) is tuple:
            values[place] = [_stored(one) if isinstance(one, Struct) else one for one in value]
        elif type(value) is float and not isfinite(value):
            raise ValueError("a number that is not finite cannot be stored")
    return values


def end_of(number: int, segment: Segment, *, forced: bool | None = None, speaker: str | None = None) -> SegmentEnd:
    """Return the entry for the end of *segment*, whose words were stored before."""
    return SegmentEnd(
        number,
        segment.start,
        max(word.end for word in segment.words),
        segment.text,
        segment.avg_logprob,
        segment.no_speech_prob,
        segment.channel,
        segment.language,
        segment.language_probability,
        speaker,
        forced,
    )


def entries_of(chunk: Chunk, *, words: int, segments: int, shown: bool) -> list[Entry]:
    """Return the entries of a finished part of a file.

    *words* and *segments* are the numbers of its first word and segment; *shown*: readers get its words.
    """
    made: list[Entry] = []
    for number, segment in enumerate(chunk.segments, segments):
        said = tuple(map(StoredWord.of, segment.words))
        made.append(Words(words, number, said, segment.channel, shown=shown))
        made.append(end_of(number, segment))
        words += len(said)
    made.append(
        DecidedUpTo(
            chunk.end,
            chunk.channel,
            chunk.jobs_done,
            chunk.language,
            chunk.language_probability,
            chunk.notes,
        )
    )
    if chunk.turns is not None:
        made.append(turns_of(chunk.turns))
    return made


def turns_of(turns: Iterable[SpeakerTurn], *, until: int | None = None) -> SpeakerTurns:
    """Return the entry for the turns of all speakers, up to the end of the recording if that is known."""
    ends = ((turn, turn.end if until is None else min(turn.end, until)) for turn in turns)
    return SpeakerTurns(
        tuple(StoredTurn(turn.speaker, turn.start, end, turn.channel) for turn, end in ends if turn.start < end)
    )
