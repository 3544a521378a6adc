"""Finds from a job's chunks and log where a live session continues after its server died. Pure.

Closed segments are stored in chunks. Words that were committed after the last closed segment are only in the log. They
become a segment of their own, because a committed word neither changes nor disappears. Each separate channel continues
after its own last word, and the stream continues at the earliest of these positions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import orjson

from pipeline.audio import WINDOW, position
from pipeline.documents.stored import unpack_chunk
from pipeline.recognition.stream_options import StreamStart
from pipeline.speakers.live import LabelledWord
from pipeline.text.redaction import NEAR
from pipeline.words import Chunk, Segment, Word
from server.live.event_rendering import TURN_ENDED
from server.model.events import Event

LEAD = position(0.3)
"""The least audio before the end of the last word that is recognised again. The end of a word is known only to 0.1 or
0.2 s, and a new word without its first sound would be recognised as another word."""

REPEATED = 2
"""How many of the last words are recognised again, whole. A model would take the rest of a word for the next word."""

LONGEST_REPEATED = position(2)  # words that begin earlier before the end of the last word are not recognised again
MARGIN = position(0.1)  # before the first word that is recognised again

MIN_PROBABILITY = 1e-3  # lower bound for a word in the mean probability of a segment that was never closed


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """The words, at least one, of a segment that was not closed."""

    id: int
    words: tuple[Word, ...]
    channel: int | None = None
    labels: tuple[str | None, ...] = ()  # the speaker of each word that readers know

    @property
    def closed(self) -> Segment:
        """The words as a segment."""
        logs = [math.log(max(word.probability, MIN_PROBABILITY)) for word in self.words]
        return Segment(self.words, avg_logprob=sum(logs) / len(logs), no_speech_prob=0.0, channel=self.channel)


@dataclass(frozen=True, slots=True)
class SessionPast:
    """What was recognised of a live job so far. The channel None stands for all channels mixed."""

    chunks: tuple[Chunk, ...] = ()
    open: tuple[OpenSegment, ...] = ()  # at most one of each channel
    channels: tuple[int | None, ...] = (None,)
    numbered: int = 0  # the number of segments that have an id
    open_turns: Mapping[int | None, int] = field(default_factory=dict)
    """By channel, the end of the last word of a turn without a turn.ended event. See api.md."""
    labelled: tuple[LabelledWord, ...] = ()  # every word with its speaker, if speakers are labelled by voice

    @property
    def begun(self) -> bool:
        """Whether anything was stored."""
        return bool(self.chunks or self.open)

    @property
    def has_final_speakers(self) -> bool:
        """Whether readers have the final speaker of every word, so that no word may follow."""
        return bool(self.chunks) and self.chunks[-1].turns is not None

    def settled_position(self, channel: int | None = None) -> int:
        """The position up to which everything on a channel is decided: the end of its last word or chunk."""
        return next((segment.words[-1].end for segment in self.open if segment.channel == channel), self.end(channel))

    def end(self, channel: int | None = None) -> int:
        """The end of the last chunk of a channel."""
        last = self._last(channel)
        return 0 if last is None else last.end

    def next_chunk(self, channel: int | None, end: int, segments: tuple[Segment, ...] = ()) -> Chunk:
        """A chunk that follows the channel's last one, in the same language, and lasts until *end*."""
        start, (language, probability) = self.end(channel), self.language(channel)
        return Chunk(
            index=len(self.chunks),
            jobs_done=0,
            start=start,
            end=max(start, end),
            segments=segments,
            language=language,
            language_probability=probability,
            channel=channel,
        )

    @property
    def duration(self) -> int:
        """The latest end of all chunks."""
        return max((chunk.end for chunk in self.chunks), default=0)

    @property
    def starts(self) -> Mapping[int | None, StreamStart]:
        """Where the recognition of each channel continues, and after which words."""
        return {channel: self._start(channel) for channel in self.channels}

    def _start(self, channel: int | None) -> StreamStart:
        return StreamStart(
            at=self._resume_position(channel),
            settled=self.settled_position(channel),
            said=tuple(self._repeated_words(channel)),
            written=tuple(self.last_words(channel, NEAR)),
            language=self.language(channel)[0],
            open_turn=self.open_turns.get(channel),
        )

    @property
    def resumes_at(self) -> int:
        """The position from which the audio is needed again: that of the first of the channels."""
        return min(self._resume_position(channel) for channel in self.channels)

    @property
    def words(self) -> int:
        """The number of words so far."""
        return sum(len(segment.words) for segment in self._segments())

    @property
    def segments(self) -> int:
        """The number of segments so far."""
        return max(self.numbered, len(self._segments()))

    def language(self, channel: int | None = None) -> tuple[str | None, float | None]:
        """The language of a channel and how sure that is."""
        last = self._last(channel)
        return (None, None) if last is None else (last.language, last.language_probability)

    def _repeated_words(self, channel: int | None) -> list[Word]:
        """The words of a channel that may be recognised again, as they were heard: "cooper netties" is two."""
        again = self._resume_position(channel)
        parts: list[Word] = []
        for word in self.last_words(channel, REPEATED):
            texts, length = (word.heard or word.text).split(), word.end - word.start
            ends = [word.start + length * count // len(texts) for count in range(len(texts) + 1)]
            parts += [
                replace(word, text=text, start=at, end=end)
                for text, (at, end) in zip(texts, pairwise(ends), strict=True)
            ]
        return [part for part in parts if part.end > again]

    def last_words(self, channel: int | None, count: int) -> list[Word]:
        """The last *count* words of a channel, or fewer if there are fewer."""
        words = [word for segment in self.open if segment.channel == channel for word in segment.words]
        for chunk in reversed(self.chunks):
            if len(words) >= count:
                break
            if chunk.channel == channel:
                words = [word for segment in chunk.segments for word in segment.words] + words
        return words[-count:]

    @property
    def redacted_spans(self) -> list[tuple[int, int]]:
        """Where the last words are redacted: starts and ends."""
        last = [word for channel in self.channels for word in self.last_words(channel, REPEATED)]
        return [(word.start, word.end) for word in last if word.redacted]

    def _resume_position(self, channel: int | None) -> int:
        return resume_position(self.settled_position(channel), self.last_words(channel, REPEATED))

    def _last(self, channel: int | None) -> Chunk | None:
        return next((chunk for chunk in reversed(self.chunks) if chunk.channel == channel), None)

    def _segments(self) -> Sequence[Segment | OpenSegment]:
        return [*(segment for chunk in self.chunks for segment in chunk.segments), *self.open]


def resume_position(settled: int, words: Sequence[Word]) -> int:
    """The position at which the audio must continue if *words* are the last before *settled*.

    It is rounded up to whole windows, because those of all channels have the same borders. Redacted words are not
    recognised again on purpose.
    """
    first, begin = settled - LEAD, settled
    for word in reversed(words[-REPEATED:]):
        if word.redacted and begin < settled:
            first = max(first, min(word.end, begin))
        if word.redacted or word.start < settled - LONGEST_REPEATED:
            break
        begin = word.start
        first = min(first, begin - MARGIN)
    first -= first % position(0.001)  # as times in the log are
    return max(0, min(-(-first // WINDOW), settled // WINDOW) * WINDOW)


def read_past(bodies: Sequence[bytes], log: Iterable[Event], channels: tuple[int | None, ...] = (None,)) -> SessionPast:
    """Read the past of a session from the bodies of its chunks and its log."""
    closed = SessionPast(tuple(unpack_chunk(body) for body in bodies), channels=channels)
    events = list(log)
    said = [orjson.loads(event.body) for event in events if event.type == "word"]
    numbered = max((body["segment"] + 1 for body in said), default=0)
    labelled = _with_speakers(said, events)
    still_open = (_open_segment(closed, said, channel, labelled) for channel in channels)
    open_words = tuple(one for one in still_open if one is not None)
    return SessionPast(closed.chunks, open_words, channels, numbered, _open_turns(events), labelled)


def _open_turns(log: Iterable[Event]) -> Mapping[int | None, int]:
    turns: dict[int | None, int] = {}
    for event in log:
        if event.type == "word":
            said = orjson.loads(event.body)
            turns[said.get("channel")] = position(said["end"])
        elif event.type == TURN_ENDED:
            turns.pop(orjson.loads(event.body).get("channel"), None)
    return turns


def labelled_words(log: Iterable[Event]) -> tuple[LabelledWord, ...]:
    """The words of the log with their newest speakers."""
    events = list(log)
    return _with_speakers([orjson.loads(event.body) for event in events if event.type == "word"], events)


def _with_speakers(said: Sequence[Mapping[str, Any]], log: Iterable[Event]) -> tuple[LabelledWord, ...]:
    labelled = [LabelledWord(_word(one, 0), one.get("channel"), one.get("speaker")) for one in said]
    for event in log:
        if event.type == "speakers.revised":
            for run in orjson.loads(event.body)["words"]:
                for one in labelled[run["first"] : run["last"] + 1]:
                    one.label = run["speaker"]
    return tuple(labelled)


def _open_segment(
    closed: SessionPast, said: Sequence[Mapping[str, Any]], channel: int | None, labelled: Sequence[LabelledWord]
) -> OpenSegment | None:
    """The words of the log that come after those in the chunks of this channel."""
    chunks = [chunk for chunk in closed.chunks if chunk.channel == channel]
    count = sum(len(segment.words) for chunk in chunks for segment in chunk.segments)
    bodies = [body for body in said if body.get("channel") == channel][count:]
    if not bodies:
        return None
    words = tuple(_word(body, closed.end(channel)) for body in bodies)
    labels = [one.label for one in labelled if one.channel == channel][count:]
    return OpenSegment(bodies[0]["segment"], words, channel, tuple(labels))


def _word(body: Mapping[str, Any], least: int) -> Word:
    """A word from the log. Its times, rounded to milliseconds there, are raised to at least *least*."""
    start, end = (max(position(body[name]), least) for name in ("start", "end"))
    spaced, heard, redacted = body.get("spaced", True), body.get("heard"), body.get("redacted", False)
    return Word(body["word"], start, end, body["probability"], spaced, heard, redacted, body.get("language"))
