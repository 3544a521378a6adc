"""The recognition of files, as workers use it, and the speaker options of an order. Imports no network code."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.batch import BatchOptions
from pipeline.speakers.options import MOST_VOICES, SpeakerOptions
from pipeline.words import Chunk
from server.model.orders import Order


class Transcriber(Protocol):
    """The part of pipeline.batch.Batch that workers use."""

    @property
    def engine_name(self) -> str: ...

    @property
    def model_name(self) -> str: ...

    async def learn_voices(self, recordings: Mapping[str, bytes]) -> Mapping[str, NDArray[np.float32]]: ...

    def transcribe(self, path: Path, options: BatchOptions, *, done: Sequence[Chunk] = ()) -> AsyncGenerator[Chunk]: ...


def speaker_options(order: Order, known: Mapping[str, NDArray[np.float32]] | None = None) -> SpeakerOptions | None:
    """The speaker options of an order; None if it does not ask who speaks."""
    if not order.diarize:
        return None
    return SpeakerOptions(most=order.max_speakers or MOST_VOICES, known=known or {})
