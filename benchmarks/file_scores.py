"""Scores the recognition of whole files: word errors, and errors of word times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.intervals import interval
from benchmarks.live_scores import Shown, plain
from benchmarks.measure import spread
from benchmarks.scoring import matches, spoken_words, word_errors
from benchmarks.tracks import Track


@dataclass(frozen=True, slots=True)
class RecognitionResult:
    """What one system recognised in one track."""

    words: Sequence[Shown]
    language: str | None

    @property
    def text(self) -> str:
        """The words as they are shown: a word brings the space before it, if it has one."""
        return "".join(word.text for word in self.words).strip()


def row(answers: Sequence[tuple[Track, RecognitionResult]]) -> dict[str, Any]:
    """Return the figures of one group of tracks: word errors in all and of each clip, and seconds of the word times."""
    errors = [clip_errors(track, answer.text) for track, answer in answers]
    words = [len(spoken_words(track.text, track.language)) for track, _ in answers]
    starts, ends = time_errors(answers)
    return {
        "clips": len(answers),
        "seconds": round(sum(track.seconds for track, _ in answers)),
        "words": sum(words),
        "errors": sum(errors),
        "wer": round(sum(errors) / sum(words), 4),
        "interval": interval(errors, words),
        "start_s": spread(starts),
        "end_s": spread(ends),
        "each": {track.name: pair for (track, _), pair in zip(answers, zip(errors, words, strict=True), strict=True)},
    }


def clip_errors(track: Track, text: str) -> int:
    said, heard = spoken_words(track.text, track.language), spoken_words(text, track.language)
    return word_errors(said, heard)


def time_errors(answers: Sequence[tuple[Track, RecognitionResult]]) -> tuple[list[float], list[float]]:
    """Return how far starts and ends of the words that were heard right are from where they were said, in seconds."""
    starts, ends = list[float](), list[float]()
    for track, answer in answers:
        for left, right in matches(plain(track.truth), plain(answer.words)):
            said, heard = track.truth[left], answer.words[right]
            if heard.start is not None and heard.end is not None:
                starts.append(abs(heard.start - said.start))
                ends.append(abs(heard.end - said.end))
    return starts, ends
