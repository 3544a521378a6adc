"""A file's speech -> decode jobs: stretches of its audio, cut at silence.

    for item in packer.receive(window, 0.93): ...   # one window after the other
    for item in packer.end(): ...

A job takes spans of speech in, and the silence between them as it is, so that a time inside the job plus its start is
a time of the file. It ends at the first pause after *target*, at a pause longer than *pause*, or, when nobody pauses,
at the quietest place before *longest*. Jobs depend on the audio alone, never on how it arrives: after a crash the same
file gives the same jobs, and those that were done can be skipped. Memory holds the audio of one job.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, Samples, position
from pipeline.events import SpeechEnded, SpeechStarted
from pipeline.ingest.segmenter import Segmenter, SegmenterOptions

NEWS = position(1)
"""Silence that is reported as passed at a time: often enough for a progress bar."""

AROUND = 2
"""Windows on each side that count when the quietest is sought: a closure inside a word is shorter than five windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """All lengths in samples. The measurements behind the numbers are in the README of this folder."""

    segmenter: SegmenterOptions = field(default_factory=SegmenterOptions)
    target: int = position(10)  # encoding costs more than its share in long windows, and words nothing in short ones
    longest: int = LONGEST_JOB  # the engine takes no more
    pause: int = position(2)  # a longer silence is not worth encoding, and invites a model to invent words

    def __post_init__(self) -> None:
        """Raise ValueError where a job could not be kept within *longest*."""
        if not position(1) <= self.target <= self.longest <= LONGEST_JOB:
            raise ValueError("1 s <= target <= longest <= LONGEST_JOB must hold")
        if self.pause < self.segmenter.silence:
            raise ValueError("a pause inside a job cannot be shorter than the silence that ends a span")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Audio to be heard in one go: 1..LONGEST_JOB samples, of which the first is at *start*."""

    start: int
    samples: Samples
    voiced: tuple[tuple[int, int], ...] = ()  # spans with speech in it, positions in order; none: not known

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


@dataclass(frozen=True, slots=True)
class Passed:
    """Everything before this position was given in jobs or holds no speech; what comes later starts at it or after."""

    at: int


Packed: TypeAlias = Job | Passed


class Packer:
    """Packs one file. Jobs come in order and do not overlap; the last item is Passed with the length of the file."""

    def __init__(self, options: PackingOptions) -> None:
        self._options = options
        self._segmenter = Segmenter(options.segmenter)
        self._held = _Held()
        self._start: int | None = None  # of the job that is being built
        self._paused: int | None = None  # where its last span ended, while nobody speaks
        self._done = 0  # end of the last job, or of the silence reported after it

    def receive(self, window: Samples, speech: float) -> list[Packed]:
        """What the next window completes. Every window but the last has WINDOW samples."""
        packed: list[Packed] = []
        if self._start is not None and self._held.end + len(window) - self._start > self._options.longest:
            packed.append(self._cut())
        self._held.append(window, speech)
        for event in self._segmenter.receive(speech, len(window)):
            packed += self._follow(event)
        if self._paused is not None and self._held.end - self._paused >= self._options.pause:
            packed.append(self._close(self._paused))
        self._forget()
        return packed + self._news()

    def end(self) -> list[Packed]:
        """The last job, if one is open, and the length of the file."""
        packed = [job for event in self._segmenter.end() for job in self._follow(event)]
        if self._paused is not None:
            packed.append(self._close(self._paused))
        return [*packed, Passed(self._held.end)]

    def _follow(self, event: SpeechStarted | SpeechEnded) -> list[Packed]:
        match event:
            case SpeechStarted(at):
                self._start = max(at, self._done) if self._start is None else self._start
                self._paused = None
            case SpeechEnded(at):
                assert self._start is not None
                if at <= self._start:
                    self._start = None  # what the last cut left over was silence
                elif at - self._start >= self._options.target:
                    return [self._close(at)]
                else:
                    self._paused = at
            case _:
                assert_never(event)
        return []

    def _close(self, end: int) -> Job:
        """The job that is open, up to *end*. None is open after it."""
        job = self._job(end)
        self._start = self._paused = None
        return job

    def _cut(self) -> Job:
        """The job that is open, up to its last pause or else its quietest place, where the next one goes on."""
        assert self._start is not None
        if self._paused is not None:
            return self._close(self._paused)
        job = self._job(self._held.quietest(self._start + min(self._options.target, self._options.longest // 2)))
        self._start = job.end
        return job

    def _job(self, end: int) -> Job:
        assert self._start is not None
        self._done = end
        voiced = self._held.voiced(self._start, end, self._options.segmenter.enter)
        return Job(self._start, self._held.samples(self._start, end), voiced)

    def _forget(self) -> None:
        """Let go of the audio that no job can want any more."""
        self._held.forget(self._segmenter.settled if self._start is None else self._start)

    def _news(self) -> list[Packed]:
        if self._start is not None or self._segmenter.settled - self._done < NEWS:
            return []
        self._done = self._segmenter.settled
        return [Passed(self._done)]


class _Held:
    """The newest windows of a stream, whole, with their speech probabilities."""

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
        """Drop the windows that lie wholly before *before*."""
        count = (before - self._start) // WINDOW
        if count > 0:
            del self._windows[:count], self._speech[:count]
            self._start += count * WINDOW

    def samples(self, start: int, end: int) -> Samples:
        """The audio between two positions that are held, as an array of its own."""
        first = (start - self._start) // WINDOW
        last = -(-(end - self._start) // WINDOW)
        base = self._start + first * WINDOW
        return np.concatenate(self._windows[first:last])[start - base : end - base].copy()

    def voiced(self, start: int, end: int, least: float) -> tuple[tuple[int, int], ...]:
        """The spans between two positions in which the probability of speech is at least *least*."""
        spans: list[tuple[int, int]] = []
        at = self._start
        for window, speech in zip(self._windows, self._speech, strict=True):
            first, last = max(at, start), min(at + len(window), end)
            at += len(window)
            if first >= last or speech < least:
                continue
            spans = [*spans[:-1], (spans[-1][0], last)] if spans and spans[-1][1] == first else [*spans, (first, last)]
        return tuple(spans)

    def quietest(self, earliest: int) -> int:
        """The middle of the window after *earliest* around which there is least speech and sound; the last of equals.

        Loudness counts beside the probability of speech: in music and in even noise one of them says nothing.
        """
        first = -(-(earliest - self._start) // WINDOW)
        loudness = np.array([float(np.sqrt(np.mean(np.square(window)))) for window in self._windows])
        noise = np.convolve(loudness, np.ones(2 * AROUND + 1), "same")
        voice = np.convolve(self._speech, np.ones(2 * AROUND + 1), "same")
        score = (noise * voice)[first : len(self._windows) - AROUND]  # the newest have no neighbours yet
        best = len(score) - 1 - int(np.argmin(score[::-1]))
        return self._start + (first + best) * WINDOW + WINDOW // 2


def even_jobs(audio: Iterable[Samples], length: int = LONGEST_JOB) -> Iterator[Packed]:
    """All of *audio* in jobs of *length* samples, the last one shorter: for engines that want the silence too."""
    held: list[Samples] = []
    start = count = 0
    for samples in audio:
        held.append(samples)
        count += len(samples)
        while count >= length:
            joined = np.concatenate(held)
            yield Job(start, joined[:length].copy())
            held, count, start = [joined[length:]], count - length, start + length
    if count:
        yield Job(start, np.concatenate(held))
    yield Passed(start + count)
