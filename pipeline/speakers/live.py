"""Labels the speakers of a live stream while they speak. server/live/ makes one LiveSpeakers for a session.

    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    label = speakers.label(word, None)        # of a word that becomes final now; it may be revised
    runs = speakers.listen({None: samples})   # on a thread; the words that have another label now
    state = speakers.state()                  # to store for a restart, after listen()
    turns = speakers.finish()                 # all turns, which have the final label of every word

Theory. More speech means better knowledge of the voices, so labels are revised. Whenever the recording has grown by a
twentieth, all of it is clustered anew, as a file is; only a second voice needs more evidence. Between two clusterings a
new turn gets the label of the voice that it resembles most.

A label that readers know for one voice should not be given to another. So each second of the stream remembers which
label it had first, and a voice found anew keeps the lowest label of which it has most seconds. A voice without one gets
a new label, and its seconds become that label's. Two labels may turn out to be one person; then the lower label stays.

After a restart earlier words keep their labels. Nothing is left of the windows but the sound of each label's voice. A
voice that is found then has the label of the voice that it resembles most, if it is like SAME.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.attribution import SpeakerRun, SpeakerTimes, join_runs, word_turn
from pipeline.audio import RATE, Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.diarizer import find_all_voices, name_voices, voice_turns
from pipeline.speakers.models import LENGTH, STEP
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels, Window
from pipeline.words import SpeakerTurn, Word, speaker_number

Array = NDArray[np.float32]

Voices: TypeAlias = Mapping[str, Array]
"""The embedding, of shape (SIZE,), of the voice of each label."""

MOST_PAUSE = RATE // 2
"""A pause between two words up to which a turn goes on."""

_LAG = 60 * RATE  # words of one channel are final at most so much later than those of another

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

SAME = 0.8
"""The cosine from which a voice after a restart is one from before it. Of 44 voices in two halves of a conversation all
were so alike, of 75 pairs of two people 4 %."""

_DECIDED = 3  # seconds after which it is decided whether somebody spoke in a second


@dataclass(frozen=True, slots=True)
class SpeakerState:
    """The voices that have labels. Known people are not among them."""

    next_label: int = 1  # the number of the label that the next new voice gets
    voices: Mapping[int | None, Voices] = field(default_factory=dict)  # by channel, or None for all mixed

    def labels(self) -> set[str]:
        return {label for own in self.voices.values() for label in own}

    def to_bytes(self) -> bytes:
        """Return it as JSON, 2 kB for each voice."""
        rows = [
            (channel, label, base64.b64encode(voice.astype("<f4").tobytes()).decode())
            for channel, own in self.voices.items()
            for label, voice in own.items()
        ]
        return orjson.dumps({"next_label": self.next_label, "voices": rows})


def read_state(body: bytes) -> SpeakerState:
    """Return what to_bytes() made."""
    stored = orjson.loads(body)
    voices: dict[int | None, dict[str, Array]] = {}
    for channel, label, voice in stored["voices"]:
        voices.setdefault(channel, {})[label] = np.frombuffer(base64.b64decode(voice), "<f4").astype(np.float32)
    return SpeakerState(stored["next_label"], voices)


@dataclass(slots=True)
class LabelledWord:
    """A final word, in positions of the stream, and the label that readers know, if any."""

    word: Word
    channel: int | None
    label: str | None
    settled: bool = False  # its label stays, because its audio came before a restart


class LiveSpeakers:
    """Labels the words of one session. label() is called on the event loop, the others on a thread, one at a time."""

    def __init__(
        self,
        models: SpeakerModels | None,
        options: SpeakerOptions,
        origins: Mapping[int | None, int],
        words: Sequence[LabelledWord] = (),
        state: SpeakerState | None = None,
    ) -> None:
        """Label the words that follow *words*, which readers have.

        *models* None: two speakers take turns by sentences.
        *origins* has the position at which the samples of each channel begin.
        *state* is what state() returned before a restart.
        """
        state = state or SpeakerState()
        self._models = models
        self._options = options
        self._words = [replace(one, settled=models is None or one.label is not None) for one in words]
        self._sentences: Counter[int | None] = Counter()
        self._labels = Labels(state.next_label)
        self._labels.skip(one.label for one in words)
        self._channels = {
            channel: ChannelVoices(
                models, origin, labels=self._labels, options=options, earlier=state.voices.get(channel, {})
            )
            for channel, origin in origins.items()
        }
        if models is None:
            self._replay()

    def label(self, word: Word, channel: int | None) -> str | None:
        """Return the label of the next final word; None if no voice is known yet."""
        if self._models is not None:
            label = self._channels[channel].label(word)
        else:
            label = self._channels[channel].name_of(self._sentences[channel] % 2)
            self._sentences[channel] += _ends_sentence(word)
        self._words.append(LabelledWord(word, channel, label, settled=self._models is None))
        return label

    def last_labels(self, count: int, channel: int | None) -> Counter[str]:
        """Count the labels that the last *count* words of a channel have now."""
        last = islice((one.label for one in reversed(self._words) if one.channel == channel), count)
        return Counter(label for label in last if label is not None)

    def listen(self, samples: Mapping[int | None, Samples]) -> list[SpeakerRun]:
        """Listen to the next samples of each channel, 0.04 s of CPU for each second; return the words that change."""
        if self._models is None:
            return []
        for name, own in samples.items():
            self._channels[name].add_samples(own)
        borders: dict[int | None, int] = {}
        while ready := [name for name in samples if self._channels[name].is_ready]:
            for name in ready:  # second by second on all channels, because they share their labels
                border = self._channels[name].listen()
                borders[name] = min(border, borders.get(name, border))
        if not borders:
            return []
        changed: list[tuple[int, str]] = []
        for number in range(len(self._words) - 1, -1, -1):
            one = self._words[number]
            if one.word.end + _LAG <= min(borders.values()):
                break  # a session of hours has many words, and this is done each second
            border = borders.get(one.channel, one.word.end)
            if not one.settled and one.word.end > border:
                label = self._channels[one.channel].label(one.word)
                if label is not None and label != one.label:
                    one.label = label
                    changed.append((number, label))
        return join_runs(reversed(changed))

    def state(self) -> SpeakerState:
        """Return what a restart needs. It has no audio."""
        return SpeakerState(self._labels.next, {name: channel.voices() for name, channel in self._channels.items()})

    def finish(self) -> tuple[SpeakerTurn, ...]:
        """Listen to the end; return the turns of all speakers. They say who spoke each word."""
        settled = [one for one in self._words if one.settled]
        settled_to = {one.channel: one.word.end for one in settled}  # words of a channel are in order
        turns = _turns_of(settled)
        if self._models is not None:
            for channel in self._channels.values():
                channel.end()
            windows = {name: channel.windows for name, channel in self._channels.items()}
            for name, (voices, people) in find_all_voices(windows, self._options).items():
                channel = self._channels[name]
                channel.use(voices, people)
                start = settled_to.get(name, 0)
                turns += [
                    replace(turn, start=max(turn.start, start), channel=name)
                    for turn in channel.named_turns()
                    if turn.end > start
                ]
        return tuple(sorted(turns, key=lambda turn: turn.start))

    def _replay(self) -> None:
        """Continue with the two speakers of each channel where the earlier words end."""
        for one in self._words:
            if one.label is not None and one.channel in self._channels:
                self._channels[one.channel].give(self._sentences[one.channel] % 2, one.label)
                self._sentences[one.channel] += _ends_sentence(one.word)


def _turns_of(words: Sequence[LabelledWord]) -> list[SpeakerTurn]:
    """Return the turns of words, which go on over pauses of up to MOST_PAUSE on their channel."""
    turns: list[SpeakerTurn] = []
    last: dict[int | None, int] = {}  # the index of the last turn on each channel
    for one in words:
        if one.label is None:
            continue
        turn, at = word_turn(one.label, one.word, one.channel), last.get(one.channel)
        if at is not None and turns[at].speaker == one.label and turn.start - turns[at].end <= MOST_PAUSE:
            turns[at] = replace(turns[at], end=max(turns[at].end, turn.end))
        else:
            last[one.channel] = len(turns)
            turns.append(turn)
    return turns


def _ends_sentence(word: Word) -> bool:
    return word.text.endswith((".", "?", "!"))


class Labels:
    """Gives out S1, S2, ..., each once in a session."""

    def __init__(self, first: int = 1) -> None:
        self.next = first

    def take(self) -> str:
        self.next += 1
        return f"S{self.next - 1}"

    def skip(self, labels: Iterable[str | None]) -> None:
        """Give out higher labels than these from now on."""
        self.next = max([self.next, *(speaker_number(label) + 1 for label in labels if label)])


class ChannelVoices:
    """The voices of one channel."""

    def __init__(
        self, models: SpeakerModels | None, origin: int, *, labels: Labels, options: SpeakerOptions, earlier: Voices
    ) -> None:
        """Samples come from position *origin* on. *earlier* has the voices that had labels before a restart."""
        self._models = models
        self._labels = labels
        self._options = options
        self._earlier = earlier
        self.windows: list[Window] = []
        self._begin, self._buffer = origin, list[Samples]()  # from where on samples are kept, and these
        self._first = -(-origin // STEP)  # the first frame of the samples
        self._received = origin
        self._analysed_to = -(-origin // SECOND) * SECOND  # where the last window ends
        self._clustered = 0  # the length of what was analysed when the voices were found
        self._voices: Array | None = None  # (voices, SIZE)
        self._names: dict[int, str] = {}  # by voice, until all is clustered anew
        self._turns: list[SpeakerTurn] = []  # the speaker is the number of the voice
        self._known = (SpeakerTimes(self._turns), self._names)  # replaced as one
        self._first_labels: list[int] = []
        """The number of the label that each second had first; 0 for a known person, an earlier label or nobody."""

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

    def named_turns(self) -> list[SpeakerTurn]:
        return [replace(turn, speaker=self._names[int(turn.speaker)]) for turn in self._turns]

    def voices(self) -> dict[str, Array]:
        """Return the newest voice of each label. Known people have none."""
        voices = dict(self._earlier)
        if self._voices is not None:
            voices |= {name: self._voices[voice] for voice, name in self._names.items() if speaker_number(name)}
        return voices

    # --- audio -------------------------------------------------------------------------------------------------------

    def add_samples(self, samples: Samples) -> None:
        """Take the next samples."""
        self._received += len(samples)
        self._buffer.append(samples)

    @property
    def is_ready(self) -> bool:
        """Whether there are samples for the next window."""
        return self._received - self._analysed_to >= SECOND

    def listen(self) -> int:
        """Analyse the next second. Return the position after which turns were found anew, -1 if all were."""
        self._analyse(self._analysed_to + SECOND)
        if self._voices is not None and self._length < self._clustered * GROWTH:
            border = self._find_recent_turns()
        else:
            border = -1
            self._clustered = self._length
            several = len(self._options.known) > 1
            voices = find_voices(self.windows, self._options.most, provisional=True, several=several)
            self.use(*name_voices(voices, self._options))
        self._remember_labels()
        return border

    def end(self) -> None:
        """Analyse the samples after the last window."""
        if self._received > self._analysed_to:
            self._analyse(self._received)

    def use(self, voices: Array, people: Sequence[str | None]) -> None:
        """Find all turns of these voices. A voice without a name in *people* keeps its label, if it has one."""
        self._voices = voices
        found = voice_turns(self.windows, voices, self._analysed_to)
        names = {voice: name for voice, name in enumerate(people) if name is not None}
        names |= self._earlier_labels(voices, names)
        turns = [SpeakerTurn(str(turn.voice), turn.start, turn.end) for turn in found]
        self._set_turns(
            turns, names | _inherit(_speaking_times(turns, len(self._first_labels)), self._first_labels, names)
        )

    def _earlier_labels(self, voices: Array, names: Mapping[int, str]) -> dict[int, str]:
        """Return the labels that voices without a name had before a restart.

        Each goes to the one voice that is most alike. Voices for which there is no other label left share one.
        """
        free = [voice for voice in range(len(voices)) if voice not in names]
        if not free or not self._earlier:
            return {}
        labels = list(self._earlier)
        likeness = voices[free] @ np.array(list(self._earlier.values())).T
        found: dict[int, str] = {}
        for row, column in zip(*np.unravel_index(np.argsort(-likeness, axis=None), likeness.shape), strict=True):
            if likeness[row, column] >= SAME and free[row] not in found and labels[column] not in found.values():
                found[free[row]] = labels[column]
        left = [row for row, voice in enumerate(free) if voice not in found]
        for row in left[max(0, self._options.most_unnamed - len(labels)) :]:
            found[free[row]] = labels[int(likeness[row].argmax())]
        return found

    @property
    def _length(self) -> int:
        return self._analysed_to - self.windows[0].start * STEP

    def _find_recent_turns(self) -> int:
        """Find the turns of the last windows again. Return the position after which they count."""
        assert self._voices is not None
        recent = self.windows[-RECENT:]
        border = 0 if recent[0] is self.windows[0] else recent[0].start * STEP + LENGTH // 2
        newest = [
            SpeakerTurn(str(turn.voice), max(turn.start, border), turn.end)
            for turn in voice_turns(recent, self._voices, self._analysed_to)
            if turn.end > border
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
                label = self._names[int(owners[second])]
                self._first_labels[second] = 0 if label in self._earlier else speaker_number(label)

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
        self.windows.append(self._models.listen(self._buffer[0][: end - start * STEP], start, before))
        self._analysed_to = end
        at = len(self.windows) - 1 - FRESH
        if at > 0 and self.windows[at].place == self.windows[at - 1].place:
            del self.windows[at]


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
