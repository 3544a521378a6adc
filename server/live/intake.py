"""Turns a writer's bytes into samples as they come: raw audio here, containers in a decoding process.

samples = await intake.take(data)   # those of raw audio; cancelling it loses and repeats nothing
async for item in intake.items()    # those of a container, and what is left at the end
intake.received_bytes               # all bytes that were ever taken
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Protocol, cast

import numpy as np

from pipeline.audio import RATE, Samples
from pipeline.ingest.input_formats import ALL_TRACKS, AUTO, MIX, SAMPLE_BYTES, DecodeLimits, Encoding
from pipeline.ingest.isolation import Isolation, LiveDecoding
from pipeline.ingest.memory import MemoryClaim
from pipeline.ingest.mixing import live_mix, mixed
from pipeline.ingest.raw_audio import PcmDecoder
from pipeline.ingest.track_choice import SpokenTrack, all_tracks
from pipeline.ingest.vad import Vad
from server.model.orders import CONTAINER, LiveOptions, Order

PIECE_S = 0.5  # of raw audio decoded at once; more would block the event loop
PIECE_BYTES = 64 * 1024  # of a container written at once: as much as a pipe holds

_NOTHING = np.zeros(0, np.float32)


class Intake(Protocol):
    """Takes a session's bytes, from one caller at a time."""

    piece_bytes: int
    """The most bytes for one take()."""
    received_bytes: int
    notes: Sequence[str]
    """What of the audio was not heard: "code: message". Complete when items() has ended."""

    async def take(self, data: bytes) -> Samples:
        """Take the next bytes, and return the samples that they decide at once."""

    async def finish(self) -> None:
        """Take no more bytes, not even the rest of a take() in progress. items() then ends after the last one."""

    def items(self) -> AsyncIterator[Samples | str]:
        """Yield samples that take() did not return, and notes for readers. Raises PipelineError for unusable audio."""

    def close(self) -> None:
        """Release resources. Called at the end of the session, even if items() was never called."""


def raw_frame_bytes(live: LiveOptions) -> int:
    """Bytes of one sample of a raw encoding in all channels."""
    return SAMPLE_BYTES[cast(Encoding, live.encoding)] * live.channels


def bytes_up_to(position: int, live: LiveOptions) -> int:
    """The number of bytes of a raw stream before *position*."""
    return position * live.sample_rate // RATE * raw_frame_bytes(live)


def intake_of(
    order: Order, isolation: Isolation, *, position: int, decoder_memory: MemoryClaim | None, vad: Vad | None = None
) -> Intake:
    """Make the intake of a live session.

    *position*: where raw audio continues, in 16 kHz samples.
    *vad*: finds out when somebody speaks in the centre of surround sound, or on which of several tracks.
    *decoder_memory*: the memory of a container's decoder. close() or the end of items() releases it.
    """
    assert order.live is not None
    if order.live.encoding == CONTAINER:
        return ContainerIntake(order, isolation, decoder_memory=decoder_memory, vad=vad)
    return RawIntake(order.live, received_bytes=bytes_up_to(position, order.live), separate=order.separate)


class RawIntake:
    """Decodes raw audio in the event loop."""

    def __init__(self, live: LiveOptions, *, received_bytes: int = 0, separate: bool = False) -> None:
        self._decoder = PcmDecoder(
            cast(Encoding, live.encoding), rate=live.sample_rate, channels=live.channels, separate=separate
        )
        self.piece_bytes = int(PIECE_S * live.sample_rate) * raw_frame_bytes(live)
        self.received_bytes = received_bytes
        self.notes: Sequence[str] = ()
        self._ended = asyncio.Event()

    async def take(self, data: bytes) -> Samples:
        if self._ended.is_set():
            return _NOTHING
        self.received_bytes += len(data)
        return self._decoder.decode(data)

    async def finish(self) -> None:
        self._ended.set()

    async def items(self) -> AsyncIterator[Samples | str]:
        await self._ended.wait()
        yield self._decoder.flush()

    def close(self) -> None:
        """There is nothing to close."""


class ContainerIntake:
    """One thread writes into the decoder's pipe, another reads its output; both pause when the session does."""

    def __init__(
        self, order: Order, isolation: Isolation, *, decoder_memory: MemoryClaim | None = None, vad: Vad | None = None
    ) -> None:
        assert order.live is not None
        self._order = order
        self._separate = order.live.channels if order.separate else None  # channels or tracks
        self._decoder_memory = decoder_memory
        self._vad = vad
        self._isolation = isolation
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="live")  # to write, to read, and to kill the decoder
        self._opened = asyncio.Event()  # set also if there will be no decoder
        self._decoding: LiveDecoding | None = None
        self._feeding: Future[bool] | None = None
        self._reading: Future[Samples | str | None] | None = None
        self._closed = False
        self.piece_bytes = PIECE_BYTES
        self.received_bytes = 0
        self.notes: Sequence[str] = ()

    async def take(self, data: bytes) -> Samples:
        await self._opened.wait()
        await self._wait_until_fed()
        if not self._closed and self._decoding is not None:  # else items() reports why there is no decoder any more
            self._feeding = self._threads.submit(self._decoding.feed, data)
            self.received_bytes += len(data)
            await self._wait_until_fed()
        return _NOTHING

    async def finish(self) -> None:
        self._closed = True
        await self._opened.wait()
        await self._wait_until_fed()
        if self._decoding is not None:
            self._decoding.finish()

    async def items(self) -> AsyncIterator[Samples | str]:
        stack = ExitStack()
        decoder_memory, self._decoder_memory = self._decoder_memory, None
        track = self._order.track
        unmixed = self._vad is not None and track not in ALL_TRACKS
        decoding = self._isolation.live(
            DecodeLimits(), separate=self._separate, unmixed=unmixed, memory=decoder_memory, track=track
        )
        opening = self._threads.submit(stack.enter_context, decoding)
        try:
            self._decoding = await asyncio.wrap_future(opening)
            self._opened.set()
            items = self._heard(self._decoding)
            while (item := await self._next(items)) is not None:
                yield item
            self.notes = (*self.notes, *self._decoding.notes)
        finally:
            self._decoding = None
            self._opened.set()
            self._threads.submit(self._close, stack, opening, decoder_memory)
            self._threads.shutdown(wait=False)

    def close(self) -> None:
        if self._decoder_memory is not None:
            self._decoder_memory.release()

    def _heard(self, decoding: LiveDecoding) -> Iterator[Samples | str]:
        """Yield the samples of what is ordered, and notes for readers. It runs on a thread."""
        probe, vad, track = decoding.open(), self._vad, self._order.track
        one: Iterator[Samples] = iter(decoding)
        if vad is not None and not self._separate and not probe.several:
            one = mixed(one, live_mix(vad.stream(), probe.channels, probe.layout))
        if probe.several and track in ALL_TRACKS:
            yield from all_tracks(probe.tracks, decoding.pieces(), mixed=track == MIX)
        elif probe.several or (track == AUTO and len(probe.tracks) > 1):
            spoken = SpokenTrack(probe.tracks, vad if probe.several else None, self._order.language)
            yield from spoken.follow(decoding.pieces()) if probe.several else one
            self.notes = spoken.notes
        else:
            yield from one

    async def _next(self, items: Iterator[Samples | str]) -> Samples | str | None:
        self._reading = self._threads.submit(next, items, None)
        return await asyncio.wrap_future(self._reading)

    async def _wait_until_fed(self) -> None:
        """Wait until the decoder has all bytes so far, including those of a cancelled take()."""
        if self._feeding is not None:
            await asyncio.shield(asyncio.wrap_future(self._feeding))
            self._feeding = None

    def _close(self, stack: ExitStack, opening: "Future[LiveDecoding]", decoder_memory: MemoryClaim | None) -> None:
        """Kill the decoder, and close its pipes once no thread uses them."""
        if decoder_memory is not None:
            stack.callback(decoder_memory.release)  # also if the decoder was never opened
        with stack:
            if not opening.cancel() and opening.exception() is None:
                opening.result().kill()
            busy: list[Future[Any]] = [future for future in (self._feeding, self._reading) if future is not None]
            wait(busy)
