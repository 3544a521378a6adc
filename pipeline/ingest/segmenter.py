"""Turns speech probabilities into spans of speech, each with some silence around it. packing.py uses it.

    for event in segmenter.add_window(0.93): ...   # one window after the other
    for event in segmenter.end(): ...

A span begins when the probability reaches *enter*, if it has been above *leave* for *min_speech* samples. It ends after
*silence* samples below *leave*. Both ends are widened by *pad*. Spans do not overlap and depend on the probabilities
alone.
"""

from dataclasses import dataclass

from pipeline.audio import WINDOW, position
from pipeline.events import SpeechEnded, SpeechStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmenterOptions:
    """All lengths in samples. Noise has a probability of at most 0.11, music of 0.04."""

    enter: float = 0.5  # probability that starts speech
    leave: float = 0.35  # probability that continues it; lower, so that a breath does not end a sentence
    min_speech: int = 3 * WINDOW  # shorter sounds are clicks, or the first chord of music: the shortest word is longer
    silence: int = position(0.4)  # quiet that ends a span: a pause between phrases, not a silence inside a word
    pad: int = position(0.4)  # soft first and last sounds of words stay below *enter*; 0.25 s lost some of them

    def __post_init__(self) -> None:
        """Raise ValueError for options that contradict each other."""
        if not 0.0 <= self.leave <= self.enter <= 1.0:
            raise ValueError("0 <= leave <= enter <= 1 must hold")
        if not 0 <= self.pad <= self.silence:
            raise ValueError("the padding after speech must fit into the silence that ends it")


class Segmenter:
    """Follows one stream. It keeps a few positions."""

    def __init__(self, options: SegmenterOptions, start: int = 0) -> None:
        """*start* is the position of the first window."""
        self._options = options
        self._now = start
        self._floor = start  # where the last span ended
        self._onset: int | None = None  # where the sound began that is speech or may become speech
        self.voiced = 0  # end of the last window of that sound
        self.speaking = False

    @property
    def settled(self) -> int:
        """The position before which no later span begins."""
        if self.speaking:
            return max(self._end_of_span(), self._now - self._options.pad)
        return self._pad(self._now if self._onset is None else self._onset)

    @property
    def steady(self) -> int:
        """The position before which no window can end with an event, whatever the windows contain."""
        if self.speaking:
            return self.voiced + self._options.silence
        return (self._now if self._onset is None else self._onset) + self._options.min_speech

    def add_window(self, speech: float, length: int = WINDOW) -> list[SpeechStarted | SpeechEnded]:
        """Return the events of the next *length* samples. Only the last window may be shorter than WINDOW."""
        start, self._now = self._now, self._now + length
        if self._onset is None:
            if speech < self._options.enter:
                return []
            self._onset = start
        if speech >= self._options.leave:
            self.voiced = self._now
        if not self.speaking:
            return self._begin(self._onset)
        return self.end() if self._now - self.voiced >= self._options.silence else []

    def end(self) -> list[SpeechStarted | SpeechEnded]:
        """End the open span, if any, because the stream ends or is cut here."""
        speaking, self.speaking, self._onset = self.speaking, False, None
        if not speaking:
            return []
        self._floor = self._end_of_span()
        return [SpeechEnded(self._floor)]

    def _begin(self, onset: int) -> list[SpeechStarted | SpeechEnded]:
        if self.voiced < self._now:
            self._onset = None  # the sound was too short
        elif self._now - onset >= self._options.min_speech:
            self.speaking = True
            return [SpeechStarted(self._pad(onset))]
        return []

    def _end_of_span(self) -> int:
        return min(self.voiced + self._options.pad, self._now)

    def _pad(self, onset: int) -> int:
        return max(self._floor, onset - self._options.pad)
