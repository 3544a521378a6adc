"""Labels the speakers of a live stream while they speak. server/live/ makes one LiveSpeakers for a session.

    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    label = speakers.label(word, None)        # of a word that becomes final now; it may be revised
    runs = speakers.listen({None: samples})   # on a thread; the words that have another label now
    states = speakers.take_states()           # to store for a restart, after listen()
    turns, runs = speakers.finish()           # all turns, and the final label of every word

What is stored is all that the next window depends on, to the last bit (live_channel.py has the theory). So after a
restart a stream goes on as if nothing had happened, and skips what comes again. Only words that no window has keep
their labels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pipeline.attribution import SpeakerRun, SpeakerTimesByChannel, join_runs, word_turn
from pipeline.audio import RATE, Samples
from pipeline.speakers.diarizer import find_all_voices
from pipeline.speakers.live_channel import Labels, LiveChannel
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.state import ChannelState, StateByChannel
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn, Word

_LAG = 60 * RATE  # words of one channel are final at most so much later than those of another


@dataclass(slots=True)
class LabelledWord:
    """A final word, in positions of the stream, and the label that readers know, if any."""

    word: Word
    channel: int | None
    label: str | None
    settled: bool = False  # a restart lost the audio around it, so its label stays


class LiveSpeakers:
    """Labels the words of one session. label() is called on the event loop, the others on a thread, one at a time."""

    def __init__(
        self,
        models: SpeakerModels | None,
        options: SpeakerOptions,
        origins: Mapping[int | None, int | None],
        words: Sequence[LabelledWord] = (),
        states: StateByChannel | None = None,
    ) -> None:
        """*origins* has the position at which the samples of each channel begin, None where none come any more.

        Readers already have *words*.
        *states* were stored before. Without *models* two speakers take turns by sentences.
        """
        states = states or {}
        self._models = models
        self._options = options
        self._words = list(words)
        self._sentences: Counter[int | None] = Counter()
        self._labels = Labels()
        self._channels = {
            channel: LiveChannel(models, channel, origin, self._labels, states.get(channel, ChannelState()))
            for channel, origin in origins.items()
        }
        if models is None or not all(channel.is_exact for channel in self._channels.values()):
            self._labels.skip(one.label for one in words)
        if models is None:
            self._replay()
        for one in words:
            one.settled = models is None or not self._channels[one.channel].covers(one.word)

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
            self._channels[name].receive(own)
        borders: dict[int | None, int] = {}
        while ready := [name for name in samples if self._channels[name].is_ready]:
            for name in ready:  # second by second on all channels, because they share their labels
                border = self._channels[name].listen(self._options)
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

    def take_states(self, *, with_samples: bool = True) -> dict[int | None, ChannelState] | None:
        """Return what is known now, with the lasting windows since the last call. None if nothing is new.

        Without samples, which are those of the last 11 s, a stream goes on exactly if it hears them again.
        """
        if not any(channel.has_news for channel in self._channels.values()):
            return None
        return {name: channel.take_state(with_samples=with_samples) for name, channel in self._channels.items()}

    def finish(self) -> tuple[tuple[SpeakerTurn, ...], list[SpeakerRun]]:
        """Listen to the end; return the turns of all speakers and the runs of all words, [] where nobody spoke."""
        turns: list[SpeakerTurn] = []
        if self._models is not None:
            for channel in self._channels.values():
                channel.end()
            windows = {name: channel.windows for name, channel in self._channels.items()}
            for name, (voices, people) in find_all_voices(windows, self._options).items():
                channel = self._channels[name]
                channel.use(voices, people)
                turns += [replace(turn, channel=name) for turn in channel.named_turns()]
        settled = [one for one in self._words if one.settled]
        turns += [word_turn(one.label, one.word, one.channel) for one in settled if one.label is not None]
        turns.sort(key=lambda turn: turn.start)
        times = SpeakerTimesByChannel(turns)
        labels = [times.speaker_of(one.word, one.channel) for one in self._words]
        return tuple(turns), join_runs((number, label) for number, label in enumerate(labels) if label is not None)

    def _replay(self) -> None:
        """Continue with the two speakers of each channel where the earlier words end."""
        for one in self._words:
            if one.label is not None and one.channel in self._channels:
                self._channels[one.channel].give(self._sentences[one.channel] % 2, one.label)
                self._sentences[one.channel] += _ends_sentence(one.word)


def _ends_sentence(word: Word) -> bool:
    return word.text.endswith((".", "?", "!"))
