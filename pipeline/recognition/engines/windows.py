"""Which windows does this model hear well in? Known for some models, measured for the others.

Encoding a window costs more than its share of audio: 10 s a ninth of what 30 s cost. But a Whisper was trained on 30 s,
and in windows that are too short it loses words or says them twice. How short is too short differs from model to model.
So a minute of speech that comes with this package is heard the way the product hears speech, in full windows and in
shorter ones, and the cheapest that lose no words are used.
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
"""People reading English, and espeak-ng in Spanish; benchmarks/make_windows_speech.py."""

TOLERATED = 0.005
"""Word error rate by which shorter windows may be worse than longer ones."""

MEASURING_S = 600.0
"""Time for measuring one model. What is not decided by then stays at full windows."""

JOBS_S = (4, 9, 14, 19, 28)
"""Jobs that are tried: each fills one of WINDOWS_S but for its padding."""

_SHORT_S = (1.0, 4.0)  # an utterance that is sent alone
_TAILS_S = (1.5, 2.5, 4.5)  # where the audio of a partial ends, in seconds after its clip began
_PARTIAL_S = 9.0  # the most audio of a partial
_OPEN = 2  # words at the end of a partial that may be anything: nobody relies on them yet
_UNKNOWN_VOICE = 0.5  # a voice of which no window hears half says nothing about windows
_NOISE_DB = 15.0
_TELEPHONE_HZ = (300, 3400)
_PAUSE = RATE // 2  # between the clips of a job


@dataclass(frozen=True, slots=True)
class Fit:
    """How audio is cut for one model. All in seconds."""

    partial_s: int  # the least window of a partial, one of WINDOWS_S
    final_s: int  # the least window of a final, one of WINDOWS_S
    job_s: int  # the longest job that a file is cut into

    @property
    def longest_job(self) -> int:
        return min(self.job_s * RATE, LONGEST_JOB)

    def window_s(self, samples: int, *, final: bool) -> int:
        """The window in which so many samples are heard."""
        return window_for(samples, self.final_s if final else self.partial_s)


FULL = Fit(30, 30, 28)

KNOWN_FITS: Mapping[str, tuple[int, Fit]] = {
    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a": (75_537_502, Fit(10, 15, 19)),  # tiny.en
    "8ad32b4c7ea723953becbebcbbbc182e913e7e2bce67c5ff47d53d1f641abfb7": (5_421_057, Fit(5, 5, 4)),  # the test model
}
"""By the SHA-256 of model.bin: its size in bytes, and what suits the model."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Something said, the words with their times in seconds, and the pauses in which it can be cut."""

    voice: str
    language: str
    samples: Samples
    words: tuple[tuple[str, float, float], ...]
    cuts: tuple[tuple[float, int], ...]  # second, words before it


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Audio to hear, and what is said in it."""

    voice: str
    language: str
    samples: Samples
    said: str


@dataclass(slots=True)
class Trial:
    """What was tried, and the errors of each voice."""

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
"""Hears one request in the windows of a fit."""


def bundled_speech(path: Path = SPEECH) -> list[Clip]:
    """What fitting() listens to."""
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


async def fitting(hear: Hear, clips: Sequence[Clip], *, max_s: float = MEASURING_S) -> tuple[Fit, list[Trial]]:
    """The shortest windows in which a model errs no more than in any longer ones, and what was tried.

    Three things are judged, each on its own: partials by sentences cut off in their middle, finals by short utterances
    alone, jobs by everything in one go. Each is heard as it is, with noise, and as if by telephone.
    """
    conditions = [[condition(clip) for clip in clips] for condition in (_as_it_is, _noisy, _by_telephone)]
    tails = [piece for clips in conditions for pair in pairwise(clips) for piece in _tails(*pair)]
    short = [piece for clips in conditions for clip in clips for piece in _utterances(clip)]

    def jobs(fit: Fit) -> list[Excerpt]:
        return [piece for clips in conditions for piece in _jobs(clips, fit.longest_job)]

    measuring = _Measuring(hear, time.monotonic() + max_s)
    partials = [replace(FULL, partial_s=window_s) for window_s in WINDOWS_S]
    partial_s = (await measuring.least("partial", partials, lambda _: tails, final=False)).partial_s
    finals = [replace(FULL, final_s=window_s) for window_s in WINDOWS_S]
    final_s = (await measuring.least("final", finals, lambda _: short, final=True)).final_s
    # Jobs that are even shorter would be heard in the same window.
    lengths = [Fit(partial_s, final_s, job_s) for job_s in JOBS_S if job_s + PAD_S >= min(final_s, JOBS_S[-1])]
    return await measuring.least("job", lengths, jobs, final=True), measuring.trials


class _Measuring:
    """Hears pieces in one fit after the other, and compares them."""

    def __init__(self, hear: Hear, until: float) -> None:
        self._hear = hear
        self._until = until
        self._errors: dict[tuple[Excerpt, int, bool], int] = {}  # by piece and window: several fits share them
        self.trials: list[Trial] = []

    async def least(
        self, kind: str, fits: Sequence[Fit], pieces: Callable[[Fit], Sequence[Excerpt]], *, final: bool
    ) -> Fit:
        """The first of *fits*, which grow, that is no worse than any after it. The last where nothing can be told."""
        least, best = fits[-1], None
        for fit in reversed(fits):
            trial = Trial(kind, fit)
            self.trials.append(trial)
            if not await self._fill(trial, pieces(fit), best, final=final):
                if best is None or time.monotonic() > self._until:
                    break
                continue
            if best is None or not _worse(trial, best):
                least = fit
            if best is None or sum(trial.errors.values()) < sum(best.errors.values()):
                best = trial
        return least

    async def _fill(self, trial: Trial, pieces: Sequence[Excerpt], best: Trial | None, *, final: bool) -> bool:
        """Hear *pieces*; False when time is over, or when it is clear before the end that *best* is better."""
        for piece in pieces:
            if time.monotonic() > self._until:
                return False
            said = spoken(piece.said, piece.language)
            key = (piece, trial.fit.window_s(len(piece.samples), final=final), final)
            if key not in self._errors:
                request = DecodeRequest(samples=piece.samples, start=0, language=piece.language, final=final)
                heard = await self._hear(trial.fit, request)
                answer = spoken(written(heard.words), piece.language)
                errors = word_errors(said, answer) if final else _errors_so_far(said, answer)
                self._errors[key] = min(len(said), errors)  # a loop counts as nothing understood
            trial.add(piece.voice, self._errors[key], len(said))
            if best is not None and _hopeless(trial, best):
                return False
        return True


def _errors_so_far(said: Sequence[str], heard: Sequence[str]) -> int:
    """Errors of a sentence that was cut off. The word before the cut may be missing, and _OPEN more may be heard."""
    ends = range(max(0, len(heard) - _OPEN), len(heard) + 1)
    return min(word_errors(said[:-1], heard[:end]) for end in ends)


def _worse(trial: Trial, best: Trial) -> bool:
    """Errors of the voices that the model knows, beyond what is tolerated. True where it knows none."""
    known = [voice for voice in best.words if min(best.rate(voice), trial.rate(voice)) < _UNKNOWN_VOICE]
    words = sum(best.words[voice] for voice in known)
    more = sum(trial.errors[voice] - best.errors[voice] for voice in known)
    return not known or more > TOLERATED * words


def _hopeless(trial: Trial, best: Trial) -> bool:
    """Whether there are more errors already than there may be at the end."""
    if any(best.rate(voice) >= _UNKNOWN_VOICE for voice in best.words):
        return False  # such a voice counts only if the trial hears it, which is known at the end
    return sum(trial.errors.values()) > sum(best.errors.values()) + TOLERATED * sum(best.words.values())


def _as_it_is(clip: Clip) -> Clip:
    return clip


def _noisy(clip: Clip) -> Clip:
    """With steady noise."""
    chance = np.random.default_rng(len(clip.samples))
    loud = float(np.sqrt(np.mean(np.square(clip.samples))))
    noise = loud * 10 ** (-_NOISE_DB / 20) * chance.standard_normal(len(clip.samples))
    return replace(clip, samples=np.clip(clip.samples + noise, -1, 1).astype(np.float32))


def _by_telephone(clip: Clip) -> Clip:
    """300 to 3400 Hz, 8 bits of mu-law."""
    hertz = np.fft.rfftfreq(len(clip.samples), 1 / RATE)
    band = np.where((hertz > _TELEPHONE_HZ[0]) & (hertz < _TELEPHONE_HZ[1]), np.fft.rfft(clip.samples), 0)
    narrow = np.fft.irfft(band, len(clip.samples))
    steps = np.round(127 * np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256)) / 127
    return replace(clip, samples=(np.sign(steps) * (256 ** np.abs(steps) - 1) / 255).astype(np.float32))


def _utterances(clip: Clip) -> Iterator[Excerpt]:
    """The clip in pieces of _SHORT_S, cut in its pauses."""
    cuts = [(0.0, 0), *clip.cuts, (len(clip.samples) / RATE, len(clip.words))]
    begin, first = cuts[0]
    for (at, words), (after, _) in pairwise([*cuts[1:], (np.inf, 0)]):
        if at - begin >= _SHORT_S[0] and (after - begin > _SHORT_S[1] or after == np.inf):
            if at - begin <= _SHORT_S[1]:
                yield _piece(clip, begin, at, first, words)
            begin, first = at, words


def _tails(before: Clip, clip: Clip) -> Iterator[Excerpt]:
    """The clip as far as it had come when partials were asked: cut after a word that no pause follows.

    The end of the clip before it is in the window too, as live windows have it.
    """
    pauses = [words for _, words in clip.cuts]
    inside = [(end, count) for count, (_, _, end) in enumerate(clip.words[:-1], start=1) if count not in pauses]
    cuts = dict.fromkeys(next((one for one in inside if one[0] >= tail_s), None) for tail_s in _TAILS_S)
    for end, count in filter(None, cuts):
        tail = _piece(clip, 0.0, end, 0, count)
        length_s = len(before.samples) / RATE
        room_s = _PARTIAL_S - end - _PAUSE / RATE
        begin, first = next((cut for cut in ((0.0, 0), *before.cuts) if length_s - cut[0] <= room_s), (length_s, 0))
        if before.voice == clip.voice and begin < length_s:
            old = _piece(before, begin, length_s, first, len(before.words))
            tail = _joined([old, replace(tail, samples=_after_pause(tail.samples))])
        yield tail


def _after_pause(samples: Samples) -> Samples:
    return np.concatenate([np.zeros(_PAUSE, np.float32), samples])


def _piece(clip: Clip, begin: float, end: float, first: int, last: int) -> Excerpt:
    samples = clip.samples[round(begin * RATE) : round(end * RATE)]
    return Excerpt(clip.voice, clip.language, samples, " ".join(word[0] for word in clip.words[first:last]))


def _jobs(clips: Iterable[Clip], longest: int) -> Iterator[Excerpt]:
    """All clips of a voice joined, in jobs as long as they may be, cut in pauses."""
    parts: list[Excerpt] = []
    for clip in clips:
        cuts = [(0.0, 0), *clip.cuts, (len(clip.samples) / RATE, len(clip.words))]
        for (begin, first), (end, last) in pairwise(cuts):
            part = _piece(clip, begin, end, first, last)
            if begin == 0.0:
                part = replace(part, samples=_after_pause(part.samples))
            length = sum(len(one.samples) for one in parts)
            if parts and (parts[0].voice != part.voice or length + len(part.samples) > longest):
                yield _joined(parts)
                parts = []
            parts.append(part)
    if parts:
        yield _joined(parts)


def _joined(parts: Sequence[Excerpt]) -> Excerpt:
    samples = np.concatenate([part.samples for part in parts])
    return replace(parts[0], samples=samples, said=" ".join(part.said for part in parts))
