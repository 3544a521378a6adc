"""Finds who speaks when in a recording, after its end. Batch makes a Diarizer for each file, or for each channel.

diarizer = Diarizer(models)
for samples in audio:
    diarizer.add_samples(samples)
diarizer.end()
turns = speaker_turns({None: diarizer}, SpeakerOptions())
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.frames import FILE_STEP, LENGTH, STEP, Window, unit
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.timeline import voice_turns
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import UNNAMED, SpeakerTurn

Array = NDArray[np.float32]

AT_ONCE = 8
"""Windows of a file that are analysed at once: the more there are, the more speech of equal length has the encoder."""

KNOWN = 0.7
"""The cosine from which a voice is that of a known person."""


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
