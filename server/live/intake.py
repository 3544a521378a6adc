"""Turns a writer's bytes into samples as they come: raw audio here, containers in a decoding process.

intake.write(data)        # waits while the session has enough; cancelling it loses and repeats nothing
intake.received_bytes    # all bytes that were ever taken
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Protocol, TypeAlias, cast

from pipeline.audio import RATE, Samples
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.encodings import SAMPLE_BYTES, Encoding
from pipeline.ingest.focus import live_mix, mixed
from pipeline.ingest.isolation import Isolation, LiveDecoding
from pipeline.ingest.live_tracks import SpokenTrack, all_tracks
from pipeline.ingest.memory import MemoryPart
from pipeline.ingest.pcm import PcmDecoder
from pipeline.ingest.tracks import ALL_TRACKS, AUTO, MIX, TrackChoice
from pipeline.ingest.vad import VoiceDetector
from server.model.orders import CONTAINER, LiveOptions, Order

PIECE_S = 0.5  # of raw audio decoded at once; more would block the event loop
PIECE_BYTES = 64 * 1024  # of a container written at once: as much as a pipe holds

Sink: TypeAlias = Callable[[Samples], Awaitable[None]]
"""Takes samples. It stores them before its first await, so that cancelling it loses none."""

Backpressure: TypeAlias = Callable[[], Awaitable[None]]
"""Waits until little audio in the sink is unrecognised, from any writer."""

Report: TypeAlias = Callable[[str], Awaitable[None]]
"""Takes a note for readers: "code: message"."""


class Intake(Protocol):
    """Takes a session's bytes, from one caller at a time."""

    @property
    def received_bytes(self) -> int: ...
    @property
    def notes(self) -> Sequence[str]:
        """What of the audio was not heard: "code: message". Complete when run() has returned."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def finish(self) -> None:
        """Take no more bytes, not even the rest of a write() in progress. run() then ends when the sink has all."""

    async def run(self) -> None:
        """Work until finish() was called and the sink has everything. Raises PipelineError for undecodable audio."""

    def close(self) -> None:
        """Release resources. Called at the end of the session, even if run() was never called."""


def raw_frame_bytes(live: LiveOptions) -> int:
    """Bytes of one sample of a raw encoding in all channels."""
    return SAMPLE_BYTES[cast(Encoding, live.encoding)] * live.channels


def bytes_up_to(position: int, live: LiveOptions) -> int:
    """The number of bytes of a raw stream before *position*."""
    return position * live.sample_rate // RATE * raw_frame_bytes(live)


def intake_of(
    order: Order,
    isolation: Isolation,
    sink: Sink,
    *,
    backpressure: Backpressure,
    position: int,
    part: MemoryPart | None,
    voice: VoiceDetector | None = None,
    report: Report | None = None,
) -> Intake:
    """Make the intake of a live session.

    *sink*: gets the samples.
    *backpressure*: a writer of raw audio waits for it before each piece.
    *position*: where raw audio continues, in 16 kHz samples.
    *voice*: finds out when somebody speaks in the centre of surround sound, or on which of several tracks.
    *report*: gets notes that readers should have before the end.
    *part*: the memory of a container's decoder. close() or the end of run() releases it.
    """
    live = order.live
    assert live is not None
    if live.encoding == CONTAINER:
        separate = live.channels if order.separate else None
        return ContainerIntake(
            isolation,
            sink,
            separate=separate,
            part=part,
            track=order.track,
            voice=voice,
            language=order.language,
            report=report,
        )
    return RawIntake(live, sink, backpressure, received_bytes=bytes_up_to(position, live), separate=order.separate)


class RawIntake:
    """Decodes raw audio in the event loop, in pieces."""

    def __init__(
        self,
        live: LiveOptions,
        sink: Sink,
        backpressure: Backpressure,
        *,
        received_bytes: int = 0,
        separate: bool = False,
    ) -> None:
        self._decoder = PcmDecoder(
            cast(Encoding, live.encoding), rate=live.sample_rate, channels=live.channels, separate=separate
        )
        self._piece = int(PIECE_S * live.sample_rate) * raw_frame_bytes(live)
        self._sink = sink
        self._backpressure = backpressure
        self._closed = False
        self._ended = asyncio.Event()
        self.received_bytes = received_bytes
        self.notes: Sequence[str] = ()

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), self._piece):
            await self._backpressure()  # also for writers that left without waiting for the sink
            if self._closed:
                return
            piece = data[at : at + self._piece]
            samples = self._decoder.decode(piece)
            self.received_bytes += len(piece)
            if len(samples):
                await self._sink(samples)

    async def finish(self) -> None:
        if not self._closed:
            self._closed = True
            if len(samples := self._decoder.flush()):
                await self._sink(samples)
            self._ended.set()

    async def run(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        """There is nothing to close."""


class ContainerIntake:
    """One thread writes into the decoder's pipe, another reads its output; both pause when the session does."""

    def __init__(
        self,
        isolation: Isolation,
        sink: Sink,
        *,
        separate: int | None = None,
        part: MemoryPart | None = None,
        track: TrackChoice = AUTO,
        voice: VoiceDetector | None = None,
        language: str | None = None,
        report: Report | None = None,
    ) -> None:
        """*separate* is the number of channels, or of tracks, if each is recognised separately."""
        self._part = part
        self._track = track
        self._voice = voice
        self._language = language
        self._report = report
        self._isolation = isolation
        self._sink = sink
        self._separate = separate
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="live")  # to write, to read, and to kill the decoder
        self._opened = asyncio.Event()  # set also if there will be no decoder
        self._decoding: LiveDecoding | None = None
        self._feeding: Future[bool] | None = None
        self._reading: Future[Samples | str | None] | None = None
        self._closed = False
        self.received_bytes = 0
        self.notes: Sequence[str] = ()

    async def write(self, data: bytes) -> None:
        await self._opened.wait()
        for at in range(0, len(data), PIECE_BYTES):
            await self._wait_until_fed()
            if self._closed or self._decoding is None:
                return  # run() reports why there is no decoder any more
            piece = data[at : at + PIECE_BYTES]
            self._feeding = self._threads.submit(self._decoding.feed, piece)
            self.received_bytes += len(piece)
        await self._wait_until_fed()

    async def finish(self) -> None:
        self._closed = True
        await self._opened.wait()
        await self._wait_until_fed()
        if self._decoding is not None:
            self._decoding.finish()

    async def run(self) -> None:
        stack = ExitStack()
        part, self._part = self._part, None
        unmixed = self._voice is not None and self._track not in ALL_TRACKS
        decoding = self._isolation.live(
            DecodeLimits(), separate=self._separate, unmixed=unmixed, part=part, track=self._track
        )
        opening = self._threads.submit(stack.enter_context, decoding)
        try:
            self._decoding = await asyncio.wrap_future(opening)
            self._opened.set()
            items = self._heard(self._decoding)
            while (heard := await self._next(items)) is not None:
                await self._hear(heard)
            self.notes = (*self.notes, *self._decoding.notes)
        finally:
            self._decoding = None
            self._opened.set()
            self._threads.submit(self._close, stack, opening, part)
            self._threads.shutdown(wait=False)

    def close(self) -> None:
        if self._part is not None:
            self._part.release()

    def _heard(self, decoding: LiveDecoding) -> Iterator[Samples | str]:
        """Yield the samples of what is ordered, and notes for readers. It runs on a thread."""
        probe, voice = decoding.open(), self._voice
        one: Iterator[Samples] = iter(decoding)
        if voice is not None and not self._separate and not probe.several:
            one = mixed(one, live_mix(voice.stream(), probe.channels, probe.layout))
        if probe.several and self._track in ALL_TRACKS:
            yield from all_tracks(probe.tracks, decoding.pieces(), mixed=self._track == MIX)
        elif probe.several or (self._track == AUTO and len(probe.tracks) > 1):
            spoken = SpokenTrack(probe.tracks, voice if probe.several else None, self._language)
            yield from spoken.hear(decoding.pieces()) if probe.several else one
            self.notes = spoken.notes
        else:
            yield from one

    async def _hear(self, heard: Samples | str) -> None:
        if not isinstance(heard, str):
            await self._sink(heard)
        elif self._report is not None:
            await self._report(heard)

    async def _next(self, items: Iterator[Samples | str]) -> Samples | str | None:
        self._reading = self._threads.submit(next, items, None)
        return await asyncio.wrap_future(self._reading)

    async def _wait_until_fed(self) -> None:
        """Wait until the decoder has all bytes so far, including those of a cancelled write()."""
        if self._feeding is not None:
            await asyncio.shield(asyncio.wrap_future(self._feeding))
            self._feeding = None

    def _close(self, stack: ExitStack, opening: "Future[LiveDecoding]", part: MemoryPart | None) -> None:
        """Kill the decoder, and close its pipes once no thread uses them."""
        if part is not None:
            stack.callback(part.release)  # also if the decoder was never opened
        with stack:
            if not opening.cancel() and opening.exception() is None:
                opening.result().kill()
            busy: list[Future[Any]] = [future for future in (self._feeding, self._reading) if future is not None]
            wait(busy)
