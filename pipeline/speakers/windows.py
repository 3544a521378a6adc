"""Listens to ten seconds at a time: which local voices speak in them when, and what each of their turns sounds like."""

import time
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.speakers.embedding import HOP, VoiceEncoder, mel_frames, piece_lengths
from pipeline.speakers.frames import HEARD, OFFSET, STEP, VOICES, LocalTurn, Piece, Window, average, unit
from pipeline.speakers.segmentation import SegmentationModel

PAUSE = 12
"""Frames, 0.2 s: a longer pause ends a turn."""

SHORTEST = 12
"""Mel frames, 0.12 s: a shorter turn has no sound of its own."""


class SpeakerModels:
    """Both loaded models. Any number of recordings on any threads share them."""

    def __init__(self) -> None:
        """Load the weights, which takes 0.1 s and 40 MB. Raises ModelUnavailable."""
        self._segmenter = SegmentationModel()
        self._encoder = VoiceEncoder()
        self._cpu_s = 0.0
        self._counting = Lock()

    def cpu_s(self) -> float:
        """Return the processor time, in seconds, that listen() took so far on all threads."""
        return self._cpu_s

    def listen(self, samples: Samples, start: int) -> Window:
        """Return the result for up to LENGTH samples that begin at frame *start*. It takes 0.07 s of CPU."""
        began = time.thread_time()
        try:
            return self._listen(samples, start)
        finally:
            with self._counting:
                self._cpu_s += time.thread_time() - began

    def _listen(self, samples: Samples, start: int) -> Window:
        speech = self._segmenter(samples)
        speech = speech[: max(1, -(-(len(samples) - OFFSET) // STEP))]
        mels = mel_frames(samples)
        alone = speech > HEARD
        alone &= alone.sum(axis=1, keepdims=True) == 1
        found = [
            (voice, run, heard)
            for voice in range(VOICES)
            for run in _runs(np.flatnonzero(alone[:, voice]))
            if len(heard := _mel_indices(run, len(mels))) >= SHORTEST
        ]
        embeddings = self._encoder([mels[heard] for _, _, heard in found])
        turns = (_turn(*one, own) for one, own in zip(found, embeddings, strict=True))
        return Window(start, speech.astype(np.float16), tuple(turns))

    def voice_of(self, samples: Samples) -> NDArray[np.float32]:
        """Return what the voice of SHORTEST or more mel frames of one person's speech sounds like."""
        mels = mel_frames(samples)
        (embeddings,) = self._encoder([mels])
        return unit(embeddings.T @ piece_lengths(len(mels)).astype(np.float32))


def _turn(voice: int, run: NDArray[np.intp], heard: NDArray[np.intp], embeddings: NDArray[np.float32]) -> LocalTurn:
    """Return the turn of the frames *run* of a window, of whose mel frames *heard* the pieces have these embeddings."""
    lengths = piece_lengths(len(heard))
    reached = [*((heard[np.cumsum(lengths)[:-1]] * HOP - OFFSET) // STEP), run[-1] + 1]
    pieces = tuple(
        Piece(int(after), int(length) * HOP / RATE, embedding)
        for after, length, embedding in zip(reached, lengths, embeddings, strict=True)
    )
    whole = pieces[0].embedding if len(pieces) == 1 else average(pieces)
    return LocalTurn(voice, int(run[0]), int(run[-1]) + 1, len(heard) * HOP / RATE, whole, pieces)


def _runs(frames: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split the indices of frames where more than PAUSE are missing."""
    return np.split(frames, np.flatnonzero(np.diff(frames) > PAUSE) + 1) if len(frames) else []


def _mel_indices(frames: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Return the indices of the mel frames that lie in these frames, below *count*."""
    first = (frames * STEP + OFFSET) // HOP
    reached = np.unique(np.concatenate([first, first + 1]))  # a frame lasts for 1.7 of them
    return reached[reached < count]
