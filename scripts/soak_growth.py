"""Whether figures of a server grow with time: memory, descriptors, threads, processes and temporary files.

Work in progress is no growth, so each minute counts with its lowest figure. A Theil-Sen line is laid through the
minutes since the last restart (the last life): its slope is the median of the slopes of all pairs of points, so single
high or low minutes do not change it. The first third of the life is left out, because caches fill up then. A figure
grows if the line rises by more than is allowed over the rest. More is allowed in a short life, in which memory settles
and pools of threads fill up, so a short life shows large leaks only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

SHORT_MIN = 15  # a life in which memory still settles
WARM_UP = 1 / 3  # of the last life, not judged
MIN_POINTS = 6  # a line through fewer says nothing


@dataclass(frozen=True)
class Allowance:
    """How far a figure may rise over the judged time, in its own units; *short* if that is less than SHORT_MIN."""

    units: float
    short: float | None = None


ALLOWED = {
    "rss_mb": Allowance(16, short=80),
    "descriptors": Allowance(3, short=10),
    "threads": Allowance(3, short=12),
    "processes": Allowance(1),
    "temporary_files": Allowance(2),
}


@dataclass(frozen=True)
class Growth:
    """The line through one figure. *rise* and *allowed* are in units of the figure, over *over_min* minutes."""

    middle: float
    per_hour: float
    over_min: float
    rise: float
    allowed: float

    @property
    def too_much(self) -> bool:
        return self.rise > self.allowed


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the Theil-Sen slope of (x, y) *points*."""
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def growth(points: Sequence[tuple[float, float]], allowance: Allowance) -> Growth | None:
    """Judge (minute, figure) *points* of one life of the server. Returns None if they are too few."""
    if not points:
        return None
    begin, end = points[0][0], points[-1][0]
    judged = [point for point in points if point[0] >= begin + (end - begin) * WARM_UP]
    if len(judged) < MIN_POINTS:
        return None
    per_min, over_min = slope(judged), end - judged[0][0]
    return Growth(
        middle=round(median(y for _, y in judged), 2),
        per_hour=round(per_min * 60, 3),
        over_min=round(over_min, 2),
        rise=round(per_min * over_min, 2),
        allowed=allowance.short if allowance.short is not None and over_min < SHORT_MIN else allowance.units,
    )


def growths(minutes: Sequence[Mapping[str, float]]) -> dict[str, Growth]:
    """Judge every figure of ALLOWED over the last life in *minutes*, which have `minute` and `life` too.

    Returns nothing if there are too few minutes.
    """
    last = [row for row in minutes if row["life"] == minutes[-1]["life"]]
    found = {name: growth([(row["minute"], row[name]) for row in last], allowed) for name, allowed in ALLOWED.items()}
    return {name: line for name, line in found.items() if line is not None}
