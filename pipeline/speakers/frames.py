"""The frames of speaker labelling, and the results of one window, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE

Array = NDArray[np.float32]

STEP = 270
"""Samples from one frame to the next."""

LENGTH = 10 * RATE
"""Samples in a window."""

FILE_STEP = 295
"""Frames, 5 s, from one window of a file to the next."""

FRAMES = 589
"""Frames of a window."""

OFFSET = 360
"""Frame *n* of a window means the STEP samples after its sample n * STEP + OFFSET: the middle of the model's input."""

VOICES = 3
"""Voices that a window can have."""

HEARD = 0.5
"""The probability from which a local voice counts as speaking in a window."""

SIZE = 256
"""Numbers in an embedding."""


_EARLY = 2  # frames by which the windows of a live stream begin earlier than those of a file


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a turn, of about 1.6 s, in which another person may speak after all."""

    after: int  # frame of the window, up to which it reaches from the end of the piece before
    seconds: float  # of speech in it
    embedding: Array


@dataclass(frozen=True, slots=True)
class LocalTurn:
    """A stretch of a window in which one local voice speaks alone, but for short pauses."""

    voice: int  # of the window: 0, 1 or 2
    first: int  # frame of the window
    after: int
    seconds: float  # of speech in it
    embedding: Array
    pieces: tuple[Piece, ...]  # at least one, in order


@dataclass(frozen=True, slots=True)
class Window:
    """The result of up to ten seconds from frame *start* of the recording."""

    start: int
    speech: NDArray[np.float16]  # (frames, VOICES): the probability that a local voice speaks
    turns: tuple[LocalTurn, ...]

    @property
    def place(self) -> int:
        """Which window of a file this one can stand for: the first of a live stream with the same place does."""
        return (self.start + _EARLY) // FILE_STEP

    def of_voice(self, voice: int) -> list[LocalTurn]:
        return [turn for turn in self.turns if turn.voice == voice]


def turn_of_pieces(voice: int, first: int, pieces: Sequence[Piece]) -> LocalTurn:
    """Return the turn that these pieces, in order, make from frame *first* on."""
    embedding = pieces[0].embedding if len(pieces) == 1 else average(pieces)
    return LocalTurn(voice, first, pieces[-1].after, sum(piece.seconds for piece in pieces), embedding, tuple(pieces))


def average(turns: Sequence[LocalTurn | Piece]) -> Array:
    """Return what a voice sounds like in several turns or pieces together."""
    return unit(np.sum([turn.embedding * turn.seconds for turn in turns], axis=0, dtype=np.float32))


def unit(vectors: Array) -> Array:
    """Return the vectors, one a row, with length 1. A vector of zeros stays one."""
    scaled: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return scaled
