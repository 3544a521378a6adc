"""Scores the recognition of whole files: word errors, and errors of word times. Pure, and quick to import."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.live_scores import Shown, timed_tokens, within_edges
from benchmarks.scoring import matches, word_errors
from benchmarks.tracks import Track


@dataclass(frozen=True, slots=True)
class RecognitionResult:
    """What one system recognised in one track."""

    words: Sequence[Shown]
    language: str | None


def row(answers: Sequence[tuple[Track, RecognitionResult]]) -> dict[str, Any]:
    """Return the figures of one group."""
    errors = words = wrong = 0
    starts: list[float] = []
    ends: list[float] = []
    for track, answer in answers:
        said, heard = timed_tokens(track.truth, track.language), timed_tokens(answer.words, track.language)
        heard = heard[within_edges([word.text for word in said], [word.text for word in heard], track.edges)]
        errors += word_errors([word.text for word in said], [word.text for word in heard])
        words += len(said)
        wrong += bool(said) and answer.language != track.language
        for left, right in matches([word.text for word in said], [word.text for word in heard]):
            for errors_s, known, found in (
                (starts, said[left].start, heard[right].start),
                (ends, said[left].end, heard[right].end),
            ):
                if known is not None and found is not None:
                    errors_s.append(abs(found - known))
    seconds = round(sum(track.seconds for track, _ in answers))
    if not words:
        return {"clips": len(answers), "seconds": seconds, "words out of nothing": errors}
    figures: dict[str, Any] = {"clips": len(answers), "seconds": seconds, "words": words, "wer": errors / words}
    figures |= {"wrong languages": wrong}
    for name, values in (("start", starts), ("end", ends)):
        for share in (50, 95) if values else ():
            figures[f"{name} p{share} ms"] = round(1000 * float(np.percentile(values, share)))
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
