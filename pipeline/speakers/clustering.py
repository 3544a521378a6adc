"""Finds how many voices a recording has and what each sounds like, from the turns of all its windows.

Turns of at least some length are merged, the most alike pair first, until no two groups are alike enough (average
linkage). Two local voices of one window are never the same person, so their distance is set larger than any that a
sound can have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.speakers.frames import SIZE, VOICES, Window, average, unit

Array = NDArray[np.float32]

APART = 0.33
"""The mean cosine distance from which two groups are two people."""

SAME_WINDOW = 2.0
"""The distance of two local voices of one window."""

MOST_TURNS = 2000
"""Turns that are compared with each other: of more, evenly chosen ones. Their distances take 16 MB."""

LONG_TURN_S = 2.0
"""Turns that are compared are this long, or in short recordings at least SHORT_TURN_S."""

SHORT_TURN_S = 0.8
_TURN_SHARE = 0.02  # of all speech, as the windows hear it: where this is less than LONG_TURN_S
_GROUP_SHARE = 0.02  # of all speech: a person who speaks less is joined to the person most alike
_LEAST_TURNS_S = (0.5, 0.0)  # what suffices where no turn is long enough


@dataclass(frozen=True, slots=True)
class _Point:
    window: int
    voice: int
    seconds: float
    embedding: Array


def find_voices(windows: Sequence[Window], most: int) -> Array:
    """Return what each of at most *most* voices sounds like, one a row; no row where nobody speaks.

    Those who speak most come first.
    """
    spoken_s = sum(turn.seconds for window in windows for turn in window.turns)
    long_s = min(LONG_TURN_S, max(SHORT_TURN_S, spoken_s * _TURN_SHARE))
    points: list[_Point] = []
    for least_s in (long_s, *_LEAST_TURNS_S):
        points = points or _points(windows, least_s)
    if not points:
        return np.zeros((0, SIZE), np.float32)
    points = points[:: -(-len(points) // MOST_TURNS)]
    embeddings = np.array([point.embedding for point in points])
    seconds = np.array([point.seconds for point in points], np.float32)
    groups = cut(average_linkage(_distances(points, embeddings)), len(points), APART, most)
    spoken = np.bincount(groups, weights=seconds)
    kept = np.flatnonzero(spoken >= min(spoken.max(), max(long_s, spoken.sum() * _GROUP_SHARE)))
    sums = [(embeddings * seconds[:, None])[groups == group].sum(axis=0) for group in kept]
    return unit(np.array(sums))[np.argsort(-spoken[kept], kind="stable")]


def _points(windows: Sequence[Window], least_s: float) -> list[_Point]:
    """Return the turns of at least *least_s*, and the others of a local voice as one where it has no such turn."""
    points: list[_Point] = []
    for index, window in enumerate(windows):
        for voice in range(VOICES):
            turns = window.of_voice(voice)
            long = [turn for turn in turns if turn.seconds >= least_s]
            points += [_Point(index, voice, turn.seconds, turn.embedding) for turn in long]
            seconds = sum(turn.seconds for turn in turns)
            if turns and not long and seconds >= least_s:
                points.append(_Point(index, voice, seconds, average(turns)))
    return points


def _distances(points: Sequence[_Point], embeddings: Array) -> Array:
    distances: Array = 1 - embeddings @ embeddings.T
    window = np.array([point.window for point in points])
    voice = np.array([point.voice for point in points])
    same_window = window[:, None] == window
    distances[same_window & (voice[:, None] != voice)] = SAME_WINDOW
    return distances


def average_linkage(distances: Array) -> list[tuple[float, int, int]]:
    """Merge the nearest groups again and again until one is left; return each merge as (distance, one, another).

    A group is named by one of its members. Groups that are each other's nearest are merged as they are found (Murtagh's
    chain of nearest neighbours), which gives the merges of the plain algorithm in the time of its distances alone.
    The distances are overwritten.
    """
    count = len(distances)
    np.fill_diagonal(distances, np.inf)
    sizes = np.ones(count)
    merges: list[tuple[float, int, int]] = []
    chain: list[int] = []
    left = list(range(count))
    while len(merges) < count - 1:
        if not chain:
            chain.append(next(group for group in left if sizes[group]))
        last = chain[-1]
        nearest = int(distances[last].argmin())
        if len(chain) > 1 and distances[last, chain[-2]] <= distances[last, nearest]:
            nearest = chain[-2]
            del chain[-2:]
            merges.append((float(distances[last, nearest]), last, nearest))
            _merge(distances, sizes, last, nearest)
        else:
            chain.append(nearest)
    return sorted(merges)


def _merge(distances: Array, sizes: NDArray[np.float64], kept: int, gone: int) -> None:
    joined = (distances[kept] * sizes[kept] + distances[gone] * sizes[gone]) / (sizes[kept] + sizes[gone])
    joined[kept] = np.inf
    distances[kept] = distances[:, kept] = joined
    distances[gone] = distances[:, gone] = np.inf
    sizes[kept] += sizes[gone]
    sizes[gone] = 0


def cut(merges: Sequence[tuple[float, int, int]], count: int, apart: float, most: int) -> NDArray[np.intp]:
    """Return the group, 0, 1, ..., of each of *count* points: merges below *apart*, and as many as leave *most*."""
    parent = list(range(count))

    def root(point: int) -> int:
        while parent[point] != point:
            parent[point] = parent[parent[point]]
            point = parent[point]
        return point

    groups = count
    for distance, one, another in merges:
        if distance >= apart and groups <= most:
            break
        parent[root(another)] = root(one)
        groups -= 1
    return np.unique([root(point) for point in range(count)], return_inverse=True)[1]
