"""What one live update costs in CPU time, by length of the audio, and faster-whisper's: python -m benchmarks.update

Each system runs in a process of its own with one thread; both hear the same audio in turn. An update is what is done
for one partial: ours a greedy call with word times, theirs WhisperModel.transcribe() with its defaults and word times.
Encoding is the model's encoder alone, log-mel included. Writes benchmarks/results/update.json.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.measure import ROOT, write
from benchmarks.tracks import MODEL, clips, long_tracks
from pipeline.audio import RATE, Samples

LENGTHS_S = (3, 8, 28)
ROUNDS = 5
REPEATS = 5

Timed = dict[str, Callable[[Samples], object]]


def ours() -> Timed:
    from pipeline.recognition.engine import DecodeRequest  # noqa: PLC0415  (each process loads what it measures)
    from pipeline.recognition.engines.load import EngineSettings, load  # noqa: PLC0415

    engine = load(EngineSettings(engine="whisper", model=MODEL, windows="short", device="cpu", threads=1))

    def update(samples: Samples) -> object:
        return engine.hear([DecodeRequest(samples=samples, start=0, language="en", final=False)])

    def encode(samples: Samples) -> object:
        # The encoder alone is no part of what an engine offers.
        return engine._encode([samples], engine._window_s(samples))  # type: ignore[attr-defined]  # noqa: SLF001

    return {"update": update, "encode": encode}


def theirs() -> Timed:
    from faster_whisper import WhisperModel  # noqa: PLC0415
    from faster_whisper.audio import pad_or_trim  # noqa: PLC0415

    model = WhisperModel(MODEL, device="cpu", compute_type="int8", cpu_threads=1)

    def update(samples: Samples) -> object:
        return list(model.transcribe(samples, language="en", word_timestamps=True)[0])

    def encode(samples: Samples) -> object:
        return model.encode(pad_or_trim(model.feature_extractor(samples)))

    return {"update": update, "encode": encode}


SYSTEMS = {"scribewire": ours, "faster-whisper": theirs}


def measured(system: str) -> dict[str, float]:
    """CPU milliseconds of each thing at each length, in this process."""
    speech = long_tracks(clips(), 1)[0].samples
    found: dict[str, float] = {}
    for what, act in SYSTEMS[system]().items():
        for length_s in LENGTHS_S:
            samples = speech[: length_s * RATE]
            act(samples)  # what is only done once is not counted
            began = time.process_time()
            for _ in range(REPEATS):
                act(samples)
            found[f"{what} {length_s} s"] = (time.process_time() - began) * 1000 / REPEATS
    return found


def compared() -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for _ in range(ROUNDS):
        for name, several in runs.items():
            command = (sys.executable, "-m", "benchmarks.update", "--only", name)
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            several.append(json.loads(done.stdout))
    middle = {
        name: {what: median(run[what] for run in several) for what in several[0]} for name, several in runs.items()
    }
    mine, their = middle["scribewire"], middle["faster-whisper"]
    return {
        "model": "tiny-whisper",
        "cpu_ms": {name: {what: round(ms, 1) for what, ms in row.items()} for name, row in middle.items()},
        "share_of_theirs": {what: round(mine[what] / their[what], 3) for what in mine},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SYSTEMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measured(args.only)))
        return
    result = compared()
    print(json.dumps(result, indent=1))
    print(write("update", result))


if __name__ == "__main__":
    main()
