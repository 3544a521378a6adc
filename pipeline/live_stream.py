"""Drives a StreamCore with asyncio: the samples of one live stream in, events out. server/live/ makes one per session.

    stream = LiveStream(StreamCore(options), vad=voice, recogniser=scheduler)
    tasks.create_task(stream.run())
    await stream.feed(samples)                      # waits while enough is buffered
    stream.finish()
    async for happened in stream.events(): ...     # decisions of the core, with their time

run() continues with or without a writer until finish() is called and the last events are decided.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from functools import partial
from typing import TypeAlias

import numpy as np

from pipeline.audio import RATE, WINDOW, DetectLiveSpeech, Framer, Samples, Windows, position
from pipeline.errors import EngineFailed, EngineTimeout, TooFast
from pipeline.events import MAX_UNREAD, Changes, Event, EventClock, Finalized, TimedEvent, read_events
from pipeline.ingest.crosstalk import CrosstalkGate
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamCounts
from pipeline.recognition.turns import TurnEndDetector
from pipeline.text.rewriting import TextRewriter

MAX_BUFFERED = position(30)
"""The most audio that may be buffered. feed() refuses a piece that would exceed it."""

ENOUGH_BUFFERED = position(5)
"""The most buffered audio with which feed() returns at once; with more, its caller waits."""

WINDOWS = 16
"""Windows, half a second, that are processed before other tasks get a turn on the event loop."""

TOGETHER = WINDOWS * WINDOW
"""Audio that cannot cause a decision waits until this much can be processed together, which costs a third."""

AHEAD_S = 0.25
"""A sender further ahead of real time than this waits for answers, so that words do not depend on its speed."""

RETRY_S = 0.5
"""The pause after a failed call, in which an engine can restart."""

STEP_FACTOR = 1.3
"""The audio between two partials, as a multiple of the time that an answer takes. It limits the model's load."""

ROUND_SMOOTHING = 0.3
"""The weight of the newest answer in the average answer time."""


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """The state of a stream and what it has done so far."""

    received: int  # the end of the audio so far
    waiting: int  # samples that are not taken in yet
    unread: int  # events waiting for their reader
    round_s: float  # average time of an answer
    lag_s: float  # of the last committed word
    retractions: int  # committed words that changed later: must be 0
    counts: StreamCounts


class _Command(Enum):
    FINALIZE = auto()
    END = auto()


_Detected: TypeAlias = tuple[Windows, Sequence[float]]
"""Windows, and the probability of speech of each."""

_NOTHING = np.zeros(0, np.float32)

_Answer: TypeAlias = Callable[[], None]
"""Gives the core an answer of the recogniser or of the model for the ends of turns."""


class LiveStream:
    """One live stream. run() is its only task; the other methods are called from other tasks of the same loop."""

    def __init__(
        self,
        core: StreamCore,
        *,
        vad: DetectLiveSpeech,
        recogniser: LanguageRouter,
        tenant: str = "",
        text: TextRewriter | None = None,  # None: words are reported as they are recognised
        turn_ends: TurnEndDetector | None = None,  # None: turns end by silence alone
    ) -> None:
        self._core = core
        self._vad = vad
        self._recogniser = recogniser
        self._tenant = tenant
        self._text = text
        self._turn_ends = turn_ends
        self._framer = Framer()
        self._backlog: deque[Samples | _Command] = deque()
        self._commands = 0  # in the backlog
        self._detected: deque[_Detected | _Command] = deque()  # what came before the backlog, for the core
        # What the detector has: the windows, their probabilities to come, and the command after them.
        self._detecting: tuple[Windows, Awaitable[list[float]], _Command | None] | None = None
        self._asked = 0  # requests and checks whose answers the core does not have yet
        self._answers: deque[_Answer] = deque()  # of these, those that have come
        self._unread: deque[TimedEvent] = deque()
        self._loop = asyncio.get_running_loop()
        self._clock = EventClock(time.time() - self._loop.time())
        self._changes = Changes()
        self._round_s = 0.0
        self._language: str | None = None  # of the last answer, which may be a guess
        self._received = core.position  # the end of the audio so far
        # When a player in real time, which waits for audio that comes late, would have played position 0.
        self._began_s = self._loop.time() - self._received / RATE
        self._finalized = self._received  # the position of the last finalize()
        self._ended = False
        self._over = False

    async def feed(self, samples: Samples) -> None:
        """Add the next samples, then wait while more than ENOUGH_BUFFERED is buffered, which slows the sender down.

        Raises TooFast if more than MAX_BUFFERED would be buffered, ValueError after finish() or when run() is over.
        """
        self.add(samples)
        await self.wait_for_room()

    def add(self, samples: Samples) -> None:
        """Add the next samples. Raises what feed() raises."""
        if self._ended or self._over:
            raise ValueError("audio after the end")
        if self._waiting + len(samples) > MAX_BUFFERED:
            raise TooFast(f"more than {MAX_BUFFERED // RATE} s of audio would wait")
        now_s = self._loop.time()
        self._began_s = max(self._began_s, now_s - self._received / RATE)
        self._received += len(samples)
        self._clock.note_arrival(self._received, now_s)
        self._queue(samples)

    async def wait_for_room(self) -> None:
        """Wait while more than ENOUGH_BUFFERED is buffered."""
        await self._changes.until(lambda: self._waiting <= ENOUGH_BUFFERED or self._over)

    def finalize(self) -> int:
        """Decide all words fed so far, up to the last whole window, as if the speaker had stopped there.

        Returns that position. The event Finalized has it too. One event answers all calls at the same position; no
        event follows a call before any audio or after finish().
        """
        reached = self._received - self._received % WINDOW
        if reached > self._finalized and not self._ended:
            self._finalized = reached
            self._queue(_Command.FINALIZE)
        return self._finalized

    @property
    def start(self) -> int:
        """The position of the first sample."""
        return self._core.start.at

    def copies(self) -> Mapping[int, int]:
        """No channel is a copy of another one. See MultichannelStream.copies()."""
        return {}

    def finish(self) -> None:
        """End the audio. Calling it again does nothing."""
        if not self._ended:
            self._ended = True
            self._queue(_Command.END)

    def events(self) -> AsyncIterator[TimedEvent]:
        """Yield every event in order until everything is decided or run() ends. Only one reader may call it."""
        return read_events(self._unread, self._changes, lambda: self._over)

    def decided_positions(self) -> Mapping[int | None, int]:
        """The position before which everything is decided, by channel. This stream has one channel, None.

        It is empty while events wait to be read.
        """
        held = self._text.stage.held_from if self._text is not None else None
        decided = min(self._core.decided, self._received, *(() if held is None else (held,)))
        return {} if self._unread else {None: decided}

    def redacted_spans(self) -> Sequence[tuple[int, int]]:
        """Where something was said that is redacted: starts and ends, in positions."""
        return self._text.stage.redacted if self._text is not None else ()

    def statistics(self) -> StreamStatistics:
        return StreamStatistics(
            received=self._received,
            waiting=self._waiting,
            unread=len(self._unread),
            round_s=self._round_s,
            lag_s=self._clock.lag_s,
            retractions=self._clock.retractions,
            counts=replace(self._core.counts),
        )

    async def run(self) -> None:
        """Process the audio until everything fed before finish() is decided.

        A call of the engine that fails or times out is repeated. Other errors of the recogniser, and all errors of the
        voice detector, end this task.
        """
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while not self._core.finished:
                    await self._changes.until(lambda: self._due or bool(self._answers) or self._core.finished)
                    await self._detect()  # audio that came before an answer is taken in before it
                    while self._detected and await self._may_take_in():
                        self._take_in()
                    if self._answers:
                        self._asked -= 1
                        self._answers.popleft()()
                        self._advance()
                    elif self._backlog:
                        await asyncio.sleep(0)
        finally:
            self._over = True
            self._changes.notify()

    @property
    def _due(self) -> bool:
        """Whether to process what has come: it may cause a decision, or there is enough of it."""
        if self._detected or self._detecting or not self._backlog:
            return bool(self._detected or self._detecting)
        whole = self._received - self._received % WINDOW
        return self._commands > 0 or whole >= self._core.steady or self._waiting >= TOGETHER

    async def _detect(self) -> None:
        """Find the speech in the next part of the backlog, unless that is done already."""
        self._begin_detecting()
        if self._detecting is not None:
            windows, found, command = self._detecting
            speech = await found
            self._detecting = None
            self._note_detected(windows, speech, command)

    def _begin_detecting(self) -> None:
        """Give the detector the next part of the backlog, unless it has one or the core is to get one.

        The part reaches to the next command, but has no more than WINDOWS windows.
        """
        if self._detected or self._detecting is not None or not self._backlog:
            return
        pieces: list[Samples] = []
        command, room = None, WINDOWS * WINDOW
        while self._backlog and room > 0 and command is None:
            item = self._backlog.popleft()
            if isinstance(item, _Command):
                command = item
                self._commands -= 1
            else:
                pieces.append(item[:room])
                if len(item) > room:
                    self._backlog.appendleft(item[room:])
                room -= len(item)
        windows = self._framer.windows_of(pieces[0] if len(pieces) == 1 else np.concatenate([_NOTHING, *pieces]))
        if command is _Command.END:
            windows = np.concatenate([windows, self._framer.flush()[0]])
        found = self._vad(windows) if len(windows) else []
        if isinstance(found, list):
            self._note_detected(windows, found, command)
        else:
            self._detecting = windows, found, command

    def _note_detected(self, windows: Windows, speech: Sequence[float], command: _Command | None) -> None:
        if len(windows):
            self._detected.append((windows, speech))
        if command is not None:
            self._detected.append(command)

    async def _may_take_in(self) -> bool:
        """Wait until the core and the reader of the events have room for the next part, or until an answer comes.

        Returns False if the answer comes first, or nothing is left to take.
        """
        if isinstance(self._detected[0], _Command):
            return True
        if self._ahead_s > 0 and self._core.late:
            with suppress(TimeoutError):  # the answer to the request in flight is waited for no longer
                async with asyncio.timeout(self._ahead_s):
                    await self._changes.until(lambda: bool(self._answers) or not self._core.late)
        if not self._has_room:
            await self._changes.until(lambda: self._has_room or bool(self._answers))
        may = self._has_room and not (self._answers and self._ahead_s > 0 and self._core.late)
        return may and bool(self._detected)  # a newer window for the engine may have taken it meanwhile

    @property
    def _has_room(self) -> bool:
        return self._core.room > 0 and len(self._unread) < MAX_UNREAD

    def _take_in(self) -> None:
        """Give the core the next part: a command, or windows up to one that may cause a decision."""
        item = self._detected.popleft()
        if item is _Command.FINALIZE:
            self._core.finalize()
        elif item is _Command.END:
            self._core.finish(self._received)
        elif not isinstance(item, _Command):
            windows, speech = item
            most = min(self._core.steady - self._core.position, self._core.room)
            if self._asked:  # the first window that comes too early may have to wait for the answer
                most = min(most, position(-self._ahead_s))
            count = max(1, most // WINDOW)
            if count < len(windows):
                self._detected.appendleft((windows[count:], speech[count:]))
            self._core.receive_audio(windows[:count], speech[:count])
        self._advance()

    @property
    def _ahead_s(self) -> float:
        """By how much the sender is further ahead of real time than it may be; 0 or less if it is not."""
        return self._began_s + (self._core.position + WINDOW) / RATE - AHEAD_S - self._loop.time()

    def _advance(self) -> None:
        """Queue the core's events for the reader, and send the request that the core wants."""
        events = self._events_received()
        if events:
            now_s = self._loop.time()
            self._unread.extend(self._clock.stamp(event, now_s) for event in events)
        request = self._core.decode_wanted()
        if request is not None:
            self._asked += 1
            self._tasks.create_task(self._ask(request), name=f"decode from {request.start}")
        check = self._core.turn_check_wanted() if self._turn_ends is not None else None
        if check is not None:
            self._asked += 1
            self._tasks.create_task(self._check_turn(check.samples), name=f"turn check at {check.end}")
        self._changes.notify()

    def _events_received(self) -> Sequence[Event]:
        """Return what the core decided, in the form in which it may be seen."""
        events: Sequence[Event] = self._core.events_received()
        if self._text is None:
            return events
        decided = min(self._core.decided, self._received)
        shown = self._text.rewrite(events, decided=decided, language=self._language)
        return [*shown, *self._text.flush()] if self._core.finished else shown

    async def _ask(self, request: DecodeRequest) -> None:
        """Send one request. run() gives the answer to the core."""
        requested_s = self._loop.time()
        try:
            result = await self._recogniser.recognise(request, tenant=self._tenant, newer=self._newer)
        except (EngineFailed, EngineTimeout):
            await asyncio.sleep(RETRY_S)
            self._queue_answer(self._core.receive_failure)
        else:
            self._round_s += ROUND_SMOOTHING * (self._loop.time() - requested_s - self._round_s)
            self._core.pace(position(STEP_FACTOR * self._round_s))
            self._queue_answer(partial(self._receive_result, result))

    def _receive_result(self, result: RecognitionResult) -> None:
        self._language = result.language
        self._core.receive_hypothesis(result)

    def _queue_answer(self, answer: _Answer) -> None:
        self._answers.append(answer)
        self._changes.notify()

    async def _check_turn(self, turn: Samples) -> None:
        """Estimate whether the newest turn is over. run() gives the answer to the core."""
        assert self._turn_ends is not None
        try:
            probability = await self._turn_ends.probability(turn)
        except EngineFailed:
            probability = None
        self._queue_answer(partial(self._core.receive_turn_check, probability))

    def _newer(self) -> DecodeRequest | None:
        """Return a request to replace the one in flight, which the engine has not begun yet, or None."""
        self._begin_detecting()
        while self._detected and self._has_room and not (self._ahead_s > 0 and self._core.late):
            self._take_in()
        if not self._core.decode_due:
            return None
        self._core.withdraw()
        return self._core.decode_wanted()

    @property
    def _waiting(self) -> int:
        return self._received - min(self._received, self._core.position)

    def _queue(self, item: Samples | _Command) -> None:
        self._backlog.append(item)
        self._commands += isinstance(item, _Command)
        self._changes.notify()


class MultichannelStream:
    """Like a LiveStream. It starts where the first of its channels does; the others skip what is before their start."""

    def __init__(self, streams: Sequence[LiveStream], *, gate: CrosstalkGate | None = None) -> None:
        """Take a stream for each channel. *gate* silences what is a copy of another channel."""
        self._streams = streams
        self._gate = gate
        # The end of the audio so far, of what the gate has let pass, and of the last finalize().
        self._received = self._added = self._finalized = min(stream.start for stream in streams)
        # by position of finalize(), the channels that have not decided everything before it
        self._deciding: dict[int, set[int]] = {}
        self._unread: deque[TimedEvent] = deque()
        self._changes = Changes()
        self._ended = self._over = False

    async def feed(self, samples: Samples) -> None:
        """Add the next samples of every channel, of shape (n, channels), then wait as LiveStream.feed() does.

        Raises what LiveStream.feed() raises.
        """
        self._received += len(samples)
        self._add(samples if self._gate is None else self._gate.add(samples))
        await self.wait_for_room()

    def _add(self, samples: Samples) -> None:
        begins = self._added
        self._added += len(samples)
        for channel, stream in enumerate(self._streams):
            fresh = samples[max(0, stream.start - begins) :, channel]
            if len(fresh):
                stream.add(fresh)

    def _add_held(self) -> None:
        """Add what the gate still holds."""
        if self._gate is not None:
            self._add(self._gate.flush())

    async def wait_for_room(self) -> None:
        """Wait while more than ENOUGH_BUFFERED is buffered on a channel."""
        for stream in self._streams:
            await stream.wait_for_room()

    def finalize(self) -> int:
        """Decide all words fed so far on every channel. See LiveStream.finalize(). One event reports all channels."""
        reached = self._received - self._received % WINDOW
        if reached > self._finalized and not self._ended:
            self._add_held()
            self._finalized = reached
            self._deciding[reached] = set()
            for channel, stream in enumerate(self._streams):
                if reached > stream.start:
                    stream.finalize()
                    self._deciding[reached].add(channel)
        return self._finalized

    def finish(self) -> None:
        """End the audio. Calling it again does nothing."""
        if not self._ended:
            self._add_held()
        self._ended = True
        for stream in self._streams:
            stream.finish()

    def events(self) -> AsyncIterator[TimedEvent]:
        """Yield the events of all channels as they are decided. Only one reader may call it."""
        return read_events(self._unread, self._changes, lambda: self._over)

    def decided_positions(self) -> Mapping[int | None, int]:
        """By channel, the position before which everything is decided. Channels with unread events are left out."""
        if self._unread:
            return {}
        each = [stream.decided_positions() for stream in self._streams]
        return {channel: decided[None] for channel, decided in enumerate(each) if decided}

    def redacted_spans(self) -> Sequence[tuple[int, int]]:
        """Where something was said on any channel that is redacted."""
        return [span for stream in self._streams for span in stream.redacted_spans()]

    def copies(self) -> Mapping[int, int]:
        """The channels that are a copy of another one so far, and which one that is."""
        return {} if self._gate is None else self._gate.copies

    def statistics(self) -> StreamStatistics:
        """The sums over all channels, and of times and waiting audio the largest."""
        each = [stream.statistics() for stream in self._streams]
        names = [one.name for one in fields(StreamCounts)]
        return StreamStatistics(
            received=self._received,
            waiting=max(one.waiting for one in each),
            unread=len(self._unread),
            round_s=max(one.round_s for one in each),
            lag_s=max(one.lag_s for one in each),
            retractions=sum(one.retractions for one in each),
            counts=StreamCounts(**{name: sum(getattr(one.counts, name) for one in each) for name in names}),
        )

    async def run(self) -> None:
        """Process the audio of all channels until everything fed before finish() is decided. See LiveStream.run()."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for channel, stream in enumerate(self._streams):
                    tasks.create_task(stream.run(), name=f"channel {channel}")
                    tasks.create_task(self._pass_on(channel, stream), name=f"events of channel {channel}")
        finally:
            self._over = True
            self._changes.notify()

    async def _pass_on(self, channel: int, stream: LiveStream) -> None:
        """Queue the events of a channel. There is no wait before one is queued, so decided_positions() is right."""
        async for happened in stream.events():
            reported = self._event_of(channel, happened)
            if reported is not None:
                self._unread.append(reported)
                self._changes.notify()
            await self._changes.until(lambda: len(self._unread) < MAX_UNREAD)

    def _event_of(self, channel: int, happened: TimedEvent) -> TimedEvent | None:
        """Return the event of a channel for the readers; None for Finalized if other channels are not there yet."""
        event = happened.event
        if isinstance(event, Finalized):
            owing = self._deciding.get(event.at, set())
            if channel in owing:
                owing.remove(channel)
                if owing:
                    return None
                del self._deciding[event.at]
                return happened
        return replace(happened, channel=channel)
