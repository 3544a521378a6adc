"""What a session remembers of its speakers over a restart: the sound of each label's voice, and no audio."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

Array = NDArray[np.float32]

Voices: TypeAlias = Mapping[str, Array]
"""The embedding, of shape (SIZE,), of the voice of each label."""


@dataclass(frozen=True, slots=True)
class SpeakerState:
    """The voices that have labels. Known people are not among them."""

    next_label: int = 1  # the number of the label that the next new voice gets
    voices: Mapping[int | None, Voices] = field(default_factory=dict)  # by channel, or None for all mixed

    def labels(self) -> set[str]:
        return {label for own in self.voices.values() for label in own}

    def to_bytes(self) -> bytes:
        """Return it as JSON, 2 kB for each voice."""
        rows = [
            (channel, label, base64.b64encode(voice.astype("<f4").tobytes()).decode())
            for channel, own in self.voices.items()
            for label, voice in own.items()
        ]
        return orjson.dumps({"next_label": self.next_label, "voices": rows})


def read_state(body: bytes) -> SpeakerState:
    """Return what to_bytes() made."""
    stored = orjson.loads(body)
    voices: dict[int | None, dict[str, Array]] = {}
    for channel, label, voice in stored["voices"]:
        voices.setdefault(channel, {})[label] = np.frombuffer(base64.b64decode(voice), "<f4").astype(np.float32)
    return SpeakerState(stored["next_label"], voices)
