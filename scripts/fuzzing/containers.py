"""Fuzzing the decoder: real files of every format that can be written here, changed, through the confined process."""

import random
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.errors import AudioTooLong, DecodeTimeout, EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.isolation import Decoding, Isolation
from scripts.fuzzing.inputs import mutate, seeds
from scripts.fuzzing.target import Finding, Target
from tests.pipeline.sounds import CLIP, LOSSLESS, LOSSY, encode_audio, film, one_byte_packets, read

FILES = len(LOSSLESS) + len(LOSSY) + 2
LONGEST_S = 30
OF_THE_FILE = (AudioTooLong, DecodeTimeout, EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio)


@cache
def valid_file(number: int) -> bytes:
    """Return a second of speech in one format, or a file without sound."""
    clip = read(CLIP)[:RATE]
    if number < len(LOSSLESS):
        container, codec, sample_format = LOSSLESS[number]
        return encode_audio(clip, container, codec, sample_format=sample_format)
    number -= len(LOSSLESS)
    if number < len(LOSSY):
        container, codec, rate, layout, _ = LOSSY[number]
        bit_rate = 128_000 if codec.startswith("wma") else None
        return encode_audio(clip, container, codec, rate=rate, layout=layout, bit_rate=bit_rate)
    return film(0.2) if number == len(LOSSY) else one_byte_packets(2000)


class Containers:
    """Checks that decode one changed file each, and counts how decoders ended."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self.ends: dict[str, int] = {}

    def file(self, given: Any) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(change_file(*given))
            file.flush()
            self._count(self._decode(Path(file.name)))

    def live(self, given: Any) -> None:
        number, seed, size = given
        with self._isolation.live(DecodeLimits()) as audio:
            data = change_file(number, seed)
            feeder = threading.Thread(target=feed, args=(audio, data, size))
            feeder.start()
            self._count(listen(audio))
            audio.kill()
            feeder.join()

    def _decode(self, path: Path) -> str:
        try:
            with self._isolation.decoding(path, DecodeLimits(longest_s=LONGEST_S - 5)) as audio:
                return listen(audio)
        except OF_THE_FILE as error:
            return name(error)

    def _count(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1
        if "stopped" in end:
            raise Finding("the filter of system calls stopped a decoder")


def change_file(number: int, seed: int) -> bytes:
    return mutate(valid_file(number), random.Random(seed))


def feed(audio: Any, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        if not audio.feed(data[at : at + size]):
            return
    audio.finish()


def listen(audio: Decoding) -> str:
    """Return "heard", or the error with which decoding ended. Raises Finding for values that are not samples.

    Stops after LONGEST_S of audio, as a live session does: leaps of time stamps may mean days of silence.
    """
    heard = 0
    try:
        for samples in audio:
            heard += len(samples)
            if heard > LONGEST_S * RATE:
                break
            if not (np.isfinite(samples).all() and np.abs(samples).max(initial=0) <= 1):
                raise Finding("samples outside -1..1")
    except OF_THE_FILE as error:
        return name(error)
    return "heard"


def name(error: Exception) -> str:
    """Return the error's class, and its message too if it is about the decoder and not about the file."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if "crashed" in text or "stopped" in text else type(error).__name__


def targets(checks: Containers) -> list[Target]:
    numbers = st.integers(0, FILES - 1)
    return [
        Target("containers", st.tuples(numbers, seeds), checks.file, 40),
        Target("live-containers", st.tuples(numbers, seeds, st.integers(100, 20_000)), checks.live, 20),
    ]
