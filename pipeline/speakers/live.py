"""Labels the speakers of a live stream while they speak. server/live/ makes one LiveSpeakers for a session.

    speakers = LiveSpeakers(models, SpeakerOptions(), {None: 0})
    label = speakers.label(word, None)        # of a word that becomes final now; it may be revised
    runs = speakers.listen({None: samples})   # on a thread; the words that have another label now
    heard = speakers.newly_heard()            # to store for a restart, after listen()
    turns, runs = speakers.finish()           # all turns, and the final label of every word

Theory. More speech means better knowledge of the voices, so labels are revised. Whenever the recording has grown by a
twentieth, all of it is clustered anew, as a file is; only a second voice needs more evidence. Between two clusterings a
new turn gets the label of the voice that it resembles most. A label that readers know for one voice is never given to
another. Two labels may turn out to be one person; then the lower label stays. After a restart the stored windows,
and the labels that words had first, say as before who speaks; only words that no stored window has keep their labels.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pipeline.attribution import SpeakerRun, SpeakerTimes, SpeakerTimesByChannel, join_runs, word_turn
from pipeline.audio import RATE, Samples
from pipeline.speakers.clustering import find_voices
from pipeline.speakers.diarizer import find_all_voices, name_voices
from pipeline.speakers.frames import LENGTH, STEP, Window
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.stored import Heard, HeardByChannel, NewlyHeard
from pipeline.speakers.timeline import voice_turns
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn, Word, speaker_number

LIVE_STEP = 59
"""Frames, 1 s, from one window of a live stream to the next."""

COARSE_STEP = 148
"""Frames, 2.5 s: the same where listening lags behind."""

FRESH = 4
"""Windows before the last that lie a second apart. Of older ones those of a file are enough."""

RECENT = 12
"""Windows, of some 40 s, whose turns are found again after each window. Older ones are, when all is clustered anew."""

STORED_STEP = LIVE_STEP
"""Frames, 1 s, after which there is something to store. A restart goes on where the last words ended, over a second
before it. What lies between the stored samples and the end of these words is lost."""

GROWTH = 1.05
"""The factor by which a recording grows until it is clustered anew. Below 20 s that is with every window."""

_LAG = 60 * RATE  # words of one channel are final at most so much later than those of another

_REPEATED = FRESH * LIVE_STEP * STEP  # samples before the last window: a restart finds the fresh windows again

_BEHIND = 4 * LIVE_STEP * STEP  # with more samples waiting than these, windows have the coarse step


@dataclass(slots=True)
class LabelledWord:
    """A final word, in positions of the stream, and the label that readers know, if any."""

    word: Word
    channel: int | None
    label: str | None
    first: str | None = None  # its first label, or a new one that began with it: _inherit() counts it for that label
    settled: bool = False  # a restart lost what was heard of it, so its label stays

    def revise(self, label: str, used: AbstractSet[str]) -> None:
        """Give it another label. *used* has the labels that any word had before."""
        self.label = label
        if label not in used:
            self.first = label


class LiveSpeakers:
    """Labels the words of one session. label() is called on the event loop, the others on a thread, one at a time."""

    def __init__(
        self,
        models: SpeakerModels | None,
        options: SpeakerOptions,
        origins: Mapping[int | None, int],
        words: Sequence[LabelledWord] = (),
        heard: HeardByChannel | None = None,
    ) -> None:
        """*origins* has the position at which the samples of each channel begin. Readers already have *words*.

        *heard* was stored before; clustering an hour of it takes 0.1 s. Without *models* two speakers take turns
        by sentences.
        """
        self._models = models
        self._options = options
        self._words = list(words)
        self._firsts = {one.first for one in words if one.first is not None}  # labels that words were sent with
        self._sentences: Counter[int | None] = Counter()
        self._numbers = _Numbers(label for one in words for label in (one.label, one.first))
        self._channels = {
            channel: _Channel(models, channel, origin, self._numbers, (heard or {}).get(channel, Heard(())))
            for channel, origin in origins.items()
        }
        self._words_on: dict[int | None, list[LabelledWord]] = {channel: [] for channel in origins}
        if models is None:
            self._replay()
        else:
            self._restore()

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
        for number in range(len(self._words) - 1, -1, -1):
            one = self._words[number]
            if one.word.end + _LAG <= min(borders):
                break  # a session of hours has many words, and this is done each second
            border = news.get(one.channel)
            if border is not None and not one.settled and one.word.end > border:
                label = self._channels[one.channel].label(one.word)
                if label is not None and label != one.label:
                    one.revise(label, self._firsts)
                    changed.append((number, label))
        self._firsts |= {label for _, label in changed}
        return join_runs(reversed(changed))

    def newly_heard(self, *, with_samples: bool = True) -> NewlyHeard | None:
        """Return what to store, if STORED_STEP is over. Else None.

        Without the samples of the last 14 s the labels of a few words after a restart may be others than with them.
        """
        if not any(channel.has_news for channel in self._channels.values()):
            return None
        last = {name: channel.last_heard(with_samples=with_samples) for name, channel in self._channels.items()}
        return NewlyHeard({name: channel.take_windows() for name, channel in self._channels.items()}, last)

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
        settled = [one for one in self._words if self._models is None or one.settled]
        turns += [word_turn(one.label, one.word, one.channel) for one in settled if one.label is not None]
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

    def _restore(self) -> None:
        """Find the voices of the stored windows, and which words these have."""
        for one in self._words:
            one.settled = not self._channels[one.channel].covers(one.word)
            if not one.settled:
                self._words_on[one.channel].append(one)
        for name, channel in self._channels.items():
            channel.restore(self._options, self._words_on[name])

    def _replay(self) -> None:
        """Continue with the two speakers of each channel where the earlier words end."""
        for one in self._words:
            if one.label is not None and one.channel in self._channels:
                self._channels[one.channel].give(self._sentences[one.channel] % 2, one.label)
                self._sentences[one.channel] += _ends_sentence(one.word)


def _ends_sentence(word: Word) -> bool:
    return word.text.endswith((".", "?", "!"))


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

    def __init__(
        self, models: SpeakerModels | None, name: int | None, origin: int, numbers: _Numbers, heard: Heard
    ) -> None:
        """*heard* was heard before. Samples come from *origin* on. Of two windows with one start the later counts."""
        self._begin = self._analysed_to = origin  # where the kept samples begin, and where the last window ends
        self._buffer: list[Samples] = []
        by_start = {window.start: window for window in heard.windows}
        self.windows = [by_start[start] for start in sorted(by_start)]
        if heard.begin <= origin <= heard.begin + len(heard.samples):
            self._begin, self._buffer = heard.begin, [heard.samples[: origin - heard.begin]]
            self._analysed_to = min(origin, heard.begin + LENGTH if heard.begin else 0)
        self._analysed_to -= self._analysed_to % (LIVE_STEP * STEP)
        if self._buffer:  # windows that end later are found again
            self.windows = [window for window in self.windows if _end(window) <= self._analysed_to]
        self._models = models
        self._name = name
        self._first = -(-self._begin // STEP)  # the first frame of the samples
        self._unheard = _gaps(self.windows, self._begin)
        self._numbers = numbers
        self._names: dict[int, str] = {}  # of voices whose labels were sent, until all is clustered anew
        self._voices: NDArray[np.float32] | None = None
        self._turns: list[SpeakerTurn] = []  # the speaker is the number of the voice
        self._known = (SpeakerTimes([]), self._names)  # replaced as one
        self._received = origin
        self._reached = max([self._analysed_to, *map(_end, self.windows)])
        self._clustered = 0  # the length of what was heard when the voices were found
        self._lasting: list[Window] = []  # to store
        self._place = self.windows[-1].place if self.windows else -1  # of the last that was to store
        self._next_storing = 0

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

    def covers(self, word: Word) -> bool:
        """Return whether the windows have the middle of a word, or the samples that come now."""
        middle = (word.start + word.end) // 2
        return not any(start <= middle < end for start, end in self._unheard)

    @property
    def has_news(self) -> bool:
        return bool(self.windows) and self._analysed_to >= self._next_storing

    def last_heard(self, *, with_samples: bool) -> Heard:
        """Return the last window, and the samples from which the next ones begin if a restart goes on before here."""
        if not with_samples:
            return Heard(self.windows[-1:])
        samples = np.concatenate(self._buffer) if self._buffer else np.zeros(0, np.float32)
        return Heard(self.windows[-1:], self._begin, samples)

    def take_windows(self) -> list[Window]:
        """Return the windows that stay for good and are new since the last call."""
        windows, self._lasting = self._lasting, []
        self._next_storing = self._analysed_to + STORED_STEP * STEP
        return windows

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
        if self._voices is not None and self._length < self._clustered * GROWTH:
            return self._find_recent_turns()
        self._clustered = self._length
        self._cluster(self.windows, options, words)
        return -1

    def restore(self, options: SpeakerOptions, words: Sequence[LabelledWord]) -> None:
        """Find the voices as they were found before the restart, and then again what the kept samples have."""
        if self.windows:
            length = self._length
            grown = LIVE_STEP * STEP
            while grown <= length:
                self._clustered = grown
                grown = -(int(-grown * GROWTH) // (LIVE_STEP * STEP)) * LIVE_STEP * STEP
            self._cluster([window for window in self.windows if _end(window) <= self._clustered], options, words)
        received = self._received
        while self._analysed_to + LIVE_STEP * STEP <= received:
            self._received = self._analysed_to + LIVE_STEP * STEP
            self.listen(np.zeros(0, np.float32), options, words)
        self._received = received

    def _cluster(self, windows: Sequence[Window], options: SpeakerOptions, words: Sequence[LabelledWord]) -> None:
        """Find the voices of these windows, and the turns of all."""
        voices = find_voices(windows, options.most, provisional=True, several=len(options.known) > 1)
        self.use(*name_voices(voices, options), words)

    @property
    def _length(self) -> int:
        return self._reached - self.windows[0].start * STEP

    def end(self) -> None:
        """Listen to the samples after the last window."""
        if self._received > self._analysed_to:
            self._listen_to(self._received)

    def use(self, voices: NDArray[np.float32], people: Sequence[str | None], words: Sequence[LabelledWord]) -> None:
        """Find all turns of these voices. A voice without a name in *people* gets a label of its words, if it can."""
        self._voices = voices
        found = voice_turns(self.windows, voices, self._reached)
        self._turns = [SpeakerTurn(str(turn.voice), turn.start, turn.end) for turn in found]
        times = SpeakerTimes(self._turns)
        self._names = {voice: name for voice, name in enumerate(people) if name is not None}
        heard = [one for one in words if one.word.end <= self._reached]  # words may come before their audio is analysed
        self._names |= _inherit(times, heard, set(self._names.values()) | set(self._names))
        self._known = times, self._names

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
            for turn in voice_turns(placed, self._voices, self._reached - shift)
            if turn.end + shift > border
        ]
        older = [
            turn if turn.end <= border else replace(turn, end=border) for turn in self._turns if turn.start < border
        ]
        self._turns = [*older, *newest]
        self._known = SpeakerTimes(self._turns), self._names
        return border

    def _listen_to(self, end: int) -> None:
        """Analyse the window that ends at *end*. It replaces the last window if both begin with the samples."""
        assert self._models is not None
        start = max(self._first, -((LENGTH - end) // STEP))
        samples = np.concatenate(self._buffer)
        buffer = samples[start * STEP - self._begin :]
        kept = max(0, start * STEP - self._begin - _REPEATED)
        self._buffer, self._begin = [samples[kept:]], self._begin + kept
        before = self.windows[-1] if self.windows else None
        if before is not None and before.start == start == self._first:
            self.windows.pop()
        elif before is not None and before.place > self._place:
            self._lasting.append(before)
            self._place = before.place
        self.windows.append(self._models.listen(buffer[: end - start * STEP], start, before))
        self._analysed_to, self._reached = end, max(self._reached, end)
        at = len(self.windows) - 1 - FRESH
        if at > 0 and self.windows[at].place == self.windows[at - 1].place:
            del self.windows[at]


def _end(window: Window) -> int:
    return (window.start + len(window.speech)) * STEP


def _gaps(windows: Sequence[Window], origin: int) -> list[tuple[int, int]]:
    """Return from where to where before *origin* no window reaches."""
    gaps: list[tuple[int, int]] = []
    reached = 0
    for start, end in [*((window.start * STEP, _end(window)) for window in windows), (origin, origin)]:
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


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
