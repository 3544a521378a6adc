"""Pictures of the results: python -m benchmarks.plots writes benchmarks/results/peers.svg from peers.json."""

import json
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.measure import RESULTS

OURS, THEIRS, LATER = "#0b6e4f", "#8a8f98", 0.45
"""Colours of the systems, and how much paler the 95th percentile is than the median."""


def main() -> None:
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "scribewire", "font.size": 9}
    )  # the same file each time
    rows = json.loads((RESULTS / "peers.json").read_text())["systems"]
    counts = sorted({row["sessions"] for row in rows})
    figure, axes = plt.subplots(1, len(counts) + 1, figsize=(11, 0.5 * len(rows) / len(counts) + 1.2), sharey=True)
    for axis, count in zip(axes, counts, strict=False):
        latency(axis, [row for row in rows if row["sessions"] == count], count)
    cost(axes[-1], [row for row in rows if row["sessions"] == counts[0]])
    figure.tight_layout()
    path = RESULTS / "peers.svg"
    figure.savefig(path, metadata={"Date": None})
    print(path)


def latency(axis: Axes, rows: Sequence[dict[str, Any]], count: int) -> None:
    names, colours = _names(rows), _colours(rows)
    axis.barh(names, [row["commit_s"]["p95"] for row in rows], color=colours, alpha=LATER)
    axis.barh(names, [row["commit_s"]["p50"] for row in rows], color=colours)
    for place, row in enumerate(rows):
        axis.annotate(f" {row['commit_s']['p50']:.2f} / {row['commit_s']['p95']:.2f}", (0, place), va="center")
    axis.set_title(f"{count} session{'s' * (count > 1)}: seconds until a word is final\nmedian, and (pale) 95 %")
    axis.invert_yaxis()


def cost(axis: Axes, rows: Sequence[dict[str, Any]]) -> None:
    axis.barh(_names(rows), [row["cpu_per_audio_s"] for row in rows], color=_colours(rows))
    for place, row in enumerate(rows):
        axis.annotate(f" {row['cpu_per_audio_s']:.2f}", (0, place), va="center")
    axis.set_title("1 session: CPU seconds\nper second of audio")


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["system"] for row in rows]


def _colours(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [OURS if row["system"] == "scribewire" else THEIRS for row in rows]


if __name__ == "__main__":
    main()
