"""Turns a file into words, chunk by chunk.

Decoding and voice detection run on a thread, a few decode jobs ahead of the model. Those of a channel wait in the
scheduler together (DecodeQueue), so that it can fill its batches. Chunks come in order and depend on the audio alone:
after a crash, transcribe() is called again with the stored chunks and continues after them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.attribution import number_speakers, scripted_turns
from pipeline.audio import RATE, Samples, position
from pipeline.errors import SpeakersUnavailable
from pipeline.ingest.crosstalk import CrosstalkGate
from pipeline.ingest.gain import InputLevel
from pipeline.ingest.input_formats import AUTO, DecodeLimits, RawAudio, TrackChoice
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.notes import IDENTICAL_CHANNELS, QUIET_INPUT, identical_channel
from pipeline.ingest.speech import DecodeJob, EvenPacker, Packed, PackingOptions, SpeechPacker, packer_of
from pipeline.ingest.track_choice import ChosenAudio, chosen_track
from pipeline.ingest.vad import Vad
from pipeline.languages import ENGLISH
from pipeline.recognition.engine import (
    MIN_SPEECH_S,
    NO_HINTS,
    SCRIPTED,
    TRANSCRIBE,
    TRANSLATE,
    DecodeRequest,
    Engine,
    Hints,
    RecognitionResult,
    phrases,
)
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.scheduler import Urgency
from pipeline.speakers.diarizer import Diarizer, speaker_turns
from pipeline.speakers.known import learn_voices
from pipeline.speakers.options import NOT_INSTALLED, SpeakerOptions
from pipeline.speakers.windows import SpeakerModels
from pipeline.text.options import NO_CHANGES, USUAL_SETTINGS, TextOptions, TextSettings
from pipeline.text.redaction import NEAR
from pipeline.text.rewriting import SegmentRewriter
from pipeline.text.stage import TextStage
from pipeline.words import Chunk, Segment, without_language

T = TypeVar("T")

CHUNK = 15 * RATE  # a chunk ends with the first decode job that brings it to this length
JOB_ENDS = RATE  # a job is long enough when it has no more than this left

BATCHES_AHEAD = 2
"""Jobs for each call of the engine that one file may have waiting: one waits while the other is recognised."""

REMEMBERED = 5
"""Jobs whose language is a hint for a later one: a single job may be wrong."""

MAX_SPAN = position(300)
"""The most audio between the first and the last waiting item. Other channels of the file are decoded together with this
one, and their jobs fill the memory meanwhile."""


def packing_options(longest_job: int) -> PackingOptions:
    """Return how speech is cut into jobs: at the first pause in the last second of the longest possible job.

    Full jobs cost less for each second of audio, and give the model more context.
    """
    return PackingOptions(target=longest_job - JOB_ENDS, longest=longest_job)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options for one file."""

    tenant: str  # the account that the scheduler is fair to
    model: str | None = None  # the one for everything; None: the one of each language
    language: str | None = None  # None: found utterance by utterance
    languages: frozenset[str] = frozenset()  # those that may be found; empty: all that the models know
    task: str = TRANSCRIBE  # one of TASKS of engine.py
    hints: Hints = NO_HINTS  # what the user said about the speech
    longest_s: float | None = None  # of decoded audio; more raises AudioTooLong
    text: TextOptions = NO_CHANGES  # what is done with the words
    separate: bool = False  # recognise every channel by itself, because each has its own speakers
    raw: RawAudio | None = None  # what a file without a header holds
    track: TrackChoice = AUTO  # which audio track of a file with several; SEPARATE needs *separate*
    speakers: SpeakerOptions | None = None  # tell voices apart; with *separate* those of each channel


class Batch:
    """Transcribes files with the models of one environment."""

    def __init__(
        self,
        *,
        engine: Engine,
        models: ModelSet,
        vad: Vad | None,
        isolation: Isolation,
        threads: Executor,
        voices: SpeakerModels | None = None,
        text: TextSettings = USUAL_SETTINGS,
    ) -> None:
        """Make what transcribes files with *models*.

        *engine*: that of one of the *models*, whose batches count for all.
        *vad*: None: all of a file counts as speech.
        *threads*: at least as many as files at the same time.
        *voices*: for BatchOptions.speakers; a scripted engine needs none.
        """
        self._engine = engine
        self._models = models
        self._vad = vad
        self._isolation = isolation
        self._threads = threads
        self._voices = voices
        self._text = text

    @property
    def engine_name(self) -> str:
        return self._engine.name

    def model_of(self, language: str | None) -> str:
        """Return the name of the model for *language*."""
        return self._models.name_for(language)

    async def learn_voices(self, recordings: Mapping[str, bytes]) -> Mapping[str, NDArray[np.float32]]:
        """Return what known people sound like, by name, for SpeakerOptions. Raises UnusableReference."""
        models = self._voices
        return {} if models is None else await asyncio.to_thread(learn_voices, self._isolation, models, recordings)

    async def transcribe(
        self, path: Path, options: BatchOptions, *, done: Sequence[Chunk] = ()
    ) -> AsyncGenerator[Chunk]:
        """Yield the chunks after *done*, in order and at least one. The last ends with the audio and has notes.

        With separate channels each channel has such a sequence. With *speakers* each chunk is held until the next one
        exists, and the last chunk has the turns of all speakers. Close the generator to stop early. Raises
        PipelineError if the audio or the engine fails, SpeakersUnavailable if the weights for voices are missing.
        """
        if options.speakers is not None and self._voices is None and self._engine.name != SCRIPTED:
            raise SpeakersUnavailable(NOT_INSTALLED)
        async with AsyncExitStack() as stack:
            decoding = await stack.enter_async_context(on_thread(self._decode(path, options, done), self._threads))
            channels = await anext(decoding)
            made = {
                number: await stack.enter_async_context(aclosing(self._transcribe(channel, decoding, options, done)))
                for number, channel in channels.items()
            }
            chunks = _merge_channels(made, done) if options.separate else made[None]
            if options.speakers is not None:
                merged = await stack.enter_async_context(aclosing(chunks))
                chunks = self._add_turns(merged, options, done, channels)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk

    @asynccontextmanager
    async def audio(self, path: Path, options: BatchOptions) -> AsyncIterator[AsyncIterator[Samples]]:
        """Yield the audio that transcribe() gets, in order. The channels are side by side if they are separate."""
        async with on_thread(self._samples(path, options), self._threads) as samples:
            yield samples

    def _samples(self, path: Path, options: BatchOptions) -> Iterator[Samples]:
        with self._open(path, options) as track:
            yield from track.samples

    def _open(self, path: Path, options: BatchOptions) -> AbstractContextManager[ChosenAudio]:
        return chosen_track(
            self._isolation,
            path,
            DecodeLimits(longest_s=options.longest_s),
            self._vad,
            track=options.track,
            separate=options.separate,
            raw=options.raw,
            language=options.language,
        )

    async def _add_turns(
        self,
        chunks: AsyncGenerator[Chunk],
        options: BatchOptions,
        done: Sequence[Chunk],
        channels: "Mapping[int | None, _Channel]",
    ) -> AsyncGenerator[Chunk]:
        """Yield the chunks, the last one with the turns of all speakers."""
        segments = [segment for chunk in done for segment in chunk.segments]
        last: Chunk | None = None
        async for chunk in chunks:
            if last is not None:
                yield last
            segments += chunk.segments
            last = chunk
        assert last is not None
        assert options.speakers is not None
        if self._voices is None:
            turns = scripted_turns(segments)
        else:
            diarizers = {number: channel.diarizer for number, channel in channels.items() if channel.diarizer}
            turns = await asyncio.to_thread(speaker_turns, diarizers, options.speakers)
        yield replace(last, turns=number_speakers(turns, segments))

    async def _transcribe(
        self, channel: "_Channel", decoding: AsyncIterator[object], options: BatchOptions, done: Sequence[Chunk]
    ) -> AsyncGenerator[Chunk]:
        """Yield the chunks of one channel, or of all channels together."""
        done = [chunk for chunk in done if chunk.channel == channel.number]
        growing = _GrowingChunk(done, options, self._text)
        queue = DecodeQueue(
            LanguageRouter(self._models if options.model is None else self._models.only(options.model)),
            options,
            before=_spoken_in(done),
            max_jobs=BATCHES_AHEAD * self._engine.max_batch * self._engine.replicas,
        )
        try:
            async for item in channel.items(decoding):
                queue.add(item)
                while queue.full or queue.first_is_done:
                    growing.absorb(*await queue.first())
                    if growing.long_enough:
                        yield growing.chunk()
            while queue.waiting:
                growing.absorb(*await queue.first())
                if growing.long_enough:
                    yield growing.chunk()
        finally:
            await queue.close()
        yield growing.chunk(channel.notes)  # it may have no length, and is then there for the notes

    def _decode(
        self, path: Path, options: BatchOptions, done: Sequence[Chunk]
    ) -> "Iterator[Mapping[int | None, _Channel]]":
        """Decode the file, and yield its channels by number: at first empty, then whenever one has new items."""
        with self._open(path, options) as track:
            numbers = range(track.decoding.probe.channels) if options.separate else (None,)
            channels = {number: self._channel(number, options, done) for number in numbers}
            yield channels
            for samples in self._without_copies(track.samples, channels):
                each = np.ascontiguousarray(samples.T) if options.separate else (samples,)
                for channel, own in zip(channels.values(), each, strict=True):
                    channel.listen(own)
                if any(channel.waiting for channel in channels.values()):
                    yield channels
            for channel in channels.values():
                channel.finish(track.notes)
            yield channels

    def _without_copies(self, audio: Iterator[Samples], channels: "Mapping[int | None, _Channel]") -> Iterator[Samples]:
        """Yield the samples; of separate channels without what is a copy of another channel."""
        if self._vad is None or len(channels) == 1:
            yield from audio
            return
        gate = CrosstalkGate(len(channels))
        for samples in audio:
            if len(decided := gate.add(samples)):
                yield decided
        yield gate.flush()
        for copy, original in gate.copies.items():
            channels[copy].notes = (f"{IDENTICAL_CHANNELS}: {identical_channel(copy, original)}",)

    def _channel(self, number: int | None, options: BatchOptions, done: Sequence[Chunk]) -> "_Channel":
        level = InputLevel()
        packing = packing_options(self._models.longest_job(options.model or self._models.name_for(options.language)))
        return _Channel(
            number,
            packer_of(self._vad.stream() if self._vad else None, packing, level),
            level,
            Diarizer(self._voices) if options.speakers is not None and self._voices is not None else None,
            max((chunk.jobs_done for chunk in done if chunk.channel == number), default=0),
        )


@dataclass(slots=True, eq=False)
class _Channel:
    """One channel of a file, or all of them mixed: its decode jobs wait here until they are recognised.

    A thread decodes all channels together. It runs only while items() waits for it.
    """

    number: int | None
    packer: SpeechPacker | EvenPacker
    level: InputLevel
    diarizer: Diarizer | None
    jobs_done: int  # so many jobs are left out, because their words are stored
    waiting: deque[Packed] = field(default_factory=deque)
    notes: tuple[str, ...] = ()  # complete at the end

    async def items(self, decoding: AsyncIterator[object]) -> AsyncIterator[Packed]:
        """Yield the items of this channel. While there are none, decode more of all channels."""
        while True:
            while self.waiting:
                yield self.waiting.popleft()
            if await anext(decoding, None) is None:
                return

    def listen(self, samples: Samples) -> None:
        if self.diarizer is not None:
            self.diarizer.add_samples(samples)
        self._add(self.packer.pack(samples))

    def finish(self, notes: Sequence[str]) -> None:
        """End the audio. *notes* are those of the decoder."""
        if self.diarizer is not None:
            self.diarizer.end()
        self._add(self.packer.flush())
        quiet = self.level.quiet_speech
        self.notes += (*notes, f"{QUIET_INPUT}: {quiet}") if quiet else (*notes,)

    def _add(self, items: Iterable[Packed]) -> None:
        for item in items:
            if isinstance(item, DecodeJob) and self.jobs_done > 0:
                self.jobs_done -= 1
            else:
                self.waiting.append(item)


async def _merge_channels(
    channels: Mapping[int | None, AsyncGenerator[Chunk]], done: Sequence[Chunk]
) -> AsyncGenerator[Chunk]:
    """Yield the chunks of all channels that follow *done*, always the next one of the channel that is farthest behind.

    The order depends on the chunks alone. So it is the same after a crash, when *done* holds those that were stored.
    """
    reached = dict.fromkeys(channels, 0) | {chunk.channel: chunk.end for chunk in done if chunk.channel is not None}
    index = len(done)
    while reached:
        channel = min(reached, key=lambda one: (reached[one], one))
        chunk = await anext(channels[channel], None)
        if chunk is None:
            del reached[channel]
            continue
        reached[channel] = chunk.end
        segments = tuple(replace(segment, channel=channel) for segment in chunk.segments)
        yield replace(chunk, index=index, channel=channel, segments=segments)
        index += 1


class _GrowingChunk:
    """The chunk that the next recognised items are added to."""

    def __init__(self, done: Sequence[Chunk], options: BatchOptions, settings: TextSettings) -> None:
        last = done[-1] if done else None
        self._options = options
        self._text = _rewriter(done, options, settings) if options.text.changes_words else None
        self._index = len(done)
        self._start = self._reached = last.end if last else 0
        self._jobs_done = last.jobs_done if last else 0
        self._segments: list[Segment] = []
        self._language = last.language if last else None  # that was spoken last, and its probability
        self._probability = last.language_probability if last else None

    @property
    def long_enough(self) -> bool:
        """Whether the chunk may end here: it is long enough, and the text stage holds nothing for the next one."""
        return self._reached - self._start >= CHUNK and (self._text is None or self._text.complete)

    def absorb(self, item: Packed, result: RecognitionResult | None) -> None:
        """Add an item and what was recognised in it."""
        self._reached = max(self._reached, item.end if isinstance(item, DecodeJob) else item.at)
        segments: tuple[Segment, ...] = ()
        if isinstance(item, DecodeJob):
            assert result is not None
            self._jobs_done += 1
            if self._options.language is not None:  # it is said once, for all words
                result = replace(result, words=without_language(result.words))
            segments = phrases(result)
            if result.language is not None and (segments or self._language is None):
                self._language, self._probability = result.language, result.language_probability
        if self._text is None:
            self._segments += segments
            return
        for segment in segments:
            language = segment.language or self._language
            self._segments += self._text.rewrite([segment], language=language, reached=segment.start)
        self._segments += self._text.rewrite((), language=None, reached=self._reached)

    def chunk(self, notes: Sequence[str] = ()) -> Chunk:
        """Return the chunk that has grown, and begin the next one."""
        if self._text is not None:
            self._segments += self._text.flush()
        chunk = Chunk(
            index=self._index,
            jobs_done=self._jobs_done,
            start=self._start,
            end=self._reached,
            segments=tuple(self._segments),
            language=self._language,
            language_probability=self._probability,
            notes=(*notes, *(() if self._text is None else self._text.notes)),
        )
        self._index, self._start, self._segments = self._index + 1, self._reached, []
        return chunk


def _spoken_in(done: Sequence[Chunk]) -> list[str | None]:
    """Return a language for each job of the chunks that are done: the one that was spoken at the end of its chunk."""
    counts = [0, *(chunk.jobs_done for chunk in done)]
    return [
        chunk.language for chunk, before in zip(done, counts, strict=False) for _ in range(chunk.jobs_done - before)
    ]


def _rewriter(done: Sequence[Chunk], options: BatchOptions, settings: TextSettings) -> SegmentRewriter:
    """Make the text stage of a file, which continues after the chunks that are done."""
    words = [word for chunk in done[-1:] for segment in chunk.segments[-NEAR:] for word in segment.words]
    translates = options.task == TRANSLATE
    written = ENGLISH if translates else options.language
    stage = TextStage(options.text, language=written, earlier=words[-NEAR:], patient=True, settings=settings)
    return SegmentRewriter(stage, one_language=translates)


@asynccontextmanager
async def on_thread(items: Iterator[T], threads: Executor) -> AsyncIterator[AsyncIterator[T]]:
    """Take *items*, a generator that blocks, one by one on a thread, and close it there when the block ends."""
    loop = asyncio.get_running_loop()
    taking: asyncio.Future[T | None] | None = None

    async def pull() -> AsyncIterator[T]:
        nonlocal taking
        while True:
            taking = loop.run_in_executor(threads, next, items, None)
            item = await asyncio.shield(taking)
            if item is None:
                return
            yield item

    try:
        yield pull()
    finally:
        if taking is not None and not taking.done():
            await asyncio.wait({taking})  # a generator can be closed only between two items
        await loop.run_in_executor(threads, items.close)  # type: ignore[attr-defined]  # generators have it


@dataclass(slots=True)
class _QueuedItem:
    item: Packed
    answer: "asyncio.Task[RecognitionResult] | None" = None  # None: silence


class DecodeQueue:
    """The items of one file that are not part of a chunk yet, in order. Their decode jobs wait in the scheduler.

    The language of each job is found anew, unless the options name it. What was spoken *max_jobs* and more earlier is a
    hint: those jobs are certainly recognised, so the same file always gives the same hints. A job with little speech
    waits for the one before it, whose language is its hint.
    """

    def __init__(
        self, recogniser: LanguageRouter, options: BatchOptions, *, before: Sequence[str | None], max_jobs: int
    ) -> None:
        """Make an empty queue.

        *before* has the languages of the jobs that were recognised before a restart, the last one at its end.
        """
        self._recogniser = recogniser
        self._options = options
        self._max_jobs = max_jobs
        self._spoken = deque(before, maxlen=max_jobs + REMEMBERED - 1)
        self._items: deque[_QueuedItem] = deque()

    def add(self, item: Packed) -> None:
        """Append an item, and give it to the scheduler if it is a job. The queue must not be full."""
        queued = _QueuedItem(item)
        if isinstance(item, DecodeJob):
            request = DecodeRequest(
                samples=item.samples,
                start=item.start,
                language=self._options.language,
                languages=self._options.languages,
                before=self._language_before(),
                task=self._options.task,
                hints=self._options.hints,
                voiced=item.voiced,
            )
            neighbour: asyncio.Task[RecognitionResult] | None = None
            if self._options.language is None and 0 < request.voiced_s < MIN_SPEECH_S:
                neighbour = next((one.answer for one in reversed(self._items) if one.answer is not None), None)
                if neighbour is None and self._spoken:
                    request = replace(request, before=self._spoken[-1])
            queued.answer = asyncio.ensure_future(self._recognise(request, neighbour))
        self._items.append(queued)

    async def _recognise(
        self, request: DecodeRequest, neighbour: "asyncio.Task[RecognitionResult] | None"
    ) -> RecognitionResult:
        """Recognise a job, after its *neighbour* if its language should be known."""
        if neighbour is not None:
            await asyncio.wait([neighbour])  # its error is that of the file, which ends with it
            request = replace(request, before=neighbour.result().language or request.before)
        return await self._recogniser.recognise(request, tenant=self._options.tenant, urgency=Urgency.BATCH)

    @property
    def waiting(self) -> bool:
        return bool(self._items)

    @property
    def full(self) -> bool:
        """Whether no item may be added: enough jobs wait, or the waiting items span MAX_SPAN."""
        ends = [one.item.end if isinstance(one.item, DecodeJob) else one.item.at for one in self._items]
        return self._jobs >= self._max_jobs or (bool(ends) and ends[-1] - ends[0] >= MAX_SPAN)

    @property
    def first_is_done(self) -> bool:
        return bool(self._items) and (self._items[0].answer is None or self._items[0].answer.done())

    async def first(self) -> tuple[Packed, RecognitionResult | None]:
        """Wait for the oldest item, remove it, and return it with its result."""
        first = self._items[0]
        result = await first.answer if first.answer is not None else None
        self._items.popleft()
        if result is not None:
            silent = not result.words and len(self._spoken) > 0
            self._spoken.append(self._spoken[-1] if silent else result.language)
        return first.item, result

    async def close(self) -> None:
        """Cancel the jobs that are still in the scheduler."""
        answers = [queued.answer for queued in self._items if queued.answer is not None]
        for answer in answers:
            answer.cancel()
        if answers:
            await asyncio.wait(answers)

    @property
    def _jobs(self) -> int:
        return sum(queued.answer is not None for queued in self._items)

    def _language_before(self) -> str | None:
        """Return the language of most of the REMEMBERED jobs that came *max_jobs* or more before the newest one.

        They are already recognised.
        """
        back = self._max_jobs - self._jobs
        known = list(self._spoken)[: len(self._spoken) - back + 1][-REMEMBERED:] if back > 0 else []
        return max(reversed(known), key=known.count, default=None)
