"""The encodings, rates and channels of raw audio that are accepted, live and in files. pcm.py decodes them.

It has no imports of its own, so that server/model/bounds.py can use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]

SAMPLE_BYTES: Mapping[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""The bytes of one sample in each encoding."""

RATES = range(8_000, 48_001)
"""Samples a second."""

CHANNELS = range(1, 3)
"""The numbers of channels of mixed audio."""

SEPARATE_CHANNELS = range(2, 9)
"""The numbers of separate channels: as many as a file may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAudio:
    """What a file without a header holds: interleaved samples."""

    encoding: Encoding = "pcm_s16le"
    rate: int = 16_000
    channels: int = 1
