"""Tests of what `scribewire live` sends."""

import numpy as np

from pipeline.audio import RATE
from pipeline.ingest.pcm import PcmDecoder
from server.commands.live import ENCODING, encode


def test_a_quiet_recording_reaches_the_server_as_it_is() -> None:
    sound = np.random.default_rng(7).uniform(-2e-3, 2e-3, RATE).astype(np.float32)
    assert np.array_equal(PcmDecoder(ENCODING, rate=RATE, channels=1).receive(encode(sound)), sound)
