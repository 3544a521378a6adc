"""Finds who speaks when in a whole recording: assigns the local voices of all windows to the recording's voices."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE
from pipeline.speakers.frames import OFFSET, STEP, VOICES, Window, average

Array = NDArray[np.float32]

SPEAKS = 0.5
"""Somebody speaks in a frame if the mean number of voices, over all windows with this frame, is at least this."""

TWO_SPEAK = 1.2
"""The same for two voices. The model misses much overlapping speech, and seldom finds it where there is none."""

ALIKE_BY = 0.04
"""A piece of a turn goes to another voice than the rest of its local voice if its cosine is higher by this."""

SOUNDS_S = 0.6
"""A turn shorter than this has the voice of its local voice, whatever it sounds like."""

_MARGIN = 6  # frames around a turn that are its voice's too
_LEAST = 0.02  # the probability below which nobody is taken for a second voice
_PAUSE = RATE // 2  # shorter pauses are no end of a turn
_SHORTEST = RATE // 10  # shorter turns are left out


@dataclass(frozen=True, slots=True)
class VoiceTurn:
    """A stretch in which one voice speaks. Turns of two voices may overlap."""

    voice: int  # 0, 1, ...: which of the voices of the recording
    start: int
    end: int


def voice_turns(windows: Sequence[Window], voices: Array, duration: int) -> list[VoiceTurn]:
    """Return the turns of *voices*, embeddings one a row, in a recording of *duration* samples, by their starts."""
    if not len(voices):
        return []
    frames = max(window.start + len(window.speech) for window in windows)
    speech = np.zeros((frames, len(voices)), np.float32)
    window_count = np.zeros((frames, 1), np.float32)
    people = np.zeros(frames, np.float32)  # how many speak at once
    for window in windows:
        span = slice(window.start, window.start + len(window.speech))
        window_count[span] += 1
        people[span] += window.speech.sum(axis=1, dtype=np.float32)
        for local, owners in _owners(window, voices).items():
            own = np.arange(span.start, span.stop), owners
            speech[own] += window.speech[:, local]
    window_count = np.maximum(window_count, 1)
    return _turns(_speakers_of_frames(speech / window_count, people / window_count[:, 0]), duration)


def match(likeness: Array) -> list[int]:
    """Return a voice for each local voice, so that the sum of their likeness is the greatest and no voice occurs twice.

    *likeness* has the shape (local voices, voices). If there are more local voices than voices, each of those that are
    left over gets the voice that it resembles most.
    """
    local, voices = likeness.shape
    if local <= voices:
        return _best_pairs(likeness)
    rows = _best_pairs(likeness.T)
    return [rows.index(one) if one in rows else int(likeness[one].argmax()) for one in range(local)]


def _best_pairs(likeness: Array) -> list[int]:
    """Return a column for each of at most VOICES rows. Only the rows' best columns can be in the best pairing."""
    rows = len(likeness)
    columns = np.unique(np.argsort(-likeness, axis=1)[:, :rows])
    chosen = max(permutations(columns, rows), key=lambda pick: float(likeness[np.arange(rows), list(pick)].sum()))
    return [int(column) for column in chosen]


def _owners(window: Window, voices: Array) -> dict[int, NDArray[np.intp]]:
    """Return the voice of every frame of each local voice that has turns."""
    own = {local: turns for local in range(VOICES) if (turns := window.of_voice(local))}
    if not own:
        return {}
    likeness = np.array([average(turns) for turns in own.values()]) @ voices.T
    owners: dict[int, NDArray[np.intp]] = {}
    for (local, turns), voice in zip(own.items(), match(likeness), strict=True):
        owners[local] = np.full(len(window.speech), voice)
        for turn in turns:
            if turn.seconds < SOUNDS_S:
                continue
            scores = np.array([piece.embedding for piece in turn.pieces]) @ voices.T
            scores[:, voice] += ALIKE_BY
            start = max(0, turn.first - _MARGIN)
            for piece, owner in zip(turn.pieces, scores.argmax(axis=1), strict=True):
                end = piece.after + (_MARGIN if piece is turn.pieces[-1] else 0)
                owners[local][start:end] = owner
                start = end
    return owners


def _speakers_of_frames(speech: Array, people: Array) -> NDArray[np.bool_]:
    """Return who speaks in each frame, (frames, voices): as many as *people* says, the most probable ones."""
    count = ((people >= SPEAKS).astype(int) + (people >= TWO_SPEAK))[:, None]
    rank = np.argsort(np.argsort(-speech, axis=1, kind="stable"), axis=1, kind="stable")
    speaking: NDArray[np.bool_] = (rank < count) & (speech > _LEAST)
    return speaking


def _turns(speaking: NDArray[np.bool_], duration: int) -> list[VoiceTurn]:
    turns: list[VoiceTurn] = []
    for voice, frames in enumerate(speaking.T):
        changes = np.flatnonzero(np.diff(frames.astype(np.int8), prepend=0, append=0)) * STEP + OFFSET
        spans: list[tuple[int, int]] = []
        for start, end in changes.reshape(-1, 2).tolist():
            joined = spans.pop()[0] if spans and start - spans[-1][1] <= _PAUSE else start
            spans.append((joined, end))
        turns += [VoiceTurn(voice, start, min(end, duration)) for start, end in spans if end - start >= _SHORTEST]
    return sorted(turns, key=lambda turn: (turn.start, turn.voice))
