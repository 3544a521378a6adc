"""Tests of decode.py with containers that are still being written."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from pipeline.audio import Samples, position
from pipeline.errors import InvalidAudio
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from tests.pipeline.sounds import (
    CLIP,
    encode_audio,
    likeness,
    read,
)


@pytest.fixture(scope="module")
def clip() -> Samples:
    return read(CLIP)[: position(5.7)]


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("webm", "libopus"),
        ("ogg", "libopus"),
        ("ogg", "vorbis"),
        ("mp3", "libmp3lame"),
        ("flac", "flac"),
        ("wav", "pcm_s16le"),
        ("adts", "aac"),
        ("mpegts", "aac"),
    ],
)
def test_a_growing_stream_is_heard_while_it_grows(clip, container, codec):
    """When half of the bytes have come and the writer pauses, nearly all of their audio is decoded."""
    data = encode_audio(clip, container, codec, rate=48000, layout="stereo")
    inner, outer = os.pipe()
    more, first, rest = threading.Event(), [], []

    def write() -> None:
        with os.fdopen(outer, "wb", buffering=0) as pipe:
            for start, end in pairwise((0, *range(700, len(data) // 2, 700), len(data) // 2)):
                pipe.write(data[start:end])
            assert more.wait(30)
            for start in range(len(data) // 2, len(data), 700):
                pipe.write(data[start : start + 700])

    def listen(heard: Iterator[Samples]) -> None:
        for piece in heard:
            (rest if more.is_set() else first).append(piece)
            if sum(map(len, first)) > len(clip) // 2 - position(1.5):
                more.set()

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(inner, "rb", buffering=0) as pipe, recording(pipe, DecodeLimits(), live=True) as heard:
        listen(iter(heard))
    writer.join()
    samples = np.concatenate(first + rest)
    assert len(samples) == pytest.approx(len(clip), abs=position(0.13))
    assert max(likeness(samples, clip, lag) for lag in range(-9, 10)) > 0.93


def test_a_live_stream_that_cannot_be_read_without_seeking_is_refused(clip):
    inner, outer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(outer, "wb", buffering=0) as pipe:
            pipe.write(encode_audio(np.tile(clip, 8), "ipod", "aac"))

    writer = threading.Thread(target=write)
    writer.start()
    with (
        os.fdopen(inner, "rb", buffering=0) as pipe,
        pytest.raises(InvalidAudio),
        recording(pipe, DecodeLimits(), live=True),
    ):
        pass
    writer.join()
