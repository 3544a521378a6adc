"""Scores what was heard in clips of known languages, alone or several on a track: errors of each, languages found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from unicodedata import combining, normalize

import numpy as np
from jiwer import process_words
from numpy.typing import NDArray
from text_to_num import alpha2digit

from benchmarks.corpora import Clip, clips_of
from benchmarks.intervals import bounds, difference, drawn, interval
from benchmarks.measure import spread
from benchmarks.scoring import spoken_words
from pipeline.audio import RATE, Samples
from pipeline.words import Word

COUNTED = frozenset({"es", "fr", "it", "nl"})  # whose number words are known; English ones are known to the normaliser
FIGURES = {
    "ru": ["ноль", "один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь", "девять"],
    "cs": ["nula", "jeden", "dva", "tri", "ctyri", "pet", "sest", "sedm", "osm", "devet"],
}
"""The words of figures in other languages, without accents."""

SHORTEST_FOUND_S = 2.0  # of a clip whose language should be found


@dataclass(frozen=True, slots=True)
class Recording:
    """One or more clips on a track, each with the place of its first sample and the one after its last."""

    name: str
    samples: Samples
    clips: tuple[tuple[int, int, Clip], ...]

    @property
    def language(self) -> str | None:
        """The language of all clips; None if they have several."""
        spoken = {clip.language for _, _, clip in self.clips}
        return spoken.pop() if len(spoken) == 1 else None


@dataclass(slots=True)
class Heard:
    """What a system heard in a recording. *lags_s*: how late its live words were final."""

    text: str
    cpu_s: float
    words: Sequence[Word] = ()
    lags_s: list[float] = field(default_factory=list)


def _words(text: str, language: str | None) -> list[str]:
    """Return the words as they are compared: numbers as figures, and no accents, which the Spanish prompts lack."""
    if language in COUNTED:
        text = alpha2digit(text, language, threshold=0)
    plain = "".join(mark for mark in normalize("NFD", text) if not combining(mark))
    figures = {word: str(figure) for figure, word in enumerate(FIGURES.get(language or "", ()))}
    return [figures.get(word, word) for word in spoken_words(normalize("NFC", plain), language)]


def errors_of_clips(recording: Recording, text: str) -> list[tuple[int, int]]:
    """Return the word errors and the words of each clip. An inserted word belongs to the clip of the word after it."""
    said = [_words(clip.text, recording.language) for _, _, clip in recording.clips]
    owner = [number for number, words in enumerate(said) for _ in words]
    wrong = [0] * len(said)
    found = process_words(
        " ".join(word for words in said for word in words), " ".join(_words(text, recording.language)) or "-"
    )
    for chunk in found.alignments[0]:
        for at in range(chunk.ref_start_idx, chunk.ref_end_idx):
            wrong[owner[at]] += chunk.type != "equal"
        if chunk.type == "insert":
            wrong[owner[min(chunk.ref_start_idx, len(owner) - 1)]] += chunk.hyp_end_idx - chunk.hyp_start_idx
    return [(errors, len(words)) for errors, words in zip(wrong, said, strict=True)]


def languages_of(recording: Recording, heard: Heard) -> list[str | None]:
    """Return the language of most words of each clip; None without words."""
    found = []
    for start, end, _ in recording.clips:
        mine = [
            word.language for word in heard.words if start - RATE / 5 <= (word.start + word.end) / 2 < end + RATE / 3
        ]
        found.append(Counter(mine).most_common(1)[0][0] if mine else None)
    return found


def longest_wrong_s(recording: Recording, heard: Heard) -> float:
    """Return the longest time of words in a row that have a language which is not spoken there."""

    def is_wrong(word: Word) -> bool:
        middle = (word.start + word.end) / 2
        near = min(recording.clips, key=lambda place: max(place[0] - middle, middle - place[1], 0))
        return word.language != near[2].language

    runs = [list(run) for wrong, run in groupby(heard.words, is_wrong) if wrong]
    return max((sum(word.end - word.start for word in run) / RATE for run in runs), default=0.0)


def figures(recordings: Sequence[Recording], heard: Sequence[Heard], *, finds: bool) -> dict[str, Any]:
    """Return one row: errors with their interval over clips, languages found, CPU and latency."""
    pairs = list(zip(recordings, heard, strict=True))
    each = [pair for recording, one in pairs for pair in errors_of_clips(recording, one.text)]
    wrong, said = [errors for errors, _ in each], [words for _, words in each]
    seconds = sum(len(recording.samples) for recording in recordings) / RATE
    row: dict[str, Any] = {
        "clips": len(each), "seconds": round(seconds), "words": sum(said), "errors": sum(wrong),
        "wer": round(sum(wrong) / sum(said), 4), "interval": interval(wrong, said),
        "cpu_per_s": round(sum(one.cpu_s for one in heard) / seconds, 3),
        "each": each,
    }  # fmt: skip
    if finds:
        found = [
            (language, clip.language)
            for recording, one in pairs
            for (start, end, clip), language in zip(recording.clips, languages_of(recording, one), strict=True)
            if end - start >= SHORTEST_FOUND_S * RATE
        ]
        row["languages_right"] = [sum(language == spoken for language, spoken in found), len(found)]
        row["taken_for"] = dict(Counter(f"{spoken} {language}" for language, spoken in found if language != spoken))
        row["longest_wrong_s"] = round(max(longest_wrong_s(*pair) for pair in pairs), 1)
    if lags_s := [lag for one in heard for lag in one.lags_s]:
        row["final_after_s"] = spread(lags_s)
    return row


def compare(row: dict[str, Any], with_row: dict[str, Any]) -> dict[str, Any]:
    """Return how the errors of one row differ from those of another, with the interval over clips."""
    ours, theirs = ([errors for errors, _ in one["each"]] for one in (row, with_row))
    return {
        "difference": round((sum(ours) - sum(theirs)) / row["words"], 4),
        "difference_interval": difference(ours, theirs, [words for _, words in row["each"]]),
    }


def grams(reference: str, hypothesis: str) -> list[tuple[int, int, int]]:
    """Return how many strings of 1 to 6 characters, without spaces, the reference has, the hypothesis, and both."""
    found = []
    for length in range(1, 7):
        said, heard = (
            Counter(text[at : at + length] for at in range(len(text) - length + 1))
            for text in ("".join(reference.split()), "".join(hypothesis.split()))
        )
        found.append((said.total(), heard.total(), (said & heard).total()))
    return found


def chrf(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the chrF (Popović 2015, beta 2) of grams(), whose last two dimensions *counts* has."""
    said, heard, both = np.moveaxis(counts, -1, 0)
    precision, recall = both / np.maximum(1, heard), both / np.maximum(1, said)
    scores: NDArray[np.float64] = 100 * np.mean(5 * precision * recall / np.maximum(1e-9, 4 * precision + recall), -1)
    return scores


def chrf_row(recordings: Sequence[Recording], heard: Sequence[Heard], theirs: Sequence[Heard]) -> dict[str, Any]:
    """Return the chrF against the English prompts of the same names, and its difference from that of *theirs*."""
    english = {clip.path.stem: clip.text for clip in clips_of("en")}
    said = [" ".join(english[clip.path.stem] for _, _, clip in recording.clips) for recording in recordings]
    ours, other = (np.array([grams(*pair) for pair in zip(said, (one.text for one in way), strict=True)])
                   for way in (heard, theirs))  # fmt: skip
    several = drawn(len(said))
    return {
        "recordings": len(said), "chrf": round(float(chrf(ours.sum(axis=0))), 1),
        "cpu_s": round(sum(one.cpu_s for one in heard), 1),
        "more_interval": bounds(chrf(ours[several].sum(axis=1)) - chrf(other[several].sum(axis=1))),
    }  # fmt: skip
