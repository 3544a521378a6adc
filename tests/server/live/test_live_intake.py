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
from pipeline.ingest.encodings import CHANNELS, RATES, SAMPLE_BYTES
from pipeline.ingest.pcm import PcmDecoder
from server.live.intake import ContainerIntake, RawIntake, bytes_up_to, raw_frame_bytes
from server.model import bounds
from server.model.orders import CONTAINER, LiveOptions
from tests.server.running import CLIP
from tests.server.serving import isolation
from tests.waiting import eventually

RAW = LiveOptions()
AUDIO = np.random.default_rng(3).integers(-30_000, 30_000, 3 * RATE, dtype=np.int16)


class Ear:
    """Takes samples at once, but returns only when it is allowed to."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.heard: list[Samples] = []
        self.pause_s = pause_s

    async def __call__(self, samples: Samples) -> None:
        self.heard.append(samples)
        await asyncio.sleep(self.pause_s)

    async def is_caught_up(self) -> None:
        """It always has."""

    @property
    def samples(self) -> Samples:
        return np.concatenate(self.heard) if self.heard else np.zeros(0, np.float32)


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

    ear = Ear(0.001)
    intake = RawIntake(RAW, ear, ear.is_caught_up)
    running = asyncio.create_task(intake.run())
    for size in sizes:
        at = intake.received_bytes
        taking = asyncio.create_task(intake.write(data[at : at + size]))
        await asyncio.sleep(chance.choice((0, 0.0005, 0.002)))
        if chance.random() < 0.5:
            taking.cancel()
        await asyncio.wait({taking})
    await intake.write(data[intake.received_bytes :])
    await intake.finish()
    await running
    assert intake.received_bytes == len(data)
    assert np.array_equal(ear.samples, AUDIO.astype(np.float32) / 32768)


async def test_a_container_in_small_pieces_given_up_on_now_and_then_arrives_whole():
    expected, _ = soundfile.read(CLIP, dtype="float32")
    data, ear, chance = CLIP.read_bytes(), Ear(0.001), random.Random(4)
    intake = ContainerIntake(isolation(), ear)
    running = asyncio.create_task(intake.run())
    while intake.received_bytes < len(data):
        at = intake.received_bytes
        taking = asyncio.create_task(intake.write(data[at : at + chance.randrange(1, 100_000)]))
        await asyncio.wait({taking}, timeout=chance.choice((0.0, 0.01)))
        if chance.random() < 0.3:
            taking.cancel()
        await asyncio.wait({taking})
    await intake.finish()
    await running
    assert np.array_equal(ear.samples, expected)


@pytest.mark.parametrize(("data", "error"), [(b"", EmptyAudio), (b"no audio " * 9000, UndecodableAudio)])
async def test_what_cannot_be_decoded_ends_the_intake_and_frees_its_writer(data, error):
    intake = ContainerIntake(isolation(), Ear())
    running = asyncio.create_task(intake.run())
    if data:
        await intake.write(data)
    await intake.finish()
    with pytest.raises(error):
        await running
    await intake.write(data)  # has no effect


async def test_an_intake_that_is_stopped_leaves_no_thread_behind():
    came = asyncio.Event()

    async def never_done(_: Samples) -> None:
        came.set()
        await asyncio.Event().wait()

    intake = ContainerIntake(isolation(), never_done)
    running = asyncio.create_task(intake.run())
    taking = asyncio.create_task(intake.write(CLIP.read_bytes() * 20))  # more than the pipes hold: it waits
    async with asyncio.timeout(20):
        await came.wait()
        running.cancel()
        await asyncio.wait({running, taking})
        await eventually(lambda: not any(thread.name.startswith("live") for thread in threading.enumerate()))


async def test_an_intake_that_is_stopped_while_it_opens_frees_who_waits_for_it():
    intake = ContainerIntake(isolation(), Ear())
    running = asyncio.create_task(intake.run())
    taking = asyncio.create_task(intake.write(b"data"))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({running, taking})
    assert running.cancelled()


@pytest.mark.parametrize("raw", [True, False])
async def test_an_intake_that_is_ended_from_elsewhere_takes_no_more(raw):
    ear = Ear(0.002)
    intake = RawIntake(RAW, ear, ear.is_caught_up) if raw else ContainerIntake(isolation(), ear)
    data = bytes(600_000) if raw else CLIP.read_bytes() * 10
    running = asyncio.create_task(intake.run())
    taking = asyncio.create_task(intake.write(data))
    while not intake.received_bytes:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(0)
    await intake.finish()
    await asyncio.wait_for(taking, 20)
    await asyncio.wait_for(running, 20)
    assert intake.received_bytes < len(data)
    if raw:
        assert len(ear.samples) * 2 == intake.received_bytes
