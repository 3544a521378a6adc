"""The encodings, rates and channels of raw live audio that are accepted. pcm.py decodes them.

It has no imports of its own, so that server/model/bounds.py can use it.
"""

from collections.abc import Mapping
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
