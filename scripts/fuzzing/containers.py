"""Fuzzes the decoder: real files of every format that can be written here, changed, through the confined process."""

import tempfile
import threading
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.errors import AudioTooLong, DecodeTimeout, EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Decoding, Isolation
from scripts.fuzzing.inputs import mutate, seeds
from tests.pipeline.sounds import CLIP, LOSSLESS, LOSSY, encode_audio, film, one_byte_packets, read

LONGEST_S = 30
OF_THE_FILE = (AudioTooLong, DecodeTimeout, EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio)
changed_files = st.tuples(st.integers(0, len(LOSSLESS) + len(LOSSY) + 1), seeds)


@cache
def _valid_file(number: int) -> bytes:
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


def change_file(file: tuple[int, int]) -> bytes:
    """Return a file of *changed_files*: its format's number and the seed of its changes."""
    return mutate(_valid_file(file[0]), file[1])


class Decoders:
    """Decodes one changed file at a time, and counts how decoders ended."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self.ends: Counter[str] = Counter()

    def decode(self, file: tuple[int, int]) -> None:
        with tempfile.NamedTemporaryFile() as stored:
            stored.write(change_file(file))
            stored.flush()
            try:
                with self._isolation.decoding(Path(stored.name), DecodeLimits(longest_s=LONGEST_S - 5)) as audio:
                    self._count(_listen(audio))
            except OF_THE_FILE as error:
                self._count(error)

    def decode_live(self, sent: tuple[tuple[int, int], int]) -> None:
        """Decode a file that comes in pieces of so many bytes."""
        file, size = sent
        data = change_file(file)
        with self._isolation.live(DecodeLimits()) as audio:

            def feed() -> None:
                if all(audio.feed(data[at : at + size]) for at in range(0, len(data), size)):
                    audio.finish()

            feeder = threading.Thread(target=feed)
            feeder.start()
            self._count(_listen(audio))
            audio.kill()
            feeder.join()

    def _count(self, error: Exception | None) -> None:
        self.ends["heard" if error is None else type(error).__name__] += 1
        assert "stopped" not in str(error), f"the filter of system calls stopped a decoder: {error}"


def _listen(audio: Decoding) -> Exception | None:
    """Return the error with which decoding ended, if any. What is decoded must be samples.

    Stops after LONGEST_S of audio, as a live session does: leaps of time stamps may mean days of silence.
    """
    heard = 0
    try:
        for samples in audio:
            heard += len(samples)
            if heard > LONGEST_S * RATE:
                break
            assert np.isfinite(samples).all(), "samples that are no numbers"
            assert np.abs(samples).max(initial=0) <= 1, "samples outside -1..1"
    except OF_THE_FILE as error:
        return error
    return None
