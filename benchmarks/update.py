"""The CPU time of one live update, by length of the audio, compared with faster-whisper: python -m benchmarks.update

    .venv/bin/python -m benchmarks.update --rounds 1 --no-write
    .venv/bin/python -m benchmarks.update --model tests/speech/tiny-whisper --speech made

Each system runs in its own process with one thread, and both take turns on the same audio. An update is the work for
one partial: here a greedy call with word times, there WhisperModel.transcribe() with its defaults and word times.
Encoding is the model's encoder alone, with log-mel, in the window that the model's window sizes give to such an update.
Writes benchmarks/results/update.json, for made speech update-made.json.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.conditions import string_together
from benchmarks.measure import ROOT, write
from pipeline.audio import RATE, Samples

LENGTHS_S = (3, 8, 28)
PAUSES_S = (0.2, 0.2)  # between clips: an update is asked for while somebody speaks
ROUNDS = 5
REPEATS = 5

Timed = dict[str, Callable[[Samples], object]]


def ours(model: str) -> Timed:
    from pipeline.recognition.engine import DecodeRequest  # noqa: PLC0415  each process loads what it measures
    from pipeline.recognition.engines.load import EngineSettings, load  # noqa: PLC0415  as above

    engine: Any = load(EngineSettings(engine="whisper", model=model, device="cpu", threads=1))

    def update(samples: Samples) -> object:
        return engine.recognise([DecodeRequest(samples=samples, start=0, language="en", final=False)])

    def encode(samples: Samples) -> object:
        window_s = engine.sizes.window_s(len(samples), final=False)
        return engine._encode([samples], window_s)  # noqa: SLF001  engines have no public encoder

    return {"update": update, "encode": encode}


def theirs(model: str) -> Timed:
    from faster_whisper import WhisperModel  # noqa: PLC0415  as above
    from faster_whisper.audio import pad_or_trim  # noqa: PLC0415  as above

    whisper = WhisperModel(model, device="cpu", compute_type="int8", cpu_threads=1)

    def update(samples: Samples) -> object:
        return list(whisper.transcribe(samples, language="en", word_timestamps=True)[0])

    def encode(samples: Samples) -> object:
        return whisper.encode(pad_or_trim(whisper.feature_extractor(samples)))

    return {"update": update, "encode": encode}


SYSTEMS = {"scribewire": ours, "faster-whisper": theirs}


def measure_steps(system: str, choices: Choices) -> dict[str, float]:
    """Return the CPU milliseconds of each step at each length, in this process."""
    speech = string_together(choices.clips(), 1, LENGTHS_S[-1], pauses_s=PAUSES_S).samples
    found: dict[str, float] = {}
    for what, act in SYSTEMS[system](choices.model).items():
        for length_s in LENGTHS_S:
            samples = speech[: length_s * RATE]
            act(samples)  # what is only done once is not counted
            began = time.process_time()
            for _ in range(REPEATS):
                act(samples)
            found[f"{what} {length_s} s"] = (time.process_time() - began) * 1000 / REPEATS
    return found


def compare_systems(choices: Choices, rounds: int) -> dict[str, Any]:
    chosen_again = ["--model", choices.model, "--speech", choices.speech]
    chosen_again += [word for folder in choices.folders for word in ("--clips", str(folder.absolute()))]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for _ in range(rounds):
        for name, several in runs.items():
            command = (sys.executable, "-m", "benchmarks.update", *chosen_again, "--only", name)
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            several.append(json.loads(done.stdout))
    middle = {
        name: {what: median(run[what] for run in several) for what in several[0]} for name, several in runs.items()
    }
    mine, their = middle["scribewire"], middle["faster-whisper"]
    return {
        **choices.about(),
        "cpu_ms": {name: {what: round(ms, 1) for what, ms in row.items()} for name, row in middle.items()},
        "share_of_theirs": {what: round(mine[what] / their[what], 3) for what in mine},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--only", choices=SYSTEMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    choices = choices_of(args)
    if args.only:
        print(json.dumps(measure_steps(args.only, choices)))
        return
    result = compare_systems(choices, args.rounds)
    print(json.dumps(result, indent=1))
    if not args.no_write:
        print(write(choices.result("update"), result))


if __name__ == "__main__":
    main()
