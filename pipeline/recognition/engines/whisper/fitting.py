"""Measures the shortest windows in which an unknown model recognises speech well. `scribewire doctor` calls it.

Long windows are expensive: encoding 10 s costs a ninth of encoding 30 s. But Whisper was trained on windows of 30 s. In
too short windows it loses words or repeats them. How short a window may be depends on the model. So a minute of speech,
which is part of this package, is recognised in full windows and in shorter ones, and the shortest that lose no words
are chosen. The windows of short utterances are chosen first, then those of the jobs into which files are cut.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.audio import RATE, Samples, floats_of
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.engines.whisper.prompts import PAD_S, WINDOWS_S
from pipeline.recognition.engines.whisper.windows import FULL, JOBS_S, WindowSizes
from pipeline.recognition.spoken_form import plain

SPEECH = Path(__file__).with_name("windows_speech.npz")
"""People who read English, and espeak-ng in Spanish. tests/speech/tools/make_windows_speech.py makes it."""

TOLERATED = 0.005
"""How much higher the error rate in shorter windows may be than in full ones."""

_SHORT_S = 4.0  # the most of an utterance that is recognised alone
_UNKNOWN_VOICE = 0.5  # a voice with a higher error rate in full windows says nothing about windows
_NOISE_DB = 15.0
_PAUSE = np.zeros(RATE // 2, np.float32)  # between the clips of a job

Recognise: TypeAlias = Callable[[WindowSizes, DecodeRequest], RecognitionResult]
"""Recognises one request in windows of these sizes."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of speech, its words with start and end in seconds, and the pauses at which it can be cut."""

    voice: str
    language: str
    samples: Samples
    words: tuple[tuple[str, float, float], ...]
    cuts: tuple[tuple[float, int], ...]  # seconds from its start, and how many words are before it


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of one or more clips, and the words that are spoken in it."""

    voice: str
    language: str
    samples: Samples
    words: tuple[str, ...]


def bundled_speech(path: Path = SPEECH) -> list[Clip]:
    """Return the clips of this package."""
    with np.load(path) as stored:
        rows = json.loads(bytes(stored["rows"]).decode())
        return [
            Clip(
                row["voice"],
                row["language"],
                floats_of(np.cumsum(stored[row["name"]], dtype=np.int16)),
                tuple((text, start, end) for text, start, end in row["words"]),
                tuple((at, words) for at, words in row["cuts"]),
            )
            for row in rows
        ]


def measure_sizes(recognise: Recognise, clips: Sequence[Clip]) -> WindowSizes:
    """Return the shortest windows in which a model makes no more errors than in full ones. Takes minutes.

    Each clip is recognised without and with noise. Partials use the windows that are found for finals.
    """
    clips = [*clips, *map(_noisy, clips)]
    parts = [part for clip in clips for part in _parts(clip)]
    short = list(_join_parts(parts, round(_SHORT_S * RATE)))
    known = _known_voices(recognise, short)
    alone = [part for part in short if part.voice in known]
    most = _errors(recognise, FULL, alone) + TOLERATED * sum(len(part.words) for part in alone)
    window_s = next(
        (s for s in WINDOWS_S[:-1] if known and _errors(recognise, WindowSizes(s, s, FULL.job_s), alone) <= most),
        WINDOWS_S[-1],
    )
    # Even shorter jobs would be recognised in the same window.
    lengths = [WindowSizes(window_s, window_s, job_s) for job_s in JOBS_S if job_s + PAD_S >= min(window_s, JOBS_S[-1])]
    jobs = {
        sizes: list(_join_parts([part for part in parts if part.voice in known], sizes.longest_job))
        for sizes in lengths
    }
    full = lengths[-1]
    most = _errors(recognise, full, jobs[full]) + TOLERATED * sum(len(job.words) for job in jobs[full])
    return next((sizes for sizes in lengths[:-1] if known and _errors(recognise, sizes, jobs[sizes]) <= most), full)


def _known_voices(recognise: Recognise, parts: Sequence[Excerpt]) -> set[str]:
    """Return the voices that the model understands in full windows."""
    voices = {part.voice: [one for one in parts if one.voice == part.voice] for part in parts}
    return {
        voice
        for voice, spoken in voices.items()
        if _errors(recognise, FULL, spoken) < _UNKNOWN_VOICE * sum(len(part.words) for part in spoken)
    }


def _errors(recognise: Recognise, sizes: WindowSizes, parts: Sequence[Excerpt]) -> int:
    """Return the number of missing words plus that of wrong ones; a loop counts as a lost excerpt."""
    errors = 0
    for part in parts:
        request = DecodeRequest(samples=part.samples, start=0, language=part.language, final=True)
        spoken = [plain(text) for text in part.words]
        recognised = [plain(word.text) for word in recognise(sizes, request).words]
        blocks = SequenceMatcher(None, spoken, recognised, autojunk=False).get_matching_blocks()
        errors += min(len(spoken), len(spoken) + len(recognised) - 2 * sum(block.size for block in blocks))
    return errors


def _noisy(clip: Clip) -> Clip:
    chance = np.random.default_rng(len(clip.samples))
    loud = float(np.sqrt(np.mean(np.square(clip.samples))))
    noise = loud * 10 ** (-_NOISE_DB / 20) * chance.standard_normal(len(clip.samples))
    return replace(clip, samples=np.clip(clip.samples + noise, -1, 1).astype(np.float32))


def _parts(clip: Clip) -> Iterator[Excerpt]:
    """Yield the clip in parts, cut at its pauses, with a pause before the first."""
    cuts = [(0.0, 0), *clip.cuts, (len(clip.samples) / RATE, len(clip.words))]
    for (begin, first), (end, last) in pairwise(cuts):
        samples = clip.samples[round(begin * RATE) : round(end * RATE)]
        samples = samples if begin else np.concatenate([_PAUSE, samples])
        yield Excerpt(clip.voice, clip.language, samples, tuple(word[0] for word in clip.words[first:last]))


def _join_parts(parts: Sequence[Excerpt], longest: int) -> Iterator[Excerpt]:
    """Yield the parts of each voice joined to excerpts that are as long as possible, but not above *longest*."""
    run: list[Excerpt] = []
    for part in parts:
        length = sum(len(one.samples) for one in run) + len(part.samples)
        if run and (run[0].voice != part.voice or length > longest):
            yield _join(run)
            run = []
        run.append(part)
    if run:
        yield _join(run)


def _join(parts: Sequence[Excerpt]) -> Excerpt:
    samples = np.concatenate([part.samples for part in parts])
    return replace(parts[0], samples=samples, words=tuple(word for part in parts for word in part.words))
