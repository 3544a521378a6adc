"""Packs the speech of a file into decode jobs: parts of its audio, cut at silence. speech.py calls it.

    for item in packer.pack(window, 0.93): ...   # one window after the other
    for item in packer.flush(): ...

A job contains spans of speech, the silence between them, and some silence before. The audio is not changed, so a time
inside the job plus its start is a time of the file. A job ends at the first pause after *target*, at a pause longer
than *pause*, or, without any pause, at the quietest place before *longest*. Jobs depend on the audio alone, not on the
pieces in which it comes. So after a crash the same file gives the same jobs, and finished ones are skipped. Only the
audio of one job is in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, Samples, join_spans, position
from pipeline.events import SpeechEnded, SpeechStarted
from pipeline.ingest.segmenter import Segmenter, SegmenterOptions

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
    # Audio of a job before its speech: voice detectors miss soft first words that recognisers find. By telephone 5.3 %
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
        self._forget()
        return packed + self._report_silence()

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

    def _forget(self) -> None:
        """Drop the audio that no later job can need."""
        self._held.forget(self._settled if self._start is None else self._start)

    def _report_silence(self) -> list[Packed]:
        if self._start is not None or self._settled - self._done < NEWS:
            return []
        self._done = self._settled
        return [Passed(self._done)]

    @property
    def _settled(self) -> int:
        """The position before which no later job begins."""
        return self._segmenter.settled - self._options.lead


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
        voice = np.convolve(self._speech, np.ones(2 * AROUND + 1), "same")
        score = (noise * voice)[first : len(self._windows) - AROUND]  # the newest windows have no neighbours yet
        best = len(score) - 1 - int(np.argmin(score[::-1]))
        return self._start + (first + best) * WINDOW + WINDOW // 2


class EvenPacker:
    """Packs everything into jobs of *length* samples, the last one shorter. It is used without voice detection."""

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
