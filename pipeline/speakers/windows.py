"""Analyses ten seconds at a time: which voices speak in them when, and the embeddings of their turns.

Voices are local: they are numbered anew in each window.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.speakers.models import (
    HOP,
    OFFSET,
    SIZE,
    STEP,
    VOICES,
    Array,
    SegmentationModel,
    VoiceEncoder,
    mel_frames,
    piece_lengths,
    unit,
)

FILE_STEP = 295
"""Frames, 5 s, from one window of a file to the next."""

SPEAKING = 0.5
"""The probability from which a local voice counts as speaking in a window."""

_EARLY = 2  # frames by which the windows of a live stream begin earlier than those of a file

PAUSE = 12
"""Frames, 0.2 s: a longer pause ends a turn."""

SHORTEST = 12
"""Mel frames, 0.12 s: a shorter turn has no sound of its own."""

KNOWN_SHARE = 0.5
"""A turn takes over a piece of the window before if it has this share of the piece's frames."""

NEW = 36
"""Frames, 0.6 s: less speech than this next to known pieces needs no embedding of its own."""


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


def average(turns: Sequence[LocalTurn | Piece]) -> Array:
    """Return what a voice sounds like in several turns or pieces together."""
    return unit(np.sum([turn.embedding * turn.seconds for turn in turns], axis=0, dtype=np.float32))


Frames: TypeAlias = NDArray[np.intp]

_Known: TypeAlias = tuple[int, int, Array]
"""From and to which frame a piece reaches, and its embedding."""

_New: TypeAlias = tuple[Array, list[Piece]]
"""The mel spectrum of a stretch of speech, and its pieces. Their embeddings are zeros until they are filled in."""


class SpeakerModels:
    """Both loaded models. Any number of recordings on any threads share them."""

    def __init__(self) -> None:
        """Load the weights, which takes 0.1 s and 40 MB. Raises ModelUnavailable."""
        self._segmenter = SegmentationModel()
        self._encoder = VoiceEncoder()
        self._cpu_s = 0.0
        self._counting = Lock()

    def cpu_s(self) -> float:
        """Return the processor time, in seconds, that listening took so far on all threads."""
        return self._cpu_s

    def listen(self, samples: Samples, start: int, before: Window | None = None) -> Window:
        """Return the result for up to LENGTH samples that begin at frame *start*. It takes 0.03 s of CPU.

        *before* is an earlier window of the recording. Speech in both keeps the embeddings that it has there.
        """
        return self.listen_to_several({start: samples}, before)[0]

    def listen_to_several(self, stretches: Mapping[int, Samples], before: Window | None) -> list[Window]:
        """Return what listen() returns for each of *stretches*, by first frame and in order, at a lower cost."""
        began = time.thread_time()
        windows: list[Window] = []
        new: list[_New] = []
        try:
            speech = self._segmenter(list(stretches.values()))
            for (start, samples), own in zip(stretches.items(), speech, strict=True):
                known = [] if before is None else known_pieces(before, start)
                before = _window(samples, start, own[: max(1, -(-(len(samples) - OFFSET) // STEP))], known, new)
                windows.append(before)
            self._embed(new, windows)
        finally:
            with self._counting:
                self._cpu_s += time.thread_time() - began
        return windows

    def _embed(self, new: Sequence[_New], windows: Sequence[Window]) -> None:
        """Fill in the embeddings of the *new* pieces of windows, and of turns with several, all at once."""
        embeddings = self._encoder([mels for mels, _ in new])
        for (_, pieces), found in zip(new, embeddings, strict=True):
            for piece, embedding in zip(pieces, found, strict=True):
                piece.embedding[:] = embedding
        for turn in (turn for window in windows for turn in window.turns if len(turn.pieces) > 1):
            turn.embedding[:] = average(turn.pieces)


def _window(samples: Samples, start: int, speech: Array, known: Sequence[_Known], new: list[_New]) -> Window:
    """Return the window of these samples, and add to *new* its pieces whose embeddings have to be filled in."""
    alone = speech > SPEAKING
    alone &= alone.sum(axis=1, keepdims=True) == 1
    runs = [(voice, run) for voice in range(VOICES) for run in _runs(np.flatnonzero(alone[:, voice]))]
    runs = [(voice, run) for voice, run in runs if len(_mel_indices(run)) >= SHORTEST]
    cut = [_cut(run, known) for _, run in runs]
    found = _new_pieces(samples, [part for parts in cut for part in parts if not isinstance(part, Piece)])
    new += found
    pieces = iter([own for _, own in found])
    turns = (_turn(voice, run, parts, pieces) for (voice, run), parts in zip(runs, cut, strict=True))
    return Window(start, speech.astype(np.float16), tuple(turns))


def _new_pieces(samples: Samples, stretches: Sequence[Frames]) -> list[_New]:
    """Return the pieces of each stretch of frames, without embeddings."""
    first = min((int(_mel_indices(frames)[0]) for frames in stretches), default=len(samples) // HOP)
    mels = mel_frames(samples, first)
    indices = [own[own < first + len(mels)] for own in map(_mel_indices, stretches)]
    return [(mels[own - first], _pieces(frames, own)) for frames, own in zip(stretches, indices, strict=True)]


def known_pieces(window: Window, start: int) -> list[_Known]:
    """Return the pieces of a window, in order and in frames from *start*, but not those at its end: they may go on."""
    shift = window.start - start
    pieces: list[_Known] = []
    for turn in window.turns:
        first = turn.first
        for piece in turn.pieces:
            if shift + piece.after > 0 and piece.after < len(window.speech) - PAUSE:
                pieces.append((shift + first, shift + piece.after, piece.embedding))
            first = piece.after
    return sorted(pieces, key=lambda piece: piece[:2])


def _cut(run: Frames, known: Sequence[_Known]) -> list[Piece | Frames]:
    """Return the known pieces of a run, and the frames between them, except fewer than NEW."""
    parts: list[Piece | Frames] = []
    reached = int(run[0])
    for first, after, embedding in known:
        own = int(np.count_nonzero((run >= max(first, reached)) & (run < after)))
        if own >= (after - first) * KNOWN_SHARE:
            between = run[(run >= reached) & (run < first)]
            if len(between) >= NEW:
                parts.append(between)
            reached = min(after, int(run[-1]) + 1)
            parts.append(Piece(reached, own * STEP / RATE, embedding))
    rest = run[run >= reached]
    if len(rest) >= NEW or not parts:
        parts.append(rest)
    return parts


def _pieces(frames: Frames, indices: Frames) -> list[Piece]:
    """Return the pieces of a stretch of frames, without embeddings. *indices* are its mel frames."""
    lengths = piece_lengths(len(indices))
    reached = [*((indices[np.cumsum(lengths)[:-1]] * HOP - OFFSET) // STEP), frames[-1] + 1]
    return [
        Piece(int(after), int(length) * HOP / RATE, np.zeros(SIZE, np.float32))
        for after, length in zip(reached, lengths, strict=True)
    ]


def _turn(voice: int, run: Frames, parts: Sequence[Piece | Frames], new: Iterator[list[Piece]]) -> LocalTurn:
    """Return the turn of the frames *run*, with the next *new* pieces where its parts are frames."""
    pieces = [piece for part in parts for piece in ([part] if isinstance(part, Piece) else next(new))]
    pieces[-1] = replace(pieces[-1], after=int(run[-1]) + 1)
    embedding = pieces[0].embedding if len(pieces) == 1 else average(pieces)
    return LocalTurn(
        voice, int(run[0]), pieces[-1].after, sum(piece.seconds for piece in pieces), embedding, tuple(pieces)
    )


def _runs(frames: Frames) -> list[Frames]:
    """Split the indices of frames where more than PAUSE are missing."""
    return np.split(frames, np.flatnonzero(np.diff(frames) > PAUSE) + 1) if len(frames) else []


def _mel_indices(frames: Frames) -> Frames:
    """Return the indices of the mel frames that lie in these frames."""
    first = (frames * STEP + OFFSET) // HOP
    return np.unique(np.concatenate([first, first + 1]))  # a frame lasts for 1.7 of them
