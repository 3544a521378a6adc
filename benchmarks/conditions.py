"""Varies clean speech as it varies in practice: noise, a room, a telephone, clips cut short.

Recognition is measured in each condition. Each entry of CONDITIONS takes clips with known words and times, and a seed,
and returns new clips with adjusted times. The same clip and seed always give the same samples, whatever other clips
are given. This module reads no files; benchmarks/tracks.py does.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Concatenate, Literal, ParamSpec, TypeAlias

import numpy as np
from numpy.random import Generator

from benchmarks.tracks import Track, Truth
from pipeline.audio import RATE, Samples

Condition: TypeAlias = Callable[[Sequence[Track], int], list[Track]]
How = ParamSpec("How")

LOUDEST = 0.99  # of full scale, so that a variant can be kept as a file of 16-bit samples

FRAME = RATE // 50  # 20 ms, in which loudness is looked at
ACTIVE_DB = 20.0  # frames that are quieter than the loudest ones by more than this are not speech

RT60_S = 0.4  # in which the echoes of the small room become quieter by 60 dB
ECHO_FROM_S = 0.002  # after the direct sound
DIRECT_TO_ECHO_DB = 3.0

BAND_HZ = (300.0, 3400.0)  # of a telephone
EDGE_HZ = 60.0  # in which the band fades out at both sides
LINE_DB = 24.0  # the most that a line makes a voice quieter

SHORT_S = (1.0, 4.0)  # length of an utterance that is sent alone
MIN_PAUSE_S = 0.15
QUIET_DB = 18.0  # below the level of speech: a pause
NEAR_S = 0.1  # word times are good to this

PAUSES_S = (0.2, 3.0)  # between two clips of a joined track
BETWEEN_DB = -70.0  # noise of a joined track, relative to full scale
FADE_S = 0.005  # at both ends of a clip in a joined track


def of_each_clip(vary: Callable[Concatenate[Track, int, How], Track]) -> Callable[..., list[Track]]:
    """Return a condition that varies one clip after the other, with a seed and the keywords of *vary*."""

    def condition(clips: Sequence[Track], seed: int, *args: How.args, **how: How.kwargs) -> list[Track]:
        return [vary(clip, seed, *args, **how) for clip in clips]

    return condition


def clean(clips: Sequence[Track], _seed: int) -> list[Track]:
    return list(clips)


@of_each_clip
def noisy(clip: Track, seed: int, *, colour: Literal["white", "pink"], snr_db: float) -> Track:
    """Add steady noise, *snr_db* dB below the level of the speech."""
    loudness = speech_level(clip.samples) * 10 ** (-snr_db / 20)
    noise = loudness * _noise(len(clip.samples), colour, _chance(clip, seed))
    return replace(clip, samples=_within_scale(clip.samples + noise))


@of_each_clip
def in_a_room(clip: Track, seed: int) -> Track:
    """Add the echoes of a small room with hard walls. The direct sound and the word times do not move.

    The echoes are noise that decays by 60 dB in RT60_S, and the clip becomes longer by that time.
    """
    first, last = round(ECHO_FROM_S * RATE), round(RT60_S * RATE)
    echoes = _chance(clip, seed).standard_normal(last) * 10 ** (-3 * np.arange(last) / last)
    echoes[:first] = 0.0
    echoes *= 10 ** (-DIRECT_TO_ECHO_DB / 20) / np.linalg.norm(echoes)
    echoes[0] = 1.0
    length = len(clip.samples) + last
    quick = _quick(length)
    both = np.fft.irfft(np.fft.rfft(clip.samples, quick) * np.fft.rfft(echoes, quick), quick)
    return replace(clip, samples=_within_scale(both[:length]))


@of_each_clip
def by_telephone(clip: Track, seed: int) -> Track:
    """Reduce the sound to a telephone's: 300 to 3400 Hz, 8000 samples a second, G.711 mu-law; then back to RATE.

    The line makes each clip quieter by up to LINE_DB before mu-law, which decides how coarse it is, and louder after.
    """
    length = _quick(len(clip.samples))
    spectrum = np.fft.rfft(clip.samples, length) * _band(np.fft.rfftfreq(length, 1 / RATE))
    level = 10 ** (-_chance(clip, seed).uniform(0.0, LINE_DB) / 20)
    narrow = _by_mulaw(level * _within_scale(np.fft.irfft(spectrum, length)[::2]))
    wide = 2 / level * np.fft.irfft(np.fft.rfft(narrow), length)
    return replace(clip, samples=_within_scale(wide[: len(clip.samples)]))


def short(clips: Sequence[Track], seed: int) -> list[Track]:
    """Cut the clips into utterances of SHORT_S, in the middle of pauses between words."""
    return [piece for clip in clips for piece in _short_pieces(clip, _chance(clip, seed))]


CONDITIONS: Mapping[str, Condition] = {
    "clean": clean,
    "white noise, 20 dB": partial(noisy, colour="white", snr_db=20),
    "white noise, 10 dB": partial(noisy, colour="white", snr_db=10),
    "pink noise, 20 dB": partial(noisy, colour="pink", snr_db=20),
    "pink noise, 10 dB": partial(noisy, colour="pink", snr_db=10),
    "small room": in_a_room,
    "telephone": by_telephone,
    "short alone": short,
}


def string_together(
    clips: Sequence[Track], seed: int, length_s: float, *, pauses_s: tuple[float, float] = PAUSES_S
) -> Track:
    """Return a track of exactly *length_s*: the clips in random order with random pauses between them.

    Each clip is used once before any is repeated. Faint noise lies under everything. Near the end a clip that does not
    fit stops at a pause between two of its words, or is left out, so that no word is cut through.
    """
    chance = np.random.default_rng(seed)
    length = round(length_s * RATE)
    samples = 10 ** (BETWEEN_DB / 20) * _noise(length, "white", chance)
    truth: list[Truth] = []
    at = round(chance.uniform(*pauses_s) * RATE)
    left_out = 0
    for clip in _shuffle(clips, chance):
        said = _cut_after(clip, length - at)
        if not len(said.samples):
            left_out += 1
            if left_out == len(clips):
                break
            continue
        samples[at : at + len(said.samples)] += _fade(said.samples)
        truth += [replace(word, start=word.start + at / RATE, end=word.end + at / RATE) for word in said.truth]
        at += len(said.samples) + round(chance.uniform(*pauses_s) * RATE)
        left_out = 0
    return Track(f"joined {seed}", clips[0].language, _within_scale(samples), tuple(truth))


def speech_level(samples: Samples) -> float:
    """Return the root mean square of the frames with speech, 0 for silence."""
    power = _powers(samples)
    if not len(power):
        return 0.0
    loud = np.percentile(power, 95)
    return float(np.sqrt(power[power >= loud * 10 ** (-ACTIVE_DB / 10)].mean()))


def pauses(clip: Track) -> list[tuple[float, int]]:
    """Return where the clip can be cut between two words: (second in the middle of the pause, words before it).

    A pause is quiet for MIN_PAUSE_S and has the border of two words in it, or as near as word times are good.
    """
    if not clip.truth:
        return []
    between = ((left.end + right.start) / 2 for left, right in pairwise(clip.truth))
    borders = [clip.truth[0].start, *between, clip.truth[-1].end]
    found = {}
    for begin, end in _quiet(clip.samples):
        middle = (begin + end) / 2
        words = min(range(len(borders)), key=lambda number: abs(borders[number] - middle))
        if 0 < words < len(clip.truth) and begin - NEAR_S <= borders[words] <= end + NEAR_S:
            found[words] = middle
    return [(middle, words) for words, middle in sorted(found.items())]


def _quiet(samples: Samples) -> Iterator[tuple[float, float]]:
    """Return the spans between the first and the last sound that are quiet for MIN_PAUSE_S, in seconds."""
    loud = np.flatnonzero(_powers(samples) >= speech_level(samples) ** 2 * 10 ** (-QUIET_DB / 10))
    for left, right in pairwise(loud):
        begin, end = (left + 1) * FRAME / RATE, right * FRAME / RATE
        if end - begin >= MIN_PAUSE_S:
            yield float(begin), float(end)


def _short_pieces(clip: Track, chance: Generator) -> Iterator[Track]:
    """Yield pieces from the start on; each ends at a pause that makes it neither too short nor too long."""
    cuts = [(0.0, 0), *pauses(clip), (clip.seconds, len(clip.truth))]
    here = 0
    while here < len(cuts) - 1:
        begin, first = cuts[here]
        ends = [i for i in range(here + 1, len(cuts)) if SHORT_S[0] <= cuts[i][0] - begin <= SHORT_S[1]]
        if not ends:
            here += 1
            continue
        here = int(chance.choice(ends))
        end, last = cuts[here]
        yield _piece(clip, begin, end, range(first, last))


def _piece(clip: Track, begin: float, end: float, words: range) -> Track:
    """Return the samples and words between two moments, with times that start at the first moment."""
    samples = clip.samples[round(begin * RATE) : round(end * RATE)]
    last = len(samples) / RATE
    truth = tuple(
        replace(word, start=min(max(0.0, word.start - begin), last), end=min(max(0.0, word.end - begin), last))
        for word in (clip.truth[i] for i in words)
    )
    return Track(f"{clip.name} {begin:.2f}-{end:.2f}", clip.language, samples, truth)


def _cut_after(clip: Track, length: int) -> Track:
    """Return at most *length* samples from the start of the clip, without cutting a word."""
    if len(clip.samples) <= length:
        return clip
    ends = [(at, words) for at, words in pauses(clip) if at * RATE <= length]
    at, words = max(ends, default=(0.0, 0))
    return _piece(clip, 0.0, at, range(words))


def _shuffle(clips: Sequence[Track], chance: Generator) -> Iterator[Track]:
    """Yield all clips in random order, endlessly, and none twice in a row."""
    before = -1
    while True:
        order = chance.permutation(len(clips))
        if len(order) > 1 and order[0] == before:
            order = order[::-1]
        for number in order:
            yield clips[number]
        before = order[-1]


def _chance(clip: Track, seed: int) -> Generator:
    return np.random.default_rng([seed, zlib.crc32(clip.name.encode()), len(clip.samples)])


def _noise(length: int, colour: Literal["white", "pink"], chance: Generator) -> Samples:
    """Return noise with a root mean square of 1."""
    noise = chance.standard_normal(_quick(length), dtype=np.float32)
    if colour == "pink":
        shape = np.fft.rfftfreq(len(noise), 1 / RATE)
        shape[0] = np.inf  # no direct current
        noise = np.fft.irfft(np.fft.rfft(noise) / np.sqrt(shape))
    noise = noise[:length]
    return (noise / np.sqrt(np.mean(noise**2))).astype(np.float32)


def _quick(length: int) -> int:
    """Return a length of at least *length* without the large prime factors that make Fourier transforms slow."""
    return -(-length // 4096) * 4096


def _band(hz: np.ndarray) -> np.ndarray:
    """Return the gain at each frequency: 1 within BAND_HZ, falling to 0 over EDGE_HZ outside."""
    low, high = BAND_HZ
    inside = np.clip((hz - low + EDGE_HZ) / EDGE_HZ, 0, 1) * np.clip((high + EDGE_HZ - hz) / EDGE_HZ, 0, 1)
    return np.sin(np.pi / 2 * inside) ** 2


def _by_mulaw(samples: Samples) -> Samples:
    """Return the nearest of the 256 values of G.711 for each sample."""
    from pipeline.ingest.raw_audio import MULAW  # noqa: PLC0415  a process whose memory is measured loads no pipeline

    values = np.sort(MULAW)
    return values[np.searchsorted((values[1:] + values[:-1]) / 2, samples)]


def _powers(samples: Samples) -> np.ndarray:
    whole = samples[: len(samples) // FRAME * FRAME].astype(np.float64)
    return (whole.reshape(-1, FRAME) ** 2).mean(axis=1)


def _within_scale(samples: np.ndarray) -> Samples:
    """Return the samples, made quieter if they exceed full scale."""
    loudest = float(np.abs(samples).max(initial=0.0))
    return (samples * min(1.0, LOUDEST / max(loudest, 1e-9))).astype(np.float32)


def _fade(samples: Samples) -> Samples:
    ramp = np.linspace(0, 1, min(round(FADE_S * RATE), len(samples) // 2), dtype=np.float32)
    faded = samples.copy()
    if len(ramp):
        faded[: len(ramp)] *= ramp
        faded[-len(ramp) :] *= ramp[::-1]
    return faded
