"""The windows in which a model recognises speech, and how long its prompts and answers may be.

Full windows suit every Whisper model; shorter ones cost less, encoding 10 s a ninth of encoding 30 s. But Whisper was
trained on windows of 30 s: in too short ones it loses words or repeats them, and how short they may be depends on the
model. Published models that were measured are listed here. Any other one uses full windows until `scribewire doctor`
has measured it: a minute of speech, which is part of this package, is recognised in full windows and in shorter ones,
and the shortest that lose no words are chosen, first those of short utterances, then those of the jobs of files.

CTranslate2 decodes several requests in one pass only if their prompts have equal length. The user's hint stands before
<|startoftranscript|>; the model reads it in one step, which costs almost nothing. An answer may begin with the tokens
of decided words. Each of them costs as much as a token that the model generates.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.audio import LONGEST_JOB, RATE, Samples, floats_of
from pipeline.languages import plain
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.words import join_words

WINDOWS_S = (5, 7, 10, 15, 20, 30)
"""The lengths that windows are padded to. None gives an encoder output of exactly 80 or 128 positions (1.6 s, 2.56 s),
which CTranslate2 would take for features and encode a second time without an error."""

JOBS_S = (4, 9, 14, 19, 28)
"""The lengths of jobs that a file may be cut into. Each fills one of WINDOWS_S except for its padding."""

PAD_S = 1
"""The least silence at the end of a window, except the longest one: Whisper was trained on speech that ends."""

HINT_TOKENS = 128
"""The most tokens of a vocabulary hint that are used, because prompt and answer share 448 positions."""

_MAX_ANSWER = 224  # tokens, half of Whisper's positions: the most that it was trained to say in 30 s

Encode: TypeAlias = Callable[[str], tuple[int, ...]]
"""Turns text into tokens."""


def window_for(samples: int, min_s: int = WINDOWS_S[0]) -> int:
    """Return the shortest of WINDOWS_S that holds *samples* and PAD_S of silence, in seconds; else the longest.

    It is never below *min_s*.
    """
    needed = max(samples + PAD_S * RATE, min_s * RATE)
    return next((window for window in WINDOWS_S if needed <= window * RATE), WINDOWS_S[-1])


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Which windows suit one model. All in seconds."""

    partial_s: int  # the shortest window of a partial, one of WINDOWS_S
    final_s: int  # the shortest window of a final, one of WINDOWS_S
    job_s: int  # the longest job that a file is cut into

    @property
    def longest_job(self) -> int:
        """The longest job, in samples."""
        return min(self.job_s * RATE, LONGEST_JOB)

    def window_s(self, samples: int, *, final: bool) -> int:
        """Return the length of the window for *samples* samples, in seconds."""
        return window_for(samples, self.final_s if final else self.partial_s)


FULL = WindowSizes(WINDOWS_S[-1], WINDOWS_S[-1], JOBS_S[-1])

KNOWN_SIZES: Mapping[str, WindowSizes] = {
    # tiny.en
    "2b3bddd7473a3cbd7cdf52203a6162195a8a9cfb0c0259dd0a98a117bb30cde7": WindowSizes(7, 15, 19),
    # base
    "a6571c2e2a0525f32feb426f8e8f4eedf063b7aef2141d4635d12ba4a87c2a96": WindowSizes(7, 15, 28),
    # the test model
    "3c347cc50f6e39b0177c7f861eb72e8e82452feb3dd5698dfa1cb45170cb6f1d": WindowSizes(5, 5, 4),
}
"""What suits a model, by the SHA-256 of the first and last MiB of its weights."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests in one call must have in common."""

    window_s: int
    hint_tokens: int  # tokens before <|startoftranscript|>, its own marker not counted
    final: bool
    prefix_tokens: int = 0  # tokens of the request with which the answer begins

    @property
    def max_tokens(self) -> int:
        """The most tokens of the answer. It limits the cost of endless repetition; speech has fewer than 8 a second."""
        return min(_MAX_ANSWER, (12 if self.final else 8) * self.window_s + 8)


def max_length(prompt: int, answer: int) -> int:
    """Return CTranslate2's max_length for *answer* tokens after *prompt* tokens. The answer gets at most half of it."""
    return max(2 * answer, prompt + answer)


def hint_tokens(request: DecodeRequest, encode: Encode) -> tuple[int, ...]:
    """Return what the model reads before the audio: as many keywords as fit into HINT_TOKENS, then the prompt's end.

    It continues in the style of what it has read: without a full stop its answers would begin in lower case.
    """
    hints = request.hints
    first = encode(", ".join(hints.keywords) + ".")[:HINT_TOKENS] if hints.keywords else ()
    rest = encode(" ".join(hints.prompt_in(request.language).split()))
    return first + rest[max(0, len(first) + len(rest) - HINT_TOKENS) :]


def prefix_text(request: DecodeRequest) -> str:
    """Return the text that the answer to *request* begins with: in a partial the decided words, else nothing."""
    return "" if request.final else join_words(request.decided)


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
