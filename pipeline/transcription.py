"""What a job's timeline says: where the job goes on, and everything that was recognised so far. Pure.

    past = Transcription.of(map(unpack, rows))
    assemble(past.chunks(), ...)                     # the transcript
    past.place.channel(None).settled                 # where a live session, or a file, goes on

Files, live sessions, sessions that another process resumes, and documents all read the timeline here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from pipeline.text.redaction import NEAR
from pipeline.timeline import (
    Correction,
    DamagedEntry,
    DecidedUpTo,
    Entry,
    FinalizedUpTo,
    JobEnd,
    LanguageFound,
    Notice,
    Progress,
    SegmentEnd,
    SpeakersRevised,
    SpeakerTurns,
    SpeechEnd,
    SpeechStart,
    StateChange,
    Translation,
    TurnEnd,
    Words,
    end_of,
)
from pipeline.words import Chunk, Segment, SpeakerTurn, Word

LAST_WORDS = NEAR
"""How many of a channel's last words are at hand to go on: as many as the text stage looks back."""

MIN_PROBABILITY = 1e-3  # lower bound for a word in the mean probability of a segment that was never closed


@dataclass(slots=True)
class OpenSegment:
    """A segment that has not ended, and its words so far."""

    number: int
    channel: int | None
    words: list[Word] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of its words

    def end(self, labels: Sequence[str | None] = ()) -> SegmentEnd:
        """Return the entry that ends it here, where its session died. *labels*: those of all words, by voice."""
        logs = [math.log(max(word.probability, MIN_PROBABILITY)) for word in self.words]
        segment = Segment(tuple(self.words), sum(logs) / len(logs), 0.0, self.channel)
        known = [label for number in self.numbers if labels and (label := labels[number])]
        speaker = max(known, key=known.count, default="") if labels else None
        return end_of(self.number, segment, forced=True, speaker=speaker)


@dataclass(slots=True)
class ChannelState:
    """What is known of one channel, or of all channels together. Its size does not grow with the recording."""

    settled: int = 0  # everything before is decided
    last_words: list[Word] = field(default_factory=list)  # LAST_WORDS of them
    language: str | None = None
    language_probability: float | None = None
    open_turn: int | None = None  # the end of the last word of a turn without TurnEnd
    jobs_done: int = 0  # of a file


@dataclass(slots=True)
class Continuation:
    """Where a job goes on after these entries. A running session keeps one: its size stays small."""

    channels: dict[int | None, ChannelState] = field(default_factory=dict)
    words: int = 0  # the number of the next word
    segments: int = 0  # the number of the next segment
    begun: bool = False  # whether anything was recognised or decided
    open: dict[int, OpenSegment] = field(default_factory=dict)  # by number

    def channel(self, channel: int | None) -> ChannelState:
        return self.channels.setdefault(channel, ChannelState())

    def add(self, entry: Entry) -> None:
        """Take the next entry."""
        match entry:
            case Words():
                self._add_words(entry)
            case SegmentEnd():
                self.open.pop(entry.segment, None)
            case DecidedUpTo():
                self.begun = True
                state = self.channel(entry.channel)
                state.settled = max(state.settled, entry.position)
                state.jobs_done = max(state.jobs_done, entry.jobs_done)
                if entry.language is not None:
                    state.language, state.language_probability = entry.language, entry.language_probability
            case LanguageFound():
                state = self.channel(entry.channel)
                state.language, state.language_probability = entry.language, entry.probability
            case TurnEnd():
                self.channel(entry.channel).open_turn = None
            case SpeakerTurns() | SpeakersRevised() | Translation() | FinalizedUpTo() | SpeechStart() | SpeechEnd():
                pass
            case Notice() | StateChange() | Progress() | Correction() | JobEnd():
                pass
            case _:
                assert_never(entry)

    def _add_words(self, entry: Words) -> None:
        self.begun = True
        state, said = self.channel(entry.channel), [stored.word for stored in entry.words]
        opened = self.open.setdefault(entry.segment, OpenSegment(entry.segment, entry.channel))
        opened.numbers += range(entry.first, entry.first + len(said))
        opened.words += said
        state.last_words = [*state.last_words, *said][-LAST_WORDS:]
        end = said[-1].end if entry.audio_end is None else min(entry.audio_end, said[-1].end)
        state.settled = max(state.settled, end)
        state.open_turn = said[-1].end
        self.words = entry.first + len(said)
        self.segments = max(self.segments, entry.segment + 1)


@dataclass(slots=True)
class Transcription:
    """Everything that entries say. Hours of speech take a moment: fold them on a thread."""

    place: Continuation = field(default_factory=Continuation)
    said: list[tuple[Word, int | None]] = field(default_factory=list)  # every word and its channel, by number
    labels: list[str | None] = field(default_factory=list)  # of each word, the newest speaker that readers know
    parts: list[Chunk] = field(default_factory=list)  # up to the last mark of each channel
    turns: tuple[SpeakerTurn, ...] | None = None  # of all speakers, once they are final
    translations: dict[str, dict[tuple[int | None, int], Translation]] = field(default_factory=dict)
    """The newest of each unit, by target, then by its channel and first word."""
    notices: dict[str, str] = field(default_factory=dict)  # the first message of each warning
    corrections: list[Correction] = field(default_factory=list)  # by people, in order
    _ended: dict[int | None, list[Segment]] = field(default_factory=dict)  # after that mark

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Transcription":
        """Fold the entries of a job, from its first on."""
        made = cls()
        for entry in entries:
            made.add(entry)
        return made

    def add(self, entry: Entry) -> None:  # noqa: C901  a case for each kind of entry that has something to keep
        """Take the next entry."""
        match entry:
            case Words():
                self.said += [(stored.word, entry.channel) for stored in entry.words]
                self.labels += [stored.speaker or None for stored in entry.words]
            case SegmentEnd():
                if entry.segment not in self.place.open:
                    raise DamagedEntry(f"segment {entry.segment} ends, which has no words")
                segment = Segment(
                    tuple(self.place.open[entry.segment].words),
                    entry.avg_logprob,
                    entry.no_speech_prob,
                    entry.channel,
                    language_probability=entry.language_probability,
                )
                self._ended.setdefault(entry.channel, []).append(segment)
            case SpeakerTurns():
                self.turns = tuple(
                    SpeakerTurn(turn.speaker, turn.start, turn.end, turn.channel) for turn in entry.turns
                )
            case SpeakersRevised():
                for run in entry.runs:
                    self.labels[run.first : run.last + 1] = [run.speaker] * (run.last + 1 - run.first)
            case Translation():
                self.translations.setdefault(entry.target, {})[entry.channel, entry.first] = entry
            case Correction():
                self.corrections.append(entry)
            case Notice():
                self.notices.setdefault(entry.code, entry.message)
            case _:
                pass  # the place knows the others
        self.place.add(entry)
        if isinstance(entry, DecidedUpTo):
            self.parts.append(self._part(entry.channel, entry.position, entry.notes))
            self._ended.pop(entry.channel, None)

    def chunks(
        self, *, duration: int = 0, channels: Iterable[int | None] = (), language: str | None = None
    ) -> list[Chunk]:
        """Return the parts, and what came after the last mark of each channel as one more.

        Each of *channels* is silent from its last word to *duration*. *language*: for channels on which none was
        found. The last chunk has the turns of all speakers, if they are known.
        """
        made = [*self.parts]
        for channel in dict.fromkeys([*self._ended, *channels]):
            part = self._part(channel, max(duration, self.place.channel(channel).settled), ())
            made.append(replace(part, index=len(made), language=part.language or language))
        if self.turns is not None and made:
            made[-1] = replace(made[-1], turns=self.turns)
        return made

    def _part(self, channel: int | None, end: int, notes: tuple[str, ...]) -> Chunk:
        """The part of a channel from its last mark to *end*."""
        state = self.place.channel(channel)
        start = next((part.end for part in reversed(self.parts) if part.channel == channel), 0)
        return Chunk(
            index=len(self.parts),
            jobs_done=state.jobs_done,
            start=start,
            end=max(start, end),
            segments=tuple(self._ended.get(channel, ())),
            language=state.language,
            language_probability=state.language_probability,
            notes=notes,
            channel=channel,
        )
