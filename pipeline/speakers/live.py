"""Labels the speakers of a live stream while they speak. server/live/ makes one LiveSpeakers for a session.

    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    label = speakers.label(word, None)        # of a word that becomes final now; it may be revised
    runs = speakers.listen({None: samples})   # on a thread; the words that have another label now
    speech = speakers.new_excerpts()          # for a restart, after listen() and when label_is_new
    turns, runs = speakers.finish()           # all turns, and the final label of every word

Theory. More speech means better knowledge of the voices, so labels are revised. Whenever the recording has grown by a
twentieth, all of it is clustered anew, as a file is; only a second voice needs more evidence. Between two clusterings a
new turn gets the label of the voice that it resembles most. A label that readers know for one voice is never given to
another. Two labels may turn out to be one person; then the lower label stays. After a restart the voices of the stored
excerpts keep their labels.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pipeline.attribution import SpeakerRun, SpeakerTimes, SpeakerTimesByChannel, join_runs, word_turn
from pipeline.audio import RATE, Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.diarizer import FILE_STEP, find_all_voices, name_voices
from pipeline.speakers.excerpts import NOTHING_REDACTED, Excerpts, RedactedSpans, SpeechOfVoices, Stretch
from pipeline.speakers.frames import LENGTH, STEP, Window
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.timeline import voice_turns
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import UNNAMED, SpeakerTurn, Word, speaker_number

LIVE_STEP = 59
"""Frames, 1 s, from one window of a live stream to the next."""

COARSE_STEP = 148
"""Frames, 2.5 s: the same where listening lags behind."""

RECENT = 30
"""After each window the turns of the last RECENT windows are found again. Older turns change only with a clustering."""

GROWTH = 1.05
"""The factor by which a recording grows until it is clustered anew. Below 20 s that is with every window."""

_LAG = 60 * RATE  # words of one channel are final at most so much later than those of another

_BEHIND = 4 * LIVE_STEP * STEP  # with more samples waiting than these, windows have the coarse step


@dataclass(slots=True)
class LabelledWord:
    """A final word, in positions of the stream, and the label that readers know, if any."""

    word: Word
    channel: int | None
    label: str | None
    first: str | None = None  # its first label, or a new one that began with it: _inherit() counts it for that label


class LiveSpeakers:
    """Labels the words of one session. label() is called on the event loop, the others on a thread, one at a time."""

    def __init__(
        self,
        models: SpeakerModels | None,
        options: SpeakerOptions,
        origins: Mapping[int | None, int],
        words: Sequence[LabelledWord] = (),
        excerpts: Excerpts | None = None,
    ) -> None:
        """*origins* has the position at which the samples of each channel begin. Readers already have *words*.

        *excerpts* of their voices were stored; listening to each takes 0.1 s of CPU. Without *models* two speakers take
        turns by sentences.
        """
        self._models = models
        self._excerpts = excerpts or {}
        self._options = options if models is None else replace(options, labelled=_voices_in(self._excerpts, models))
        self._words = list(words)
        self._before = len(words)
        self._words_on: dict[int | None, list[LabelledWord]] = {channel: [] for channel in origins}  # since then
        self._firsts = {one.first for one in words if one.first is not None}  # labels that words were sent with
        self._sentences: Counter[int | None] = Counter()
        numbers = _Numbers(one.label for one in words)
        self._channels = {channel: _Channel(models, channel, origin, numbers) for channel, origin in origins.items()}
        self._stored_lengths = {(channel, label): len(own) for channel, label, own in _each(self._excerpts)}
        self._numbers, self._number_at_excerpts = numbers, numbers.next
        if models is None:
            self._replay()

    def label(self, word: Word, channel: int | None) -> str | None:
        """Return the label of the next final word; None if no voice is known yet."""
        label = self._label(word, channel)
        self._words.append(LabelledWord(word, channel, label, label))
        self._words_on[channel].append(self._words[-1])
        if label is not None:
            self._firsts.add(label)
        return label

    def listen(self, samples: Mapping[int | None, Samples]) -> list[SpeakerRun]:
        """Listen to the next samples of each channel, 0.04 s of CPU for each second; return the words that change."""
        if self._models is None:
            return []
        news = {
            name: self._channels[name].listen(own, self._options, self._words_on[name]) for name, own in samples.items()
        }
        borders = [border for border in news.values() if border is not None]
        if not borders:
            return []
        changed: list[tuple[int, str]] = []
        for number in range(len(self._words) - 1, self._before - 1, -1):
            one = self._words[number]
            if one.word.end + _LAG <= min(borders):
                break  # a session of hours has many words, and this is done each second
            border = news.get(one.channel)
            if border is not None and one.word.end > border:
                label = self._channels[one.channel].label(one.word)
                if label is not None and label != one.label:
                    one.label = label
                    if label not in self._firsts:
                        one.first = label
                    changed.append((number, label))
        self._firsts |= {label for _, label in changed}
        return join_runs(reversed(changed))

    @property
    def label_is_new(self) -> bool:
        """Whether a label is newer than the last call of new_excerpts(). It may be so after the last samples came."""
        return self._models is not None and self._numbers.next > self._number_at_excerpts

    def new_excerpts(self, hidden: RedactedSpans = NOTHING_REDACTED) -> Excerpts | None:
        """Return the excerpts to store, if a label is new or has twice as much speech as its stored excerpt. Else None.

        They contain nothing that is *hidden* on any channel.
        """
        self._number_at_excerpts = self._numbers.next
        excerpts: dict[int | None, dict[str, Samples]] = {}
        for name, channel in self._channels.items():
            before, now = self._excerpts.get(name, {}), channel.excerpts(hidden)
            longest = {
                label: max((before, now), key=lambda one: len(one.get(label, ()))) for label in {**before, **now}
            }
            excerpts[name] = {
                label: source[label] for label, source in longest.items() if label not in self._options.known
            }
        lengths = {(channel, label): len(own) for channel, label, own in _each(excerpts)}
        if all(length < 2 * self._stored_lengths.get(key, 0) for key, length in lengths.items()):
            return None
        self._stored_lengths = lengths
        return excerpts

    def finish(self) -> tuple[tuple[SpeakerTurn, ...], list[SpeakerRun]]:
        """Listen to the end; return the turns of all speakers and the runs of all words, [] where nobody spoke."""
        turns: list[SpeakerTurn] = []
        if self._models is not None:
            for channel in self._channels.values():
                channel.end()
            windows = {name: channel.windows for name, channel in self._channels.items()}
            for name, (voices, people) in find_all_voices(windows, self._options).items():
                channel = self._channels[name]
                channel.use(voices, people, self._words_on[name])
                turns += [replace(turn, channel=name) for turn in channel.named_turns()]
        known = self._words if self._models is None else self._words[: self._before]
        turns += [word_turn(one.label, one.word, one.channel) for one in known if one.label is not None]
        turns.sort(key=lambda turn: turn.start)
        times = SpeakerTimesByChannel(turns)
        labels = [times.speaker_of(one.word, one.channel) for one in self._words]
        return tuple(turns), join_runs((number, label) for number, label in enumerate(labels) if label is not None)

    def _label(self, word: Word, channel: int | None) -> str | None:
        if self._models is not None:
            return self._channels[channel].label(word)
        label = self._channels[channel].name_of(self._sentences[channel] % 2)
        self._sentences[channel] += _ends_sentence(word)
        return label

    def _replay(self) -> None:
        """Continue with the two speakers of each channel where the earlier words end."""
        for one in self._words:
            if one.label is not None and one.channel in self._channels:
                self._channels[one.channel].give(self._sentences[one.channel] % 2, one.label)
                self._sentences[one.channel] += _ends_sentence(one.word)


def _ends_sentence(word: Word) -> bool:
    return word.text.endswith((".", "?", "!"))


def _each(excerpts: Excerpts) -> Iterator[tuple[int | None, str, Samples]]:
    for channel, voices in excerpts.items():
        for label, samples in voices.items():
            yield channel, label, samples


def _voices_in(excerpts: Excerpts, models: SpeakerModels) -> dict[int | None, dict[str, NDArray[np.float32]]]:
    return {
        channel: {label: models.voice_of(samples) for label, samples in voices.items()}
        for channel, voices in excerpts.items()
    }


class _Numbers:
    """Hands out S1, S2, ..., each once in a session."""

    def __init__(self, labels: Iterable[str | None]) -> None:
        self.next = max((speaker_number(label) for label in labels if label), default=0) + 1
        self._lock = Lock()

    def take(self) -> str:
        with self._lock:
            self.next += 1
            return f"S{self.next - 1}"


class _Channel:
    """The voices of one channel."""

    def __init__(self, models: SpeakerModels | None, name: int | None, origin: int, numbers: _Numbers) -> None:
        self.windows: list[Window] = []
        self._models = models
        self._name = name
        self._origin = origin
        self._numbers = numbers
        self._names: dict[int, str] = {}  # of voices whose labels were sent, until all is clustered anew
        self._voices: NDArray[np.float32] | None = None
        self._turns: list[SpeakerTurn] = []  # on the stream's clock; the speaker is the number of the voice
        self._known = (SpeakerTimes([]), self._names)  # replaced as one
        self._buffer: list[Samples] = []
        self._begin = 0  # where the kept samples begin, in the channel's own positions
        self._received = 0
        self._analysed_to = 0  # the end of the last window
        self._clustered_to = 0  # the same when the voices were found
        self._speech = SpeechOfVoices()

    def label(self, word: Word) -> str | None:
        """Return the label of a word; None where there is no turn yet."""
        times, names = self._known
        voice = times.speaker_of(word)
        return None if voice is None else names.get(int(voice)) or self._give(int(voice), names)

    def name_of(self, voice: int) -> str:
        """Return the label of a voice, which gets the next number if it has none."""
        return self._names.get(voice) or self._give(voice, self._names)

    def give(self, voice: int, label: str) -> None:
        """Give a voice this label, unless it has one."""
        self._names.setdefault(voice, label)

    def excerpts(self, hidden: RedactedSpans) -> dict[str, Samples]:
        """Return the speech of each label that should be stored."""
        times, names = self._known

        def label_of(stretch: Stretch) -> str | None:
            start = stretch.start + self._origin
            voice = times.speaker_of(Word("", start, start + len(stretch.samples), 1.0))
            return None if voice is None else names.get(int(voice), f"{UNNAMED}{voice}")

        speech = self._speech.by_label(label_of, self._analysed_to - RECENT * LIVE_STEP * STEP, hidden)
        return {label: own for label, own in speech.items() if not label.startswith(UNNAMED)}

    def named_turns(self) -> list[SpeakerTurn]:
        return [replace(turn, speaker=self.name_of(int(turn.speaker))) for turn in self._turns]

    def _give(self, voice: int, names: dict[int, str]) -> str:
        names[voice] = self._numbers.take()
        return names[voice]

    def listen(self, samples: Samples, options: SpeakerOptions, words: Sequence[LabelledWord]) -> int | None:
        """Take samples. Return the position after which turns were found anew, None if none were."""
        self._buffer.append(samples)
        self._received += len(samples)
        before = self._analysed_to
        while (waiting := self._received - self._analysed_to) >= LIVE_STEP * STEP:
            step = COARSE_STEP if waiting > _BEHIND else LIVE_STEP
            self._listen_to(self._analysed_to + step * STEP)
        if self._analysed_to == before:
            return None
        if self._voices is not None and self._analysed_to < self._clustered_to * GROWTH:
            return self._find_recent_turns()
        self._clustered_to = self._analysed_to
        several_known = len(options.voices_of(self._name)) > 1
        voices = find_voices(self.windows, options.most, provisional=True, several=several_known)
        self.use(*name_voices(voices, options, self._name), words)
        return -1

    def end(self) -> None:
        """Listen to the samples after the last window."""
        if self._received > self._analysed_to:
            self._listen_to(self._received)

    def use(self, voices: NDArray[np.float32], people: Sequence[str | None], words: Sequence[LabelledWord]) -> None:
        """Find all turns of these voices. A voice without a name in *people* gets a label of its words, if it can."""
        self._voices = voices
        found = voice_turns(self.windows, voices, self._analysed_to)
        self._turns = [
            SpeakerTurn(str(turn.voice), turn.start + self._origin, turn.end + self._origin) for turn in found
        ]
        times = SpeakerTimes(self._turns)
        self._names = {voice: name for voice, name in enumerate(people) if name is not None}
        self._names |= _inherit(times, words, set(self._names.values()) | set(self._names))
        self._known = times, self._names

    def _find_recent_turns(self) -> int:
        """Find the turns of the last windows again. Return the position after which they count."""
        assert self._voices is not None
        recent = self.windows[-RECENT:]
        base = recent[0].start
        border = 0 if base == 0 else base * STEP + LENGTH // 2 + self._origin
        placed = [replace(window, start=window.start - base) for window in recent]
        shift = base * STEP + self._origin
        newest = [
            SpeakerTurn(str(turn.voice), max(turn.start + shift, border), turn.end + shift)
            for turn in voice_turns(placed, self._voices, self._analysed_to - base * STEP)
            if turn.end + shift > border
        ]
        older = [
            turn if turn.end <= border else replace(turn, end=border) for turn in self._turns if turn.start < border
        ]
        self._turns = [*older, *newest]
        self._known = SpeakerTimes(self._turns), self._names
        return border

    def _listen_to(self, end: int) -> None:
        """Analyse the window that ends at *end*. It replaces the last window if both begin with the stream."""
        assert self._models is not None
        start = max(0, -((LENGTH - end) // STEP))
        buffer = np.concatenate(self._buffer)[start * STEP - self._begin :]
        self._buffer, self._begin = [buffer], start * STEP
        before = self.windows[-1] if self.windows else None
        if before is not None and before.start == start == 0:
            self.windows.pop()
        window_samples = buffer[: end - start * STEP]
        self.windows.append(self._models.listen(window_samples, start, before))
        self._speech.collect(self.windows[-1], window_samples)
        self._analysed_to = end
        at = len(self.windows) - 2 * RECENT
        if at > 0 and self.windows[at + 1].start - self.windows[at - 1].start <= FILE_STEP:
            del self.windows[at]  # of what is older, the windows of a file are enough


def _inherit(times: SpeakerTimes, words: Sequence[LabelledWord], fixed: set[object]) -> dict[int, str]:
    """Return the label that each voice keeps: the lowest label most of whose first words belong to the voice.

    *fixed* has the pairs of voice and label that are fixed already.
    """
    votes: dict[str, Counter[int]] = {}
    for one in words:
        voice = times.speaker_of(one.word)
        if one.first is not None and voice is not None:
            votes.setdefault(one.first, Counter())[int(voice)] += max(1, one.word.end - one.word.start)
    inherited: dict[int, str] = {}
    for label in sorted(votes, key=lambda label: (len(label), label)):
        owner = votes[label].most_common(1)[0][0]
        if label not in fixed and owner not in fixed:
            inherited.setdefault(owner, label)
    return inherited
