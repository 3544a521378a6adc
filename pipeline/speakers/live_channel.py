"""Finds who speaks on one channel of a live stream. live.py makes one LiveChannel for each.

Theory. More speech means better knowledge of the voices, so labels are revised. Whenever the recording has grown by a
twentieth, all of it is clustered anew, as a file is; only a second voice needs more evidence. Between two clusterings a
new turn gets the label of the voice that it resembles most.

A label that readers know for one voice should not be given to another. So each second of the stream remembers which
label it had first, and a voice found anew keeps the lowest label of which it has most seconds. A voice without one gets
a new label, and its seconds become that label's. Two labels may turn out to be one person; then the lower label stays.

Windows end at whole seconds of the stream, and turns and labels are found after each of them. So all depends on the
audio alone: not on when words become final, nor on the pieces in which audio comes.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.attribution import SpeakerTimes
from pipeline.audio import Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.diarizer import name_voices
from pipeline.speakers.frames import LENGTH, STEP, Window
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.state import ChannelState
from pipeline.speakers.timeline import voice_turns
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn, Word, speaker_number

LIVE_STEP = 59
"""Frames, 1 s, from one window of a live stream to the next."""

SECOND = LIVE_STEP * STEP
"""Samples of what is called a second here."""

FRESH = 4
"""Windows before the last that lie a second apart. Of older ones those of a file are enough."""

RECENT = 12
"""Windows, of some 40 s, whose turns are found again after each window. Older ones are, when all is clustered anew."""

GROWTH = 1.05
"""The factor by which a recording grows until it is clustered anew. Below 20 s that is with every window."""

_DECIDED = 3  # seconds after which it is decided whether somebody spoke in a second

_STORED_TURNS = 100  # the last ones; words that come again lie in the last few


class Labels:
    """Gives out S1, S2, ..., each once in a session."""

    def __init__(self) -> None:
        self.next = 1

    def take(self) -> str:
        self.next += 1
        return f"S{self.next - 1}"

    def skip(self, labels: Iterable[str | None]) -> None:
        """Give out higher labels than these from now on."""
        self.next = max([self.next, *(speaker_number(label) + 1 for label in labels if label)])


class LiveChannel:
    """The voices of one channel."""

    def __init__(
        self, models: SpeakerModels | None, name: int | None, origin: int | None, labels: Labels, state: ChannelState
    ) -> None:
        """Continue from *state*. Samples come from *origin* on; those that *state* does not need are skipped.

        If *origin* is None, no samples come any more.
        """
        over, origin = origin is None, state.end if origin is None else origin
        self._models = models
        self._name = name
        self._labels = labels
        labels.next = max(labels.next, state.next_label)
        by_start = {window.start: window for window in [*state.lasting, *state.newest]}
        self.windows = [by_start[start] for start in sorted(by_start)]
        lost = max(0, origin - state.end)
        self.is_exact = not lost
        """Whether all continues as it would have without a restart."""
        if lost < LENGTH:
            self._begin, self._buffer = state.begin, [state.samples, np.zeros(lost, np.float32)]
            self._received, self._analysed_to = state.end + lost, state.analysed_to
        else:
            self._begin, self._buffer = origin, []  # from where on samples are kept, and these
            self._received, self._analysed_to = origin, max(state.analysed_to, -(-origin // SECOND) * SECOND)
        self._skipping = self._received - origin  # samples that come again
        self._first = -(-self._begin // STEP)  # the first frame of the samples
        self._unheard = [*_gaps(self.windows, self._begin), (self._received - lost, self._received)]
        if over:  # words soon after the last window have the nearest speaker; labels of later ones know more
            near = 2 * SECOND if self.windows else 0
            self._unheard.append((max(self._received, self._analysed_to) + near, sys.maxsize))
        self._clustered = state.clustered  # the length of what was heard when the voices were found
        self._voices = state.voices if state.clustered else None
        self._names = dict(state.names)  # by voice, until all is clustered anew
        self._turns = list(state.turns)  # the speaker is the number of the voice
        self._known = (SpeakerTimes(self._turns), self._names)  # replaced as one
        self._first_labels = list(state.first_labels)
        self._lasting: list[Window] = []  # to store
        self._place = state.lasting[-1].place if state.lasting else -1  # of the last window that was to store
        self._stored_to = self._received

    # --- words -------------------------------------------------------------------------------------------------------

    def label(self, word: Word) -> str | None:
        """Return the label of a word; None where there is no turn yet. May be called at any time, on any thread."""
        times, names = self._known
        voice = times.speaker_of(word)
        return None if voice is None else names[int(voice)]

    def name_of(self, voice: int) -> str:
        """Return the label of a voice, which gets the next one if it has none."""
        if voice not in self._names:
            self._names[voice] = self._labels.take()
        return self._names[voice]

    def give(self, voice: int, label: str) -> None:
        """Give a voice this label, unless it has one."""
        self._names.setdefault(voice, label)

    def covers(self, word: Word) -> bool:
        """Return whether the windows have the middle of a word, or the samples that come now."""
        middle = (word.start + word.end) // 2
        return not any(start <= middle < end for start, end in self._unheard)

    def named_turns(self) -> list[SpeakerTurn]:
        return [replace(turn, speaker=self._names[int(turn.speaker)]) for turn in self._turns]

    # --- what a restart needs ----------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        return self._received > self._stored_to

    def take_state(self, *, with_samples: bool) -> ChannelState:
        """Return what is known now, with the lasting windows since the last call."""
        lasting, self._lasting = self._lasting, []
        self._stored_to = self._received
        state = ChannelState(
            begin=self._begin,
            lasting=lasting,
            newest=self.windows[-1 - FRESH :],
            analysed_to=self._analysed_to,
            clustered=self._clustered,
            names=dict(self._names),
            next_label=self._labels.next,
            turns=self._turns[-_STORED_TURNS:],
            first_labels=np.array(self._first_labels, np.uint16),
        )
        if self._voices is not None:
            state = replace(state, voices=self._voices)
        if with_samples and self._buffer:
            state = replace(state, samples=np.concatenate(self._buffer))
        return state

    # --- audio -------------------------------------------------------------------------------------------------------

    def receive(self, samples: Samples) -> None:
        """Take the next samples."""
        skipped = min(self._skipping, len(samples))
        self._skipping -= skipped
        self._received += len(samples) - skipped
        self._buffer.append(samples[skipped:].astype(np.float16).astype(np.float32))  # as they are stored

    @property
    def is_ready(self) -> bool:
        """Whether there are samples for the next window."""
        return self._received - self._analysed_to >= SECOND

    def listen(self, options: SpeakerOptions) -> int:
        """Analyse the next second. Return the position after which turns were found anew, -1 if all were."""
        self._analyse(self._analysed_to + SECOND)
        if self._voices is not None and self._length < self._clustered * GROWTH:
            border = self._find_recent_turns()
        else:
            border = -1
            self._clustered = self._length
            voices = find_voices(self.windows, options.most, provisional=True, several=len(options.known) > 1)
            self.use(*name_voices(voices, options))
        self._remember_labels()
        return border

    def end(self) -> None:
        """Analyse the samples after the last window."""
        if self._received > self._analysed_to:
            self._analyse(self._received)

    def use(self, voices: NDArray[np.float32], people: Sequence[str | None]) -> None:
        """Find all turns of these voices. A voice without a name in *people* keeps its label, if it has one."""
        self._voices = voices
        found = voice_turns(self.windows, voices, self._analysed_to)
        names = {voice: name for voice, name in enumerate(people) if name is not None}
        turns = [SpeakerTurn(str(turn.voice), turn.start, turn.end) for turn in found]
        self._set_turns(
            turns, names | _inherit(_speaking_times(turns, len(self._first_labels)), self._first_labels, names)
        )

    @property
    def _length(self) -> int:
        return self._analysed_to - self.windows[0].start * STEP

    def _find_recent_turns(self) -> int:
        """Find the turns of the last windows again. Return the position after which they count."""
        assert self._voices is not None
        recent = self.windows[-RECENT:]
        base = recent[0].start
        shift = base * STEP
        border = 0 if recent[0] is self.windows[0] else shift + LENGTH // 2
        placed = [replace(window, start=window.start - base) for window in recent]
        newest = [
            SpeakerTurn(str(turn.voice), max(turn.start + shift, border), turn.end + shift)
            for turn in voice_turns(placed, self._voices, self._analysed_to - shift)
            if turn.end + shift > border
        ]
        older = [
            turn if turn.end <= border else replace(turn, end=border) for turn in self._turns if turn.start < border
        ]
        self._set_turns([*older, *newest], self._names)
        return border

    def _set_turns(self, turns: Sequence[SpeakerTurn], names: Mapping[int, str]) -> None:
        """Use these turns from now on. Voices without a label get the next ones, in order of their first turns."""
        self._turns, self._names = list(turns), dict(names)
        new = [voice for voice in dict.fromkeys(int(turn.speaker) for turn in turns) if voice not in names]
        if new:
            owners = _owners(_speaking_times(turns, len(self._first_labels)))
            for voice in new:
                number = speaker_number(self.name_of(voice))
                for second in np.flatnonzero(owners == voice):
                    self._first_labels[second] = number
        self._known = SpeakerTimes(self._turns), self._names

    def _remember_labels(self) -> None:
        """Note the labels of the last seconds that had none before."""
        until = self._analysed_to // SECOND
        first = max(0, until - _DECIDED)
        self._first_labels += [0] * (until - len(self._first_labels))
        owners = _owners(_speaking_times([turn for turn in self._turns if turn.end > first * SECOND], until))
        for second in range(first, until):
            if not self._first_labels[second] and owners[second] >= 0:
                self._first_labels[second] = speaker_number(self._names[int(owners[second])])

    def _analyse(self, end: int) -> None:
        """Analyse the window that ends at *end*. It replaces the last window if both begin with the samples."""
        assert self._models is not None
        start = max(self._first, -((LENGTH - end) // STEP))
        samples = np.concatenate(self._buffer)
        kept = max(0, start * STEP - self._begin)
        self._buffer, self._begin = [samples[kept:]], self._begin + kept
        before = self.windows[-1] if self.windows else None
        if before is not None and before.start == start == self._first:
            self.windows.pop()
        elif before is not None and before.place > self._place:
            self._lasting.append(before)
            self._place = before.place
        self.windows.append(self._models.listen(self._buffer[0][: end - start * STEP], start, before))
        self._analysed_to = end
        at = len(self.windows) - 1 - FRESH
        if at > 0 and self.windows[at].place == self.windows[at - 1].place:
            del self.windows[at]


def _gaps(windows: Sequence[Window], origin: int) -> list[tuple[int, int]]:
    """Return from where to where before *origin* no window reaches."""
    gaps: list[tuple[int, int]] = []
    reached = 0
    spans = [(window.start * STEP, (window.start + len(window.speech)) * STEP) for window in windows]
    for start, end in [*spans, (origin, origin)]:
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


def _speaking_times(turns: Sequence[SpeakerTurn], seconds: int) -> NDArray[np.int32]:
    """Return for how many samples each voice speaks in each of the first seconds, (voices, seconds)."""
    voices = max((int(turn.speaker) + 1 for turn in turns), default=0)
    spoken = np.zeros((voices, seconds), np.int32)
    for turn in turns:
        for second in range(turn.start // SECOND, min(seconds, -(-turn.end // SECOND))):
            spoken[int(turn.speaker), second] += min(turn.end, (second + 1) * SECOND) - max(turn.start, second * SECOND)
    return spoken


def _owners(spoken: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the voice that speaks most in each second, -1 where nobody speaks."""
    if not len(spoken):
        return np.full(spoken.shape[1], -1)
    return np.where(spoken.any(axis=0), spoken.argmax(axis=0), -1)


def _inherit(spoken: NDArray[np.int32], labels: Sequence[int], names: Mapping[int, str]) -> dict[int, str]:
    """Return the labels of voices without a name: the lowest that a voice has most of, of those that seconds had first.

    *spoken* has how much each voice speaks in each second.
    """
    of_seconds = np.array(labels, np.intp)
    inherited: dict[int, str] = {}
    for number in np.unique(of_seconds[of_seconds > 0]):
        votes = spoken[:, of_seconds == number].sum(axis=1)
        if votes.any() and (owner := int(votes.argmax())) not in names:
            inherited.setdefault(owner, f"S{number}")
    return inherited
