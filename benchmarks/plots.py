"""Pictures of the results: python -m benchmarks.plots writes benchmarks/results/*.svg from the results in DRAWN."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measure import RESULTS

OURS, THEIRS, LATER = "#0b6e4f", "#8a8f98", 0.45
"""Colours of the systems, and how much paler the 95th percentile is than the median."""


def main() -> None:
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "scribewire", "font.size": 9}
    )  # the same file each time
    for name, draw in DRAWN.items():
        for result in sorted(RESULTS.glob(f"{name}*.json")):
            print(draw(result))


def peers(result: Path) -> Path:
    """Draw the picture of one result into the folder of that result, as the other functions in DRAWN do."""
    rows = json.loads(result.read_text())["systems"]
    counts = sorted({row["sessions"] for row in rows})
    figure, axes = plt.subplots(1, len(counts) + 1, figsize=(11, 3.4), sharey=True, layout="constrained")
    for axis, count in zip(axes, counts, strict=False):
        latency(axis, [row for row in rows if row["sessions"] == count], count)
    cost(axes[-1], [row for row in rows if row["sessions"] == counts[0]])
    axes[0].invert_yaxis()
    return _save(figure, result)


def requests(result: Path) -> Path:
    rows = json.loads(result.read_text())["kinds"]
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), sharey=True, layout="constrained")
    names = [row["name"] for row in rows]
    for axis, column, title in (
        (axes[0], "cpu_us", "CPU microseconds a request"),
        (axes[1], "per_s", "requests a second"),
    ):
        for place, (system, colour) in enumerate((("scribewire", OURS), ("bare", THEIRS))):
            ends = [row[f"{system} {column}"] for row in rows]
            axis.barh([at + 0.4 * place for at in range(len(rows))], ends, 0.38, color=colour, label=system)
        axis.set_xscale("log")
        axis.set_title(title)
    axes[0].set_yticks([at + 0.2 for at in range(len(rows))], names)
    axes[0].invert_yaxis()
    axes[1].legend()
    return _save(figure, result)


def uploads(result: Path) -> Path:
    content = json.loads(result.read_text())
    rows = content["systems"]
    figure, axis = plt.subplots(figsize=(7, 1.8), layout="constrained")
    used = [row["cpu_s"] for row in rows]
    axis.barh(_names(rows), used, color=_colours(rows))
    _label(axis, used, [f"{seconds:.2f}" for seconds in used])
    axis.set_title(f"CPU seconds of the server for an upload of {content['mb']} MiB")
    return _save(figure, result)


def disturbances(result: Path) -> Path:
    rows = json.loads(result.read_text())["beside"]
    figure, axis = plt.subplots(figsize=(9, 2.4), layout="constrained")
    names, late = [row["name"] for row in rows], [row["late_s"]["p95"] for row in rows]
    axis.barh(names, late, color=OURS, alpha=LATER)
    axis.barh(names, [row["late_s"]["p50"] for row in rows], color=OURS)
    _label(axis, late, [f"{row['late_s']['p50']:.3f} / {row['late_s']['p95']:.3f}" for row in rows])
    axis.invert_yaxis()
    axis.set_title("a word reaches its reader after seconds: median, and (pale) 95 %")
    return _save(figure, result)


def _save(figure: Figure, result: Path) -> Path:
    path = result.with_suffix(".svg")
    figure.savefig(path, metadata={"Date": None})
    return path


def latency(axis: Axes, rows: Sequence[dict[str, Any]], count: int) -> None:
    late = [row["commit_s"]["p95"] for row in rows]
    axis.barh(_names(rows), late, color=_colours(rows), alpha=LATER)
    axis.barh(_names(rows), [row["commit_s"]["p50"] for row in rows], color=_colours(rows))
    _label(axis, late, [f"{row['commit_s']['p50']:.2f} / {row['commit_s']['p95']:.2f}" for row in rows])
    axis.set_title(f"{count} session{'s' * (count > 1)}: a word is final after")
    axis.set_xlabel("seconds: median, and (pale) 95 %")


def cost(axis: Axes, rows: Sequence[dict[str, Any]]) -> None:
    used = [row["cpu_per_audio_s"] for row in rows]
    axis.barh(_names(rows), used, color=_colours(rows))
    _label(axis, used, [f"{share:.2f}" for share in used])
    axis.set_title("1 session: CPU")
    axis.set_xlabel("CPU seconds per second of audio")


def _label(axis: Axes, ends: Sequence[float], texts: Sequence[str]) -> None:
    """Write the figures of each bar after its end."""
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axis.annotate(f" {text}", (end, place), va="center")
    axis.set_xlim(0, 1.35 * max(ends))


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["system"] for row in rows]


def _colours(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [OURS if row["system"] == "scribewire" else THEIRS for row in rows]


def tradeoff(result: Path) -> Path:
    content = json.loads(result.read_text())
    figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for row in content["systems"]:
        colour = THEIRS if " over " in row["system"] else OURS
        p50, p95, errors = row["commit_s"]["p50"], row["commit_s"]["p95"], 100 * row["wer"]
        axis.plot([p50, p95], [errors, errors], color=colour, alpha=LATER, linewidth=3)
        axis.plot([p50], [errors], "o", color=colour)
        axis.annotate(row["system"], (p50, errors), xytext=(0, 7), textcoords="offset points")
    axis.axhline(100 * content["systems"][0]["wer_offline"], color=OURS, linestyle=":", linewidth=1)
    axis.set_xlim(left=0)
    axis.set_ylim(0, 120 * max(row["wer"] for row in content["systems"]))
    axis.set_xlabel("seconds until a word is final: median (dot) to 95 % (line)")
    axis.set_ylabel("wrong words, %")
    axis.set_title(f"latency against accuracy, {content['systems'][0]['words']} words; dotted: the whole recording")
    return _save(figure, result)


DRAWN = {"peers": peers, "requests": requests, "uploads": uploads, "disturbances": disturbances, "tradeoff": tradeoff}


if __name__ == "__main__":
    main()
