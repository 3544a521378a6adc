"""Turns raw audio, live and in files, into samples at 16 kHz.

Nothing is parsed, so live audio needs no separate process. The values of mu-law and A-law are from ITU-T G.711 (tables
1a and 2a), as fractions of full scale.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Samples, floats_of
from pipeline.errors import EmptyAudio, InvalidAudio
from pipeline.ingest.input_formats import (
    CHANNELS,
    RATES,
    SAMPLE_BYTES,
    SEPARATE_CHANNELS,
    DecodeLimits,
    Encoding,
    Probe,
    RawAudio,
)
from pipeline.ingest.mixing import Polarity
from pipeline.ingest.notes import Ledger
from pipeline.ingest.resampling import Resampler, even_out, up_to
from pipeline.ingest.source import READ_BYTES, ByteSource


def _mulaw_values() -> Samples:
    code = ~np.arange(256) & 0xFF
    magnitude = ((2 * (code & 0x0F) + 33) << (code >> 4 & 7)) - 33
    return (np.where(code & 0x80, -magnitude, magnitude) / 8192).astype(np.float32)


def _alaw_values() -> Samples:
    code = np.arange(256) ^ 0x55
    chord, step = code >> 4 & 7, 2 * (code & 0x0F) + 1
    magnitude = np.where(chord == 0, step, (step + 32) << np.maximum(chord - 1, 0))
    return (np.where(code & 0x80, magnitude, -magnitude) / 4096).astype(np.float32)


LOUDEST = np.float32(2**31)
"""The largest float that is taken for a sample: full scale of 32-bit integers. Two of them have a sum and a square."""

MULAW = _mulaw_values()
ALAW = _alaw_values()


class PcmDecoder:
    """Decodes bytes of one encoding, in pieces of any length, even odd ones.

    It keeps less than one frame, and what the resampling filter needs. Channels are mixed to mono, even opposite
    ones, unless they are wanted *separate*; then the samples have the shape (n, channels). Floats above full scale are
    scaled down, and NaN becomes silence.
    """

    def __init__(self, encoding: Encoding, *, rate: int, channels: int, separate: bool = False) -> None:
        """Raise ValueError for values that are not in SAMPLE_BYTES, RATES and CHANNELS or SEPARATE_CHANNELS."""
        counts = SEPARATE_CHANNELS if separate else CHANNELS
        if encoding not in SAMPLE_BYTES or rate not in RATES or channels not in counts:
            raise ValueError(f"no raw audio is {encoding} at {rate} Hz with {channels} channels")
        self._separate = separate
        self._encoding = encoding
        self._channels = channels
        self._frame_bytes = channels * SAMPLE_BYTES[encoding]
        self._rest = b""
        self._polarity = Polarity(rate)
        bounded = encoding != "pcm_f32le"
        self._resamplers = [Resampler(rate, full_scale=bounded) for _ in range(channels if separate else 1)]

    def decode(self, data: bytes) -> Samples:
        """Return the samples that *data* completes and the filter releases."""
        data = self._rest + data if self._rest else data
        whole = len(data) - len(data) % self._frame_bytes
        self._rest = data[whole:]
        values = self._values(np.frombuffer(data, np.uint8, whole))
        if self._separate:
            columns = zip(self._resamplers, values.reshape(-1, self._channels).T, strict=True)
            return np.stack([one.resample(np.ascontiguousarray(column)) for one, column in columns], axis=1)
        if self._channels == 1:
            return self._resamplers[0].resample(values)
        frames = values.reshape(-1, self._channels)
        gains = self._polarity.gains(*frames.T)
        if gains is not None:
            frames = np.stack((frames[:, 0], frames[:, 1] * gains), axis=1)
        return self._resamplers[0].resample(frames.mean(axis=1, dtype=np.float32))

    def flush(self) -> Samples:
        """Return what the filter still holds. An incomplete frame at the end is dropped."""
        rests = [resampler.flush() for resampler in self._resamplers]
        return np.stack(rests, axis=1) if self._separate else rests[0]

    def _values(self, data: NDArray[np.uint8]) -> Samples:
        match self._encoding:
            case "pcm_s16le":
                return floats_of(data.view("<i2"))
            case "pcm_f32le":
                floats: Samples = data.view("<f4").astype(np.float32)
                np.nan_to_num(floats, copy=False, posinf=1.0, neginf=-1.0)
                return floats.clip(-LOUDEST, LOUDEST)
            case "mulaw":
                return MULAW[data]
            case "alaw":
                return ALAW[data]


class RawRecording:
    """A file of raw audio. It can be iterated once, like an OpenRecording, and raises AudioTooLong like one."""

    def __init__(self, source: ByteSource, raw: RawAudio, limits: DecodeLimits, *, separate: bool) -> None:
        """Raises EmptyAudio, InvalidAudio."""
        self._source = source
        self._limits = limits
        self._ledger = Ledger()
        separate = separate and raw.channels > 1
        self._decoder = PcmDecoder(raw.encoding, rate=raw.rate, channels=raw.channels, separate=separate)
        frame_bytes = SAMPLE_BYTES[raw.encoding] * raw.channels
        size = source.seek(0, 2)
        source.seek(0)
        if size == 0:
            raise EmptyAudio("The file has no bytes.")
        if size < frame_bytes:
            raise InvalidAudio(f"The file has {size} bytes, less than one sample of each channel.")
        self._ledger.leave_out(size % frame_bytes, "They are less than one sample of each channel.")
        self.probe = Probe(
            format="raw",
            codec=raw.encoding,
            rate=raw.rate,
            channels=raw.channels,
            duration_s=size // frame_bytes / raw.rate,
            duration_stated=True,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return self._ledger.notes

    def __iter__(self) -> Iterator[Samples]:
        def samples() -> Iterator[Samples]:
            while data := self._source.read(READ_BYTES):
                yield self._decoder.decode(data)
            yield self._decoder.flush()

        return up_to(self._limits.longest_s, even_out(samples()))
