"""Counts the word errors between what was said and what was recognised, for benchmarks and tests."""

from collections.abc import Sequence

import numpy as np

from benchmarks.normalising import tokens


def spoken_words(text: str, language: str | None = None) -> list[str]:
    """Return the words of *text* in lower case, without punctuation, and normalised if they are English."""
    return [token.text for token in tokens(text.split(), language)]


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return how many words of *heard* must be inserted, deleted or replaced to get *said* (Levenshtein distance)."""
    return int(_distances(said, heard)[-1, -1])


def matches(said: Sequence[str], heard: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of indices of equal words, in order, along one of the cheapest ways from *heard* to *said*."""
    distances = _distances(said, heard)
    pairs: list[tuple[int, int]] = []
    row, column = len(said), len(heard)
    while row and column:
        replaced = int(said[row - 1] != heard[column - 1])
        if distances[row, column] == distances[row - 1, column - 1] + replaced:
            row, column = row - 1, column - 1
            if not replaced:
                pairs.append((row, column))
        elif distances[row, column] == distances[row - 1, column] + 1:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]


def _distances(said: Sequence[str], heard: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return a table whose entry [i, j] is the distance between the first i words said and the first j heard."""
    numbers = {word: number for number, word in enumerate({*said, *heard})}
    columns = np.array([numbers[word] for word in heard], dtype=np.int64)
    steps = np.arange(len(heard) + 1)
    distances = np.empty((len(said) + 1, len(heard) + 1), dtype=np.int64)
    distances[0] = steps
    for row, word in enumerate(said, start=1):
        above = distances[row - 1]
        best = np.concatenate(([row], np.minimum(above[1:] + 1, above[:-1] + (columns != numbers[word]))))
        # An insertion costs 1 a word: the running minimum of (best - column) + column.
        distances[row] = np.minimum.accumulate(best - steps) + steps
    return distances
