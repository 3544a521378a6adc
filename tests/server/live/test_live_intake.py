"""Tests of intake.py: audio in any pieces, ended at any moment, gives every sample once and in order."""

import asyncio
import random
import threading

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, Samples
from pipeline.errors import EmptyAudio, UndecodableAudio
from pipeline.ingest.input_formats import CHANNELS, RATES, SAMPLE_BYTES
from pipeline.ingest.raw_audio import PcmDecoder
from server.live.intake import ContainerIntake, Intake, RawIntake, bytes_up_to, raw_frame_bytes
from server.model import bounds
from server.model.orders import CONTAINER, LiveOptions, Order
from tests.server.running import CLIP
from tests.server.serving import isolation
from tests.waiting import eventually

RAW = LiveOptions()
AUDIO = np.random.default_rng(3).integers(-30_000, 30_000, 3 * RATE, dtype=np.int16)


class Ear:
    """Takes what an intake decodes, from a task of its own too, and pauses after each piece."""

    def __init__(self, intake: Intake, pause_s: float = 0.0) -> None:
        self.heard: list[Samples] = []
        self.intake = intake
        self.pause_s = pause_s

    async def run(self) -> None:
        async for item in self.intake.items():
            await self.hear(item)

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), self.intake.piece_bytes):
            await self.hear(await self.intake.take(data[at : at + self.intake.piece_bytes]))

    async def hear(self, samples: Samples | str) -> None:
        assert not isinstance(samples, str)
        if len(samples):
            self.heard.append(samples)
            await asyncio.sleep(self.pause_s)

    @property
    def samples(self) -> Samples:
        return np.concatenate(self.heard) if self.heard else np.zeros(0, np.float32)


def container() -> ContainerIntake:
    return ContainerIntake(Order(live=LiveOptions(encoding=CONTAINER)), isolation())


def test_what_may_be_ordered_is_what_can_be_decoded():
    for encoding in set(bounds.ENCODINGS) - {CONTAINER}:
        samples = PcmDecoder(encoding, rate=RATES[0], channels=CHANNELS[-1]).decode(bytes(80_000))
        assert len(samples) > 0


@given(st.integers(0, 10**9), st.sampled_from([*SAMPLE_BYTES]), st.integers(8000, 48_000), st.integers(1, 2))
def test_a_place_in_a_stream_is_a_whole_number_of_frames(position, encoding, rate, channels):
    live = LiveOptions(encoding=encoding, sample_rate=rate, channels=channels)
    reached = bytes_up_to(position, live)
    assert reached % raw_frame_bytes(live) == 0
    assert 0 <= position / RATE - reached / raw_frame_bytes(live) / rate < 1 / rate


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40_000), max_size=12), st.integers(0, 2**32))
async def test_raw_audio_given_up_on_at_any_moment_is_taken_exactly_as_far_as_it_says(sizes, seed):
    chance = random.Random(seed)
    data = AUDIO.tobytes()

    intake = RawIntake(RAW)
    ear = Ear(intake, 0.001)
    running = asyncio.create_task(ear.run())
    for size in sizes:
        at = intake.received_bytes
        taking = asyncio.create_task(ear.write(data[at : at + size]))
        await asyncio.sleep(chance.choice((0, 0.0005, 0.002)))
        if chance.random() < 0.5:
            taking.cancel()
        await asyncio.wait({taking})
    await ear.write(data[intake.received_bytes :])
    await intake.finish()
    await running
    assert intake.received_bytes == len(data)
    assert np.array_equal(ear.samples, AUDIO.astype(np.float32) / 32768)


async def test_a_container_in_small_pieces_given_up_on_now_and_then_arrives_whole():
    expected, _ = soundfile.read(CLIP, dtype="float32")
    data, intake, chance = CLIP.read_bytes(), container(), random.Random(4)
    ear = Ear(intake, 0.001)
    running = asyncio.create_task(ear.run())
    while intake.received_bytes < len(data):
        at = intake.received_bytes
        taking = asyncio.create_task(ear.write(data[at : at + chance.randrange(1, 100_000)]))
        await asyncio.wait({taking}, timeout=chance.choice((0.0, 0.01)))
        if chance.random() < 0.3:
            taking.cancel()
        await asyncio.wait({taking})
    await intake.finish()
    await running
    assert np.array_equal(ear.samples, expected)


@pytest.mark.parametrize(("data", "error"), [(b"", EmptyAudio), (b"no audio " * 9000, UndecodableAudio)])
async def test_what_cannot_be_decoded_ends_the_intake_and_frees_its_writer(data, error):
    intake = container()
    ear = Ear(intake)
    running = asyncio.create_task(ear.run())
    if data:
        await ear.write(data)
    await intake.finish()
    with pytest.raises(error):
        await running
    await ear.write(data)  # has no effect


async def test_an_intake_that_is_stopped_leaves_no_thread_behind():
    intake = container()
    ear = Ear(intake, 3600)
    running = asyncio.create_task(ear.run())
    taking = asyncio.create_task(ear.write(CLIP.read_bytes() * 20))  # more than the pipes hold: it waits
    async with asyncio.timeout(20):
        await eventually(lambda: bool(ear.heard))
        running.cancel()
        await asyncio.wait({running, taking})
        await eventually(lambda: not any(thread.name.startswith("live") for thread in threading.enumerate()))


async def test_an_intake_that_is_stopped_while_it_opens_frees_who_waits_for_it():
    intake = container()
    ear = Ear(intake)
    running = asyncio.create_task(ear.run())
    taking = asyncio.create_task(ear.write(b"data"))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({running, taking})
    assert running.cancelled()


@pytest.mark.parametrize("raw", [True, False])
async def test_an_intake_that_is_ended_from_elsewhere_takes_no_more(raw):
    intake: Intake = RawIntake(RAW) if raw else container()
    ear = Ear(intake, 0.002)
    data = bytes(600_000) if raw else CLIP.read_bytes() * 10
    running = asyncio.create_task(ear.run())
    taking = asyncio.create_task(ear.write(data))
    while not intake.received_bytes:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(0)
    await intake.finish()
    await asyncio.wait_for(taking, 20)
    await asyncio.wait_for(running, 20)
    assert intake.received_bytes < len(data)
    if raw:
        assert len(ear.samples) * 2 == intake.received_bytes
