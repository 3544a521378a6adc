"""Finds who speaks when in a recording, after its end. Batch makes a Diarizer for each file, or for each channel.

diarizer = Diarizer(models)
for samples in audio:
    diarizer.add_samples(samples)
diarizer.end()
turns = speaker_turns({None: diarizer}, SpeakerOptions())
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.models import LENGTH, OFFSET, STEP, VOICES, unit
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import FILE_STEP, SpeakerModels, Window, average
from pipeline.words import UNNAMED, SpeakerTurn

Array = NDArray[np.float32]

AT_ONCE = 8
"""Windows of a file that are analysed at once: the more there are, the more speech of equal length has the encoder."""

KNOWN = 0.7
"""The cosine from which a voice is that of a known person."""


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


class Diarizer:
    """Analyses one recording, window by window. It is not thread-safe."""

    def __init__(self, models: SpeakerModels) -> None:
        self._models = models
        self._windows: list[Window] = []
        self._buffer: list[Samples] = []  # from the frame self._start on
        self._start = 0
        self._next = 0  # the frame at which the next window starts
        self._received = 0

    @property
    def received(self) -> int:
        return self._received

    @property
    def windows(self) -> list[Window]:
        """The windows that were analysed so far."""
        return self._windows

    def add_samples(self, samples: Samples) -> None:
        """Take the next samples, and analyse AT_ONCE windows whenever they are complete, which takes 0.25 s of CPU."""
        self._received += len(samples)
        self._buffer.append(samples)
        while self._received >= (self._next + (AT_ONCE - 1) * FILE_STEP) * STEP + LENGTH:
            self._listen([self._next + number * FILE_STEP for number in range(AT_ONCE)])

    def end(self) -> None:
        """Analyse the rest at the end of the recording."""
        last = max(0, -((LENGTH - self._received) // STEP))
        if self._received and last > self._next - FILE_STEP:
            self._listen([*range(self._next, last, FILE_STEP), last])

    def _listen(self, starts: Sequence[int]) -> None:
        """Analyse the windows that start at these frames, and keep the samples of the last one for the next windows."""
        samples = np.concatenate(self._buffer)[(starts[0] - self._start) * STEP :]
        stretches = {start: samples[(start - starts[0]) * STEP :][:LENGTH] for start in starts}
        self._windows += self._models.listen_to_several(stretches, self._windows[-1] if self._windows else None)
        self._start = starts[-1]
        self._buffer = [samples[(self._start - starts[0]) * STEP :]]
        self._next = self._start + FILE_STEP


def speaker_turns(diarizers: Mapping[int | None, Diarizer], options: SpeakerOptions) -> list[SpeakerTurn]:
    """Return the turns of all channels in order of their starts. The key None stands for all channels mixed.

    A voice without a name gets a label that begins with UNNAMED and occurs on one channel only.
    """
    voices_by_channel = find_all_voices({channel: diarizer.windows for channel, diarizer in diarizers.items()}, options)
    turns: list[SpeakerTurn] = []
    for channel, diarizer in diarizers.items():
        voices, names = voices_by_channel[channel]
        labels = [name or f"{UNNAMED}{channel}.{voice}" for voice, name in enumerate(names)]
        turns += [
            SpeakerTurn(labels[turn.voice], turn.start, turn.end, channel)
            for turn in voice_turns(diarizer.windows, voices, diarizer.received)
        ]
    return sorted(turns, key=lambda turn: turn.start)


def find_all_voices(
    windows_by_channel: Mapping[int | None, Sequence[Window]], options: SpeakerOptions
) -> dict[int | None, tuple[Array, list[str | None]]]:
    """Return by channel what name_voices() returns: at most options.most voices in all, but one on each channel.

    Known people count even if they are absent.
    """
    several = len(options.known) > 1
    found = {
        channel: find_voices(windows, options.most, several=several) for channel, windows in windows_by_channel.items()
    }
    while sum(map(len, found.values())) > options.most:
        fullest = max(found, key=lambda channel: len(found[channel]))
        if len(found[fullest]) == 1:
            break  # each channel has somebody
        found[fullest] = find_voices(windows_by_channel[fullest], len(found[fullest]) - 1, several=several)
    named = {channel: name_voices(voices, options) for channel, voices in found.items()}
    while sum(names.count(None) for _, names in named.values()) > options.most_unnamed:
        fullest = max(named, key=lambda channel: (len(named[channel][1]) > 1, named[channel][1].count(None)))
        voices, names = named[fullest]
        if len(names) == 1 or names[-1] is not None:
            break
        named[fullest] = voices[:-1], names[:-1]
    return named


def name_voices(voices: Array, options: SpeakerOptions) -> tuple[Array, list[str | None]]:
    """Return the voices, one a row, and a name or None for each. Known people come first.

    If the options allow known people only, every voice gets the name of the person whom it resembles most.
    """
    people = options.known
    if not len(voices) or not people:
        return voices, [None] * len(voices)
    likeness = voices @ np.array(list(people.values())).T
    person = np.where((likeness.max(axis=1) >= KNOWN) | (options.most_unnamed == 0), likeness.argmax(axis=1), -1)
    present = [(index, name) for index, name in enumerate(people) if index in person]
    known = [unit(voices[person == index].sum(axis=0)) for index, _ in present]
    others = list(voices[person == -1][: options.most_unnamed])
    return np.array([*known, *others]), [*(name for _, name in present), *[None] * len(others)]


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
    first = min(window.start for window in windows)
    frames = max(window.start + len(window.speech) for window in windows) - first
    speech = np.zeros((frames, len(voices)), np.float32)
    window_count = np.zeros((frames, 1), np.float32)
    people = np.zeros(frames, np.float32)  # how many speak at once
    for window in windows:
        span = slice(window.start - first, window.start - first + len(window.speech))
        window_count[span] += 1
        people[span] += window.speech.sum(axis=1, dtype=np.float32)
        for local, owners in _owners(window, voices).items():
            own = np.arange(span.start, span.stop), owners
            speech[own] += window.speech[:, local]
    window_count = np.maximum(window_count, 1)
    return _turns(_speakers_of_frames(speech / window_count, people / window_count[:, 0]), first, duration)


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


def _turns(speaking: NDArray[np.bool_], first: int, duration: int) -> list[VoiceTurn]:
    """Return the turns of voices that speak in these frames, from frame *first* of the recording on."""
    turns: list[VoiceTurn] = []
    for voice, frames in enumerate(speaking.T):
        changes = (np.flatnonzero(np.diff(frames.astype(np.int8), prepend=0, append=0)) + first) * STEP + OFFSET
        spans: list[tuple[int, int]] = []
        for start, end in changes.reshape(-1, 2).tolist():
            joined = spans.pop()[0] if spans and start - spans[-1][1] <= _PAUSE else start
            spans.append((joined, end))
        turns += [VoiceTurn(voice, start, min(end, duration)) for start, end in spans if end - start >= _SHORTEST]
    return sorted(turns, key=lambda turn: (turn.start, turn.voice))
