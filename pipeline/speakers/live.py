"""Labels the speakers of a live stream while they speak. server/live/ makes one LiveSpeakers for a session.

    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    label = speakers.label(word, None)        # of a word that becomes final now; it may be revised
    runs = speakers.listen({None: samples})   # on a thread; the words that have another label now
    state = speakers.state()                  # to store for a restart, after listen()
    turns = speakers.finish()                 # all turns, which have the final label of every word

After a restart earlier words keep their labels, and voices that sound like those of the state have theirs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pipeline.attribution import SpeakerRun, join_runs, word_turn
from pipeline.audio import RATE, Samples
from pipeline.speakers.diarizer import find_all_voices
from pipeline.speakers.live_channel import Labels, LiveChannel
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.state import SpeakerState
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn, Word

MOST_PAUSE = RATE // 2
"""A pause between two words up to which a turn goes on."""

_LAG = 60 * RATE  # words of one channel are final at most so much later than those of another


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
            channel: LiveChannel(
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
