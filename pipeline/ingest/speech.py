"""Turns speech probabilities into spans of speech, and the speech of a file into decode jobs.

A span begins when the probability reaches *enter*, if it has been above *leave* for *min_speech* samples. It ends after
*silence* samples below *leave*. Both ends are widened by *pad*. Spans do not overlap and depend on the probabilities
alone.

A decode job is a part of the file's audio: spans of speech, the silence between them, and some silence before. The
audio is not changed, so a time inside the job plus its start is a time of the file. A job ends at the first pause after
*target*, at a pause longer than *pause*, or, without any pause, at the quietest place before *longest*. Jobs depend on
the audio alone, not on the pieces in which it comes. So after a crash the same file gives the same jobs, and finished
ones are skipped. Only the audio of one job is in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, DetectSpeech, Framer, Samples, join_spans, position
from pipeline.events import SpeechEnded, SpeechStarted
from pipeline.ingest.gain import InputLevel


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
    """Finds the spans of one stream, window by window. It keeps a few positions."""

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
            return max(min(self.voiced + self._options.pad, self._now), self._now - self._options.pad)
        return self._padded(self._now if self._onset is None else self._onset)

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
        if self.speaking:
            return self.end() if self._now - self.voiced >= self._options.silence else []
        if self.voiced < self._now:
            self._onset = None  # the sound was too short
        elif self._now - self._onset >= self._options.min_speech:
            self.speaking = True
            return [SpeechStarted(self._padded(self._onset))]
        return []

    def end(self) -> list[SpeechStarted | SpeechEnded]:
        """End the open span, if any, because the stream ends or is cut here."""
        speaking, self.speaking, self._onset = self.speaking, False, None
        if not speaking:
            return []
        self._floor = min(self.voiced + self._options.pad, self._now)
        return [SpeechEnded(self._floor)]

    def _padded(self, onset: int) -> int:
        return max(self._floor, onset - self._options.pad)


NEWS = position(1)
"""The silence after which another Passed reports progress: often enough for a progress bar."""

AROUND = 2
"""Windows on each side that count in the search for the quietest place. A silence inside a word is under 5 windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """All lengths in samples. Word errors are of the small test model."""

    segmenter: SegmenterOptions = field(default_factory=SegmenterOptions)
    # Encoding a long window costs more per second than a short one. 5 s made more jobs for the same words; with 15 and
    # 20 s word errors rose from 6 to 9 %.
    target: int = position(10)
    longest: int = LONGEST_JOB  # the engine accepts no more
    # Longer silence costs encoding. With 2 s the jobs were shorter: 22.3 instead of 21.0 % of 2,779 words in six
    # languages were wrong, for a tenth more CPU time.
    pause: int = position(4)
    # Audio of a job before its speech: VADs miss soft first words that recognisers find. By telephone 5.3 %
    # instead of 7.8 % of 474 words were wrong, for nothing, because the window is as long anyway.
    lead: int = position(1)

    def __post_init__(self) -> None:
        """Raise ValueError if jobs could exceed *longest* with these options."""
        if not position(1) <= self.target <= self.longest <= LONGEST_JOB:
            raise ValueError("1 s <= target <= longest <= LONGEST_JOB must hold")
        if self.pause < self.segmenter.silence:
            raise ValueError("a pause inside a job cannot be shorter than the silence that ends a span")


@dataclass(frozen=True, slots=True, eq=False)
class DecodeJob:
    """Audio for one call of the engine: 1..LONGEST_JOB samples, the first of them at *start*."""

    start: int
    samples: Samples
    voiced: tuple[tuple[int, int], ...] = ()  # spans of speech, as positions in order; none: unknown

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


@dataclass(frozen=True, slots=True)
class Passed:
    """Everything before this position is in earlier jobs or has no speech. Later items start here or after."""

    at: int


Packed: TypeAlias = DecodeJob | Passed


class Packer:
    """Packs one file. Jobs are in order and do not overlap; the last item is Passed with the length of the file."""

    def __init__(self, options: PackingOptions) -> None:
        self._options = options
        self._segmenter = Segmenter(options.segmenter)
        self._held = _WindowBuffer()
        self._start: int | None = None  # of the job that is being built
        self._paused: int | None = None  # where its last span ended, during a pause
        self._done = 0  # end of the last job, or of the silence reported after it

    def pack(self, window: Samples, speech: float) -> list[Packed]:
        """Return the items that the next window completes. Every window but the last has WINDOW samples."""
        packed: list[Packed] = []
        if self._start is not None and self._held.end + len(window) - self._start > self._options.longest:
            packed.append(self._cut())
        self._held.append(window, speech)
        for event in self._segmenter.add_window(speech, len(window)):
            packed += self._follow(event)
        if self._paused is not None and self._held.end - self._paused >= self._options.pause:
            packed.append(self._close(self._paused))
        settled = self._segmenter.settled - self._options.lead  # no later job begins before this
        self._held.forget(settled if self._start is None else self._start)
        if self._start is None and settled - self._done >= NEWS:
            self._done = settled
            packed.append(Passed(settled))
        return packed

    def flush(self) -> list[Packed]:
        """Return the open job, if any, and the length of the file."""
        packed = [job for event in self._segmenter.end() for job in self._follow(event)]
        if self._paused is not None:
            packed.append(self._close(self._paused))
        return [*packed, Passed(self._held.end)]

    def _follow(self, event: SpeechStarted | SpeechEnded) -> list[Packed]:
        match event:
            case SpeechStarted(at):
                self._start = max(at - self._options.lead, self._done) if self._start is None else self._start
                self._paused = None
            case SpeechEnded(at):
                assert self._start is not None
                if at <= self._start:
                    self._start = None  # only silence was left after the last cut
                elif at - self._start >= self._options.target:
                    return [self._close(at)]
                else:
                    self._paused = at
            case _:
                assert_never(event)
        return []

    def _close(self, end: int) -> DecodeJob:
        job = self._job(end)
        self._start = self._paused = None
        return job

    def _cut(self) -> DecodeJob:
        """Close the open job at its last pause, or else at its quietest place, where the next job starts."""
        assert self._start is not None
        if self._paused is not None:
            return self._close(self._paused)
        job = self._job(self._held.quietest(self._start + min(self._options.target, self._options.longest // 2)))
        self._start = job.end
        return job

    def _job(self, end: int) -> DecodeJob:
        assert self._start is not None
        self._done = end
        voiced = self._held.voiced_spans(self._start, end, self._options.segmenter.enter)
        return DecodeJob(self._start, self._held.samples(self._start, end), voiced)


class _WindowBuffer:
    """Holds the newest windows of a stream with their speech probabilities."""

    def __init__(self) -> None:
        self._windows: list[Samples] = []
        self._speech: list[float] = []
        self._start = 0
        self.end = 0

    def append(self, window: Samples, speech: float) -> None:
        self._windows.append(window)
        self._speech.append(speech)
        self.end += len(window)

    def forget(self, before: int) -> None:
        """Drop the windows that end at or before *before*."""
        count = (before - self._start) // WINDOW
        if count > 0:
            del self._windows[:count], self._speech[:count]
            self._start += count * WINDOW

    def samples(self, start: int, end: int) -> Samples:
        """Return a copy of the audio between two positions."""
        first = (start - self._start) // WINDOW
        last = -(-(end - self._start) // WINDOW)
        base = self._start + first * WINDOW
        return np.concatenate(self._windows[first:last])[start - base : end - base].copy()

    def voiced_spans(self, start: int, end: int, min_speech: float) -> tuple[tuple[int, int], ...]:
        """Return the spans between two positions with a speech probability of at least *min_speech*."""
        spans: list[tuple[int, int]] = []
        at = self._start
        for window, speech in zip(self._windows, self._speech, strict=True):
            first, last = max(at, start), min(at + len(window), end)
            at += len(window)
            if first < last and speech >= min_speech:
                spans.append((first, last))
        return join_spans(spans)

    def quietest(self, earliest: int) -> int:
        """Return the middle of the quietest window after *earliest*; of equals, the last.

        It minimises loudness times speech probability: in music the probability, and in steady noise the loudness, is
        constant and says nothing.
        """
        first = -(-(earliest - self._start) // WINDOW)
        loudness = np.array([float(np.sqrt(np.mean(np.square(window)))) for window in self._windows])
        noise = np.convolve(loudness, np.ones(2 * AROUND + 1), "same")
        speech = np.convolve(self._speech, np.ones(2 * AROUND + 1), "same")
        score = (noise * speech)[first : len(self._windows) - AROUND]  # the newest windows have no neighbours yet
        best = len(score) - 1 - int(np.argmin(score[::-1]))
        return self._start + (first + best) * WINDOW + WINDOW // 2


class EvenPacker:
    """Packs everything into jobs of *length* samples, the last one shorter. It is used without a VAD."""

    def __init__(self, length: int = LONGEST_JOB) -> None:
        self._length = length
        self._held: list[Samples] = []
        self._count = self._start = 0

    def pack(self, samples: Samples) -> Iterator[Packed]:
        """Yield the jobs that the next samples complete."""
        self._held.append(samples)
        self._count += len(samples)
        while self._count >= self._length:
            joined = np.concatenate(self._held)
            yield DecodeJob(self._start, joined[: self._length].copy())
            self._held, self._count = [joined[self._length :]], self._count - self._length
            self._start += self._length

    def flush(self) -> Iterator[Packed]:
        """Yield the last job, if anything is left, and the length of the file."""
        if self._count:
            yield DecodeJob(self._start, np.concatenate(self._held))
        yield Passed(self._start + self._count)


class SpeechPacker:
    """Packs the speech in one channel of a recording."""

    def __init__(
        self, vad: DetectSpeech, options: PackingOptions | None = None, level: InputLevel | None = None
    ) -> None:
        """*level* measures the loudness of the speech."""
        self._vad = vad
        self._framer, self._packer = Framer(), Packer(options or PackingOptions())
        self._level = level

    def pack(self, samples: Samples) -> Iterator[Packed]:
        """Yield the items that the next samples complete. Passed items between jobs show the progress."""
        windows = self._framer.windows_of(samples)
        probabilities = self._vad(windows)
        if self._level is not None:
            self._level.measure(windows, probabilities)
        for window, speech in zip(windows, probabilities, strict=True):
            yield from self._packer.pack(window, speech)

    def flush(self) -> Iterator[Packed]:
        """Yield the open job, if any, and the length of the recording."""
        windows, real = self._framer.flush()
        for window, speech in zip(windows, self._vad(windows), strict=True):
            yield from self._packer.pack(window[:real], speech)
        yield from self._packer.flush()


def packer_of(
    vad: DetectSpeech | None, options: PackingOptions | None = None, level: InputLevel | None = None
) -> SpeechPacker | EvenPacker:
    """Make the packer of one channel. Without *vad*, everything counts as speech and all jobs have equal length."""
    return EvenPacker() if vad is None else SpeechPacker(vad, options, level)
