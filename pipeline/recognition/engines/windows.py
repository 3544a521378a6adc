"""Finds the shortest windows in which a model recognises speech well. Some models are known, others are measured.

Long windows are expensive: encoding 10 s costs a ninth of 30 s. But Whisper was trained on windows of 30 s. In windows
that are too short it loses words or repeats them, and how short is too short depends on the model. So a minute of
speech, which is part of this package, is recognised in full and in shorter windows, in the way the server does it. The
shortest windows that lose no words are used. load.py calls this module.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.audio import LONGEST_JOB, RATE, Samples
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.engines.prompts import PAD_S, WINDOWS_S, window_for
from pipeline.recognition.scoring import spoken, word_errors
from pipeline.words import written

SPEECH = Path(__file__).with_name("windows_speech.npz")
"""People who read English, and espeak-ng in Spanish. benchmarks/make_windows_speech.py makes it."""

TOLERATED = 0.005
"""The most by which the word error rate of shorter windows may be worse than that of longer ones."""

MEASURING_S = 600.0
"""The longest time for measuring one model. What is not decided by then stays at full windows."""

JOBS_S = (4, 9, 14, 19, 28)
"""The lengths of jobs that are tried. Each fills one of WINDOWS_S except for its padding."""

_SHORT_S = (1.0, 4.0)  # the limits of the length of an utterance alone
_TAILS_S = (1.5, 2.5, 4.5)  # where the audio of a partial ends, in seconds after its clip began
_PARTIAL_S = 9.0  # the most audio of a partial
_OPEN = 2  # this many words at the end of a partial may be wrong, because they are not committed yet
_UNKNOWN_VOICE = 0.5  # a voice with a higher error rate in every window says nothing about windows
_NOISE_DB = 15.0
_TELEPHONE_HZ = (300, 3400)
_PAUSE = RATE // 2  # between the clips of a job


@dataclass(frozen=True, slots=True)
class Fit:
    """Which windows suit one model. All in seconds."""

    partial_s: int  # the shortest window of a partial, one of WINDOWS_S
    final_s: int  # the shortest window of a final, one of WINDOWS_S
    job_s: int  # the longest job that a file is cut into

    @property
    def longest_job(self) -> int:
        """The longest job, in samples."""
        return min(self.job_s * RATE, LONGEST_JOB)

    def window_s(self, samples: int, *, final: bool) -> int:
        """Return the window for so many samples, in seconds."""
        return window_for(samples, self.final_s if final else self.partial_s)


FULL = Fit(30, 30, 28)

KNOWN_FITS: Mapping[str, tuple[int, Fit]] = {
    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a": (75_537_502, Fit(10, 15, 19)),  # tiny.en
    "8ad32b4c7ea723953becbebcbbbc182e913e7e2bce67c5ff47d53d1f641abfb7": (5_421_057, Fit(5, 5, 4)),  # the test model
}
"""The size of model.bin in bytes and what suits the model, by the SHA-256 of that file."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of speech, its words with start and end in seconds, and the pauses at which it can be cut."""

    voice: str
    language: str
    samples: Samples
    words: tuple[tuple[str, float, float], ...]
    cuts: tuple[tuple[float, int], ...]  # seconds from its start, and how many words are before it


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """A part of one or more clips, and the text that is spoken in it."""

    voice: str
    language: str
    samples: Samples
    said: str


@dataclass(slots=True)
class Trial:
    """One fit that was tried, and how many words and errors each voice had."""

    kind: str  # partial, final or job
    fit: Fit
    errors: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)

    def add(self, voice: str, errors: int, words: int) -> None:
        self.errors[voice] = self.errors.get(voice, 0) + errors
        self.words[voice] = self.words.get(voice, 0) + words

    def rate(self, voice: str) -> float:
        return self.errors[voice] / self.words[voice]


Hear: TypeAlias = Callable[[Fit, DecodeRequest], Awaitable[Heard]]
"""Recognises one request in the windows of a fit."""


def bundled_speech(path: Path = SPEECH) -> list[Clip]:
    """Return the clips that find_fit() uses."""
    with np.load(path) as stored:
        rows = json.loads(bytes(stored["rows"]).decode())
        return [
            Clip(
                row["voice"],
                row["language"],
                np.cumsum(stored[row["name"]], dtype=np.int16).astype(np.float32) / np.float32(32768),
                tuple((text, start, end) for text, start, end in row["words"]),
                tuple((at, words) for at, words in row["cuts"]),
            )
            for row in rows
        ]


async def find_fit(hear: Hear, clips: Sequence[Clip], *, max_s: float = MEASURING_S) -> tuple[Fit, list[Trial]]:
    """Return the shortest windows in which a model has no more errors than in any longer ones, and all trials.

    Three lengths are chosen one after the other: of partials, with sentences that are cut off in the middle; of finals,
    with short utterances alone; of jobs, with all clips joined. All audio is used as it is, with noise, and as a
    telephone would transmit it.
    """
    conditions = [[condition(clip) for clip in clips] for condition in (_as_it_is, _noisy, _by_telephone)]
    tails = [excerpt for clips in conditions for pair in pairwise(clips) for excerpt in _tails(*pair)]
    short = [excerpt for clips in conditions for clip in clips for excerpt in _utterances(clip)]

    def jobs(fit: Fit) -> list[Excerpt]:
        return [excerpt for clips in conditions for excerpt in _jobs(clips, fit.longest_job)]

    measuring = _Measuring(hear, time.monotonic() + max_s)
    partials = [replace(FULL, partial_s=window_s) for window_s in WINDOWS_S]
    partial_s = (await measuring.choose("partial", partials, lambda _: tails, final=False)).partial_s
    finals = [replace(FULL, final_s=window_s) for window_s in WINDOWS_S]
    final_s = (await measuring.choose("final", finals, lambda _: short, final=True)).final_s
    # Even shorter jobs would be recognised in the same window.
    lengths = [Fit(partial_s, final_s, job_s) for job_s in JOBS_S if job_s + PAD_S >= min(final_s, JOBS_S[-1])]
    return await measuring.choose("job", lengths, jobs, final=True), measuring.trials


class _Measuring:
    """Tries one fit after the other, and compares their errors."""

    def __init__(self, hear: Hear, until: float) -> None:
        self._hear = hear
        self._until = until
        self._errors: dict[tuple[Excerpt, int, bool], int] = {}  # by excerpt, window and final: several fits share them
        self.trials: list[Trial] = []

    async def choose(
        self, kind: str, fits: Sequence[Fit], excerpts: Callable[[Fit], Sequence[Excerpt]], *, final: bool
    ) -> Fit:
        """Return the first of *fits*, shortest first, that is no worse than any longer one; the last if unclear."""
        shortest, best = fits[-1], None
        for fit in reversed(fits):
            trial = Trial(kind, fit)
            self.trials.append(trial)
            if not await self._try(trial, excerpts(fit), best, final=final):
                if best is None or time.monotonic() > self._until:
                    break
                continue
            if best is None or not _worse(trial, best):
                shortest = fit
            if best is None or sum(trial.errors.values()) < sum(best.errors.values()):
                best = trial
        return shortest

    async def _try(self, trial: Trial, excerpts: Sequence[Excerpt], best: Trial | None, *, final: bool) -> bool:
        """Recognise *excerpts*. Return False if time is over, or as soon as it is clear that *best* is better."""
        for excerpt in excerpts:
            if time.monotonic() > self._until:
                return False
            said = spoken(excerpt.said, excerpt.language)
            key = (excerpt, trial.fit.window_s(len(excerpt.samples), final=final), final)
            if key not in self._errors:
                request = DecodeRequest(samples=excerpt.samples, start=0, language=excerpt.language, final=final)
                heard = await self._hear(trial.fit, request)
                answer = spoken(written(heard.words), excerpt.language)
                errors = word_errors(said, answer) if final else _errors_so_far(said, answer)
                self._errors[key] = min(len(said), errors)  # a loop counts as nothing understood
            trial.add(excerpt.voice, self._errors[key], len(said))
            if best is not None and _hopeless(trial, best):
                return False
        return True


def _errors_so_far(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return the errors in a sentence that was cut off: its last word may be missing, and _OPEN more may be added."""
    ends = range(max(0, len(heard) - _OPEN), len(heard) + 1)
    return min(word_errors(said[:-1], heard[:end]) for end in ends)


def _worse(trial: Trial, best: Trial) -> bool:
    """Return whether a trial has more errors than tolerated, in voices that the model knows; True if it knows none."""
    known = [voice for voice in best.words if min(best.rate(voice), trial.rate(voice)) < _UNKNOWN_VOICE]
    words = sum(best.words[voice] for voice in known)
    more = sum(trial.errors[voice] - best.errors[voice] for voice in known)
    return not known or more > TOLERATED * words


def _hopeless(trial: Trial, best: Trial) -> bool:
    """Return whether a trial that is not complete has more errors than it may have at its end."""
    if any(best.rate(voice) >= _UNKNOWN_VOICE for voice in best.words):
        return False  # such a voice counts only if the trial knows it, which is clear at its end
    return sum(trial.errors.values()) > sum(best.errors.values()) + TOLERATED * sum(best.words.values())


def _as_it_is(clip: Clip) -> Clip:
    return clip


def _noisy(clip: Clip) -> Clip:
    """Return the clip with steady noise."""
    chance = np.random.default_rng(len(clip.samples))
    loud = float(np.sqrt(np.mean(np.square(clip.samples))))
    noise = loud * 10 ** (-_NOISE_DB / 20) * chance.standard_normal(len(clip.samples))
    return replace(clip, samples=np.clip(clip.samples + noise, -1, 1).astype(np.float32))


def _by_telephone(clip: Clip) -> Clip:
    """Return the clip as a telephone transmits it: 300 to 3400 Hz, 8 bits of mu-law."""
    hertz = np.fft.rfftfreq(len(clip.samples), 1 / RATE)
    band = np.where((hertz > _TELEPHONE_HZ[0]) & (hertz < _TELEPHONE_HZ[1]), np.fft.rfft(clip.samples), 0)
    narrow = np.fft.irfft(band, len(clip.samples))
    steps = np.round(127 * np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256)) / 127
    return replace(clip, samples=(np.sign(steps) * (256 ** np.abs(steps) - 1) / 255).astype(np.float32))


def _utterances(clip: Clip) -> Iterator[Excerpt]:
    """Yield excerpts of _SHORT_S, cut at pauses of the clip."""
    cuts = [(0.0, 0), *clip.cuts, (len(clip.samples) / RATE, len(clip.words))]
    begin, first = cuts[0]
    for (at, words), (after, _) in pairwise([*cuts[1:], (np.inf, 0)]):
        if at - begin >= _SHORT_S[0] and (after - begin > _SHORT_S[1] or after == np.inf):
            if at - begin <= _SHORT_S[1]:
                yield _excerpt(clip, begin, at, first, words)
            begin, first = at, words


def _tails(before: Clip, clip: Clip) -> Iterator[Excerpt]:
    """Yield the clip as a partial has it: cut off after a word that no pause follows.

    The end of the clip before it is in the same window, as in live windows.
    """
    pauses = [words for _, words in clip.cuts]
    inside = [(end, count) for count, (_, _, end) in enumerate(clip.words[:-1], start=1) if count not in pauses]
    cuts = dict.fromkeys(next((one for one in inside if one[0] >= tail_s), None) for tail_s in _TAILS_S)
    for end, count in filter(None, cuts):
        tail = _excerpt(clip, 0.0, end, 0, count)
        length_s = len(before.samples) / RATE
        room_s = _PARTIAL_S - end - _PAUSE / RATE
        begin, first = next((cut for cut in ((0.0, 0), *before.cuts) if length_s - cut[0] <= room_s), (length_s, 0))
        if before.voice == clip.voice and begin < length_s:
            old = _excerpt(before, begin, length_s, first, len(before.words))
            tail = _join([old, replace(tail, samples=_after_pause(tail.samples))])
        yield tail


def _after_pause(samples: Samples) -> Samples:
    return np.concatenate([np.zeros(_PAUSE, np.float32), samples])


def _excerpt(clip: Clip, begin: float, end: float, first: int, last: int) -> Excerpt:
    samples = clip.samples[round(begin * RATE) : round(end * RATE)]
    return Excerpt(clip.voice, clip.language, samples, " ".join(word[0] for word in clip.words[first:last]))


def _jobs(clips: Iterable[Clip], longest: int) -> Iterator[Excerpt]:
    """Yield the joined clips of each voice in jobs that are as long as possible, cut at pauses."""
    parts: list[Excerpt] = []
    for clip in clips:
        cuts = [(0.0, 0), *clip.cuts, (len(clip.samples) / RATE, len(clip.words))]
        for (begin, first), (end, last) in pairwise(cuts):
            part = _excerpt(clip, begin, end, first, last)
            if begin == 0.0:
                part = replace(part, samples=_after_pause(part.samples))
            length = sum(len(one.samples) for one in parts)
            if parts and (parts[0].voice != part.voice or length + len(part.samples) > longest):
                yield _join(parts)
                parts = []
            parts.append(part)
    if parts:
        yield _join(parts)


def _join(parts: Sequence[Excerpt]) -> Excerpt:
    samples = np.concatenate([part.samples for part in parts])
    return replace(parts[0], samples=samples, said=" ".join(part.said for part in parts))
