"""Writes what a live session decides into its timeline, and finds where a session goes on whose server died.

Readers get entries after they are stored. Partials are not stored: readers get the newest one, which the next one
replaces. After the death of a server, words that were committed stay as they are. Each separate channel goes on after
its own last word, and the audio is needed again from the earliest of these positions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, assert_never

from msgspec.json import encode as json_bytes

from pipeline.attribution import LANGUAGE_DOUBTFUL, SpeakerRun, certainty, doubtful_languages
from pipeline.audio import WINDOW, position, seconds
from pipeline.events import (
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    TimedEvent,
    TurnEnded,
    Warned,
    WordsCommitted,
)
from pipeline.recognition.stream_options import StreamStart
from pipeline.speakers.live import LiveSpeakers
from pipeline.timeline import (
    DecidedUpTo,
    Entry,
    FinalizedUpTo,
    LanguageFound,
    Notice,
    SpeakersRevised,
    SpeechEnd,
    SpeechStart,
    StoredRun,
    StoredWord,
    TurnEnd,
    Words,
    end_of,
)
from pipeline.transcription import ChannelState, Continuation, Transcription
from pipeline.translation.translator import needed_from
from pipeline.words import Segment, Word, join_words, speaker_members
from server.jobs.leases import HeldLease
from server.live.parts import SessionParts
from server.model.orders import Order
from server.translation.translations import Translators

QUIET = position(5)
"""The shortest silence on a channel that is stored, together with a segment, so that a restart can skip it."""

LONG_QUIET = position(30)
"""The shortest silence that is stored by itself, so that a writer need not keep its audio."""


@dataclass(slots=True)
class _Batch:
    """What happened at one moment: entries for the timeline, and what is not stored."""

    entries: list[Entry] = field(default_factory=list)
    shown: dict[int | None, bytes | None] = field(default_factory=dict)  # by channel, its newest partial; None: no more
    partials: int = 0  # the number of partials, including those that a later one replaced
    lags_s: list[float] = field(default_factory=list)  # of the words
    finalized: int | None = None  # the position up to which a writer's finalize decided everything


class Reporter:
    """Reports what one session decides. Once the lease is lost, its methods write nothing and raise LeaseLost."""

    def __init__(
        self,
        held: HeldLease,
        past: Transcription,
        parts: SessionParts,
        speakers: LiveSpeakers | None = None,
    ) -> None:
        """Go on at the end of *past*.

        *speakers* labels words by voice. If it is None, each separate channel is one speaker.
        """
        self._held = held
        self._order = held.job.order
        assert self._order.live is not None
        self._interim = self._order.live.interim_results
        self._place = place = past.place  # all else of the past is forgotten: a session may last for hours
        self._words, self._segments = place.words, place.segments  # the numbers of the next ones
        self._ids: dict[int | None, tuple[int, int]] = {}  # by channel: its newest segment's own number, and its id
        self._speakers = speakers
        self._certainty: dict[str, tuple[int, float]] = {}  # of each language
        self._warned_of_language = False
        self._partials = parts.partials
        self._metrics = parts.metrics
        self.warnings: dict[str, Mapping[str, str]] = {}
        for code, message in known_notices(past).items():
            self.warn(code, message)
        self.finalized_s = seconds(self.resume_position)  # up to where a writer's finalize decided everything
        self._finalizing = asyncio.Lock()  # held while a finalize is being stored
        self._writing = asyncio.Lock()

    @property
    def resume_position(self) -> int:
        """The position from which a restart needs the audio again."""
        return resumes_at(self._place, self._order)

    @property
    def reached(self) -> int:
        """The end of everything that is stored."""
        return max(self._place.channel(channel).settled for channel in self._order.live_channels)

    async def has_finalized(self, at_s: float) -> bool:
        """Return whether *finalized_s* has reached *at_s*, after the write in progress, if any.

        Readers may see the event a moment before its write is confirmed.
        """
        async with self._finalizing:
            return self.finalized_s >= at_s

    async def write(
        self, happened: Sequence[TimedEvent], *, received: int, decided: Mapping[int | None, int] = MappingProxyType({})
    ) -> Sequence[Entry]:
        """Store what happened, then show it to readers. Returns what was stored.

        *received*: the end of the audio so far.
        *decided*: by channel, the position before which everything is decided.
        """
        async with self._writing:
            batch = self._batch(happened, received)
            async with nullcontext() if batch.finalized is None else self._finalizing:
                if batch.entries:
                    await self._append(batch.entries)
                if batch.finalized is not None:
                    self.finalized_s = seconds(batch.finalized)
            self._show(batch)
            if any(isinstance(one.event, SegmentClosed) for one in happened):
                await self._store_silence(decided, received, least=QUIET)
        return batch.entries

    async def store_long_silence(self, decided: Callable[[], Mapping[int | None, int]], *, received: int) -> None:
        """Store the silence of each channel that has lasted for LONG_QUIET. *decided* returns what write() takes."""
        if not self._writing.locked():  # else what is decided may not be stored yet
            async with self._writing:
                await self._store_silence(decided(), received, least=LONG_QUIET)

    async def translate(self, entry: Entry) -> None:
        """Report a translation of words that readers have, or that there is none."""
        await self._report_alone(entry)

    async def revise(self, runs: Sequence[SpeakerRun]) -> None:
        """Report the new speakers of words that readers already have."""
        await self._report_alone(SpeakersRevised(tuple(StoredRun(run.first, run.last, run.speaker) for run in runs)))

    async def report(self, note: str) -> None:
        """Report a warning, "code: message", that is about no words."""
        code, _, message = note.partition(": ")
        self.warn(code, message)
        await self._report_alone(Notice(code, message))

    def warn(self, code: str, message: str) -> None:
        """Add a warning to the job's record. The first message of each code is kept."""
        self.warnings.setdefault(code, {"code": code, "message": message})

    def conclude(self, notes: Sequence[str]) -> None:
        """Put what is known at the end, "code: message", in place of earlier warnings of the same codes."""
        known: dict[str, list[str]] = {}
        for code, _, message in (note.partition(": ") for note in notes):
            known.setdefault(code, []).append(message)
        for code, messages in known.items():
            self.warnings[code] = {"code": code, "message": " ".join(messages)}

    def close(self) -> None:
        """Withdraw the last partials."""
        for channel in self._order.live_channels:
            self._partials.clear(self._held.job.id, channel=channel)

    # --- the timeline ------------------------------------------------------------------------------------------------

    async def _append(self, entries: Sequence[Entry]) -> None:
        await self._held.append(entries)
        for entry in entries:
            self._place.add(entry)

    async def _report_alone(self, entry: Entry) -> None:
        async with self._writing:
            await self._append([entry])
            self._partials.move(self._held.job.id, after=self._held.last_seq)

    async def _store_silence(self, decided: Mapping[int | None, int], received: int, *, least: int) -> None:
        """Store that channels without open words have been silent, so that a restart skips the silence."""
        speaking = {segment.channel for segment in self._place.open.values()}
        silent = [
            DecidedUpTo(end, channel)
            for channel, reached in decided.items()
            if (end := min(reached, received)) >= self._place.channel(channel).settled + least
            and channel not in speaking
        ]
        if silent:
            await self._append(silent)

    def _show(self, batch: _Batch) -> None:
        """Show the newest partials after the last event, and withdraw those that words have replaced."""
        job_id, after = self._held.job.id, self._held.last_seq
        self._metrics.live_partials.inc(batch.partials)
        self._metrics.live_words.inc(len(batch.lags_s))
        for lag_s in batch.lags_s:
            self._metrics.word_lag.observe(lag_s)
        for channel, partial in batch.shown.items():
            if partial is None:
                self._partials.clear(job_id, channel=channel)
        self._partials.move(job_id, after=after)
        for channel, partial in batch.shown.items():
            if partial is not None and self._interim:
                self._partials.show(job_id, partial, after=after, channel=channel)

    # --- from events to entries --------------------------------------------------------------------------------------

    def _batch(self, happened: Iterable[TimedEvent], received: int) -> _Batch:
        batch = _Batch()
        for one in happened:
            self._add(batch, one, received)
        return batch

    def _add(self, batch: _Batch, one: TimedEvent, received: int) -> None:
        channel = one.channel
        match one.event:
            case WordsCommitted():
                batch.shown[channel] = None
                batch.lags_s += one.lags_s
                batch.entries.append(self._committed(one, one.event, received))
            case SegmentClosed(number, segment, forced):
                batch.shown[channel] = None
                ended = replace(segment, channel=channel)
                batch.entries += self._closed(self._id(channel, number), ended, forced=forced)
            case Partial(words, segment):
                batch.partials += 1
                batch.shown[channel] = json_bytes(self._partial(words, self._id(channel, segment), channel))
            case SpeechStarted(at):
                batch.entries.append(SpeechStart(at, channel))
            case SpeechEnded(at):
                batch.entries.append(SpeechEnd(at, channel))
            case TurnEnded(at, probability):
                batch.entries.append(TurnEnd(at, probability, channel))
            case Finalized(at):
                batch.entries.append(FinalizedUpTo(at, channel))
                batch.finalized = at if channel is None else batch.finalized
            case LanguageDetected(language, probability):
                batch.entries.append(LanguageFound(language, probability, channel))
            case Warned(code, message):
                self.warn(code, message)
                batch.entries.append(Notice(code, message, channel))
            case _:
                assert_never(one.event)

    def _committed(self, one: TimedEvent, event: WordsCommitted, received: int) -> Words:
        first, channel, last = self._words, one.channel, event.words[-1]
        self._words += len(event.words)
        said = [
            StoredWord.of(
                word,
                lag_ms=round(lag_s * 1000),
                speaker=None if self._speakers is None else self._speakers.label(word, channel) or "",
            )
            for word, lag_s in zip(event.words, one.lags_s, strict=True)
        ]
        return Words(
            first,
            self._id(channel, event.segment),
            tuple(said),
            channel,
            round(one.at_s * 1000),
            received if last.end > received else None,
        )

    def _closed(self, number: int, segment: Segment, *, forced: bool) -> list[Entry]:
        """The end of a segment, and once a warning, when much speech may be in another language."""
        speaker = None
        if self._speakers is not None:
            labels = self._speakers.last_labels(len(segment.words), segment.channel)
            speaker = labels.most_common(1)[0][0] if labels else ""
        made: list[Entry] = [end_of(number, segment, forced=forced, speaker=speaker)]
        if not self._warned_of_language:
            self._certainty = certainty([segment], self._certainty)
            for note in doubtful_languages(self._certainty)[:1]:
                code, _, message = note.partition(": ")
                made.append(Notice(code, message))
                self._warned_of_language = True
        return made

    def _partial(self, words: Sequence[Any], number: int, channel: int | None) -> dict[str, Any]:
        start, end = (seconds(words[0].start), seconds(words[-1].end)) if words else (None, None)
        on = {} if channel is None else {"channel": channel}
        members = on if self._speakers is not None else speaker_members(channel)
        return {"segment": number, "text": join_words(words), "start": start, "end": end, **members}

    def _id(self, channel: int | None, number: int) -> int:
        """The job's number for the channel's segment *number*. Each new segment gets the next one."""
        if self._ids.get(channel, (None, 0))[0] != number:
            self._ids[channel] = number, self._segments
            self._segments += 1
        return self._ids[channel][1]


def known_notices(past: Transcription) -> Mapping[str, str]:
    """The warnings that readers have and the record gets. It says at the end how much of a language is in doubt."""
    return {code: message for code, message in past.notices.items() if code != LANGUAGE_DOUBTFUL}


# --- where a session goes on -------------------------------------------------------------------------------------

LEAD = position(0.3)
"""The least audio before the end of the last word that is recognised again. The end of a word is known only to 0.1 or
0.2 s, and a new word without its first sound would be recognised as another word."""

REPEATED = 2
"""How many of the last words are recognised again, whole. A model would take the rest of a word for the next word."""

LONGEST_REPEATED = position(2)  # words that begin earlier before the end of the last word are not recognised again
MARGIN = position(0.1)  # before the first word that is recognised again


def starts(place: Continuation, order: Order) -> Mapping[int | None, StreamStart]:
    """Where the recognition of each channel goes on, and after which words."""
    return {channel: _start(place.channel(channel), order.language) for channel in order.live_channels}


def resumes_at(place: Continuation, order: Order) -> int:
    """The position from which the audio is needed again: that of the first of the channels."""
    return min(resume_position(place.channel(channel)) for channel in order.live_channels)


def audio_resumes_at(past: Transcription, order: Order, translation: Translators | None) -> int:
    """The position from which a session that died needs its audio again."""
    settled = resumes_at(past.place, order)
    if translation is None or not translation.listens or not order.translate_to:
        return settled
    begins = [target.begins for target in translation.targets(order, tenant="", past=past)]
    return needed_from(settled, min((one for one in begins if one is not None), default=None))


def redacted_spans(place: Continuation) -> list[tuple[int, int]]:
    """Where the words that are recognised again are redacted: starts and ends."""
    last = [word for state in place.channels.values() for word in state.last_words[-REPEATED:]]
    return [(word.start, word.end) for word in last if word.redacted]


def resume_position(state: ChannelState) -> int:
    """The position at which the audio of a channel must go on.

    It is rounded up to whole windows, because those of all channels have the same borders. Redacted words are not
    recognised again on purpose.
    """
    settled = begin = state.settled
    first = settled - LEAD
    for word in reversed(state.last_words[-REPEATED:]):
        if word.redacted and begin < settled:
            first = max(first, min(word.end, begin))
        if word.redacted or word.start < settled - LONGEST_REPEATED:
            break
        begin = word.start
        first = min(first, begin - MARGIN)
    return max(0, min(-(-first // WINDOW), settled // WINDOW) * WINDOW)


def _start(state: ChannelState, language: str | None) -> StreamStart:
    at = resume_position(state)
    return StreamStart(
        at=at,
        settled=state.settled,
        said=tuple(_words_as_heard(state.last_words[-REPEATED:], at)),
        written=tuple(state.last_words),
        language=state.language or language,
        open_turn=state.open_turn,
    )


def _words_as_heard(words: Sequence[Word], after: int) -> list[Word]:
    """The words that end after that position, as they were heard: "cooper netties" is two."""
    parts: list[Word] = []
    for word in words:
        texts, length = (word.heard or word.text).split(), word.end - word.start
        ends = [word.start + length * count // len(texts) for count in range(len(texts) + 1)]
        parts += [
            replace(word, text=text, start=at, end=end) for text, (at, end) in zip(texts, pairwise(ends), strict=True)
        ]
    return [part for part in parts if part.end > after]
