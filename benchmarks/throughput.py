"""A long file: time, CPU time, memory, errors and word times, compared with both methods of faster-whisper.

    .venv/bin/python -m benchmarks.throughput                 # an hour; writes benchmarks/results/throughput.json
    .venv/bin/python -m benchmarks.throughput --minutes 10 --rounds 1 --no-write

Clips are joined with pauses. Each system transcribes the whole file in its own process, with its default number of
threads and with word times. Systems take turns, and the median round counts. CPU time and wall time are those of the
process and its descendants from start to end, so both include loading.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import soundfile

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.file_scores import RecognitionResult, row
from benchmarks.live_scores import Shown
from benchmarks.measure import ROOT, cpu_s, rss_mb, write
from benchmarks.systems import Hears, by_batched, by_transcribe, by_us
from benchmarks.tracks import Track
from pipeline.audio import RATE

SHORT_MIN = 5  # the file that memory is compared with
SAMPLE_S = 0.05  # between two looks at memory

SYSTEMS: Mapping[str, Callable[[str], Hears]] = {"ours": by_us, "batched": by_batched, "sequential": by_transcribe}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--only", nargs=2, metavar=("SYSTEM", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    choices = choices_of(given)
    if given.only:
        [heard] = SYSTEMS[given.only[0]](choices.model)([Path(given.only[1])])
        print(json.dumps({"cpu_s": cpu_s(), "words": [(word.text, word.start, word.end) for word in heard.words]}))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = compare_systems(Path(folder), choices, given.minutes, given.rounds)
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("throughput", result))


def compare_systems(folder: Path, choices: Choices, minutes: float, rounds: int) -> dict[str, Any]:
    [track] = choices.tracks(1, minutes * 60)
    [brief] = choices.tracks(1, SHORT_MIN * 60)
    long, short = folder / "long.flac", folder / "short.flac"
    soundfile.write(long, track.samples, RATE)
    soundfile.write(short, brief.samples, RATE)
    run("ours", short, choices, brief)  # what is measured once for a model is not part of each file
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for _ in range(rounds):
        for name in SYSTEMS:
            runs[name].append(run(name, long, choices, track))
            print(name, runs[name][-1], flush=True)
    rows = {name: median_run(several, track.seconds) for name, several in runs.items()}
    memory = statistics.median(run("ours", short, choices, brief)["peak_rss_mb"] for _ in range(rounds))
    return {
        "model": choices.name,
        "audio_s": round(track.seconds),
        "rounds": rounds,
        "systems": rows,
        **{f"cpu_{other}_to_ours": _ratio(rows[other], rows["ours"], "cpu_s") for other in rows if other != "ours"},
        **{f"wall_ours_to_{other}": _ratio(rows["ours"], rows[other], "wall_s") for other in rows if other != "ours"},
        f"peak_rss_long_to_{SHORT_MIN}_min": round(rows["ours"]["peak_rss_mb"] / memory, 3),
    }


def _ratio(one: Mapping[str, float], other: Mapping[str, float], figure: str) -> float:
    return round(one[figure] / other[figure], 2)


def run(system: str, path: Path, choices: Choices, track: Track) -> dict[str, float]:
    """Let one system transcribe one file in its own process, and return its figures."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.throughput", "--model", choices.model, "--only", system, str(path)]
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, text=True) as child:
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            time.sleep(SAMPLE_S)
        wall_s = time.monotonic() - began
        if child.returncode:
            raise SystemExit(f"{system} failed")
        out.seek(0)
        answer = json.loads(out.read())
    heard = row([(track, RecognitionResult([Shown(*word) for word in answer["words"]], track.language))])
    figures = {name: heard[name] for name in ("words", "wer")}
    figures |= {f"{edge}_error_s": heard[f"{edge}_s"].get("p95", 0.0) for edge in ("start", "end")}
    return {"wall_s": wall_s, "cpu_s": answer["cpu_s"], "peak_rss_mb": peak, **figures}


def _resident(pid: int) -> float:
    try:
        return rss_mb(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # one of them ended while it was looked at


def median_run(runs: list[dict[str, float]], audio_s: float) -> dict[str, Any]:
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return {
        **{name: round(value, 1 if value > 1 else 4) for name, value in middle.items()},
        "audio_s_per_cpu_s": round(audio_s / middle["cpu_s"], 1),
        "audio_s_per_s": round(audio_s / middle["wall_s"], 1),
    }


if __name__ == "__main__":
    main()
