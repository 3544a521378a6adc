"""An hour of speech, as a file: audio seconds per CPU second, and memory, beside faster-whisper's two ways.

    .venv/bin/python -m benchmarks.throughput                 # writes benchmarks/results/throughput.json
    .venv/bin/python -m benchmarks.throughput --minutes 10 --rounds 1 --no-write

The clips of tests/speech are strung together with pauses. Each system hears the whole file in a process of its own,
with its default number of threads, and gives words with times; systems take turns, and the median round counts. CPU
time is that of the process and all it started, from its first line to its last: loading is in it.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.measure import ROOT, cpu_s, rss_mb, write
from benchmarks.tracks import MODEL, SPEECH

RATE = 16_000
PAUSE_S = 0.8
SHORT_MIN = 5  # the file that memory is compared with
SAMPLE_S = 0.05  # between two looks at memory


def ours(path: Path) -> int:
    from pipeline.batch import Batch, BatchOptions  # noqa: PLC0415  (each process loads what it measures)
    from pipeline.ingest.isolation import Isolation  # noqa: PLC0415
    from pipeline.ingest.vad import VoiceDetector  # noqa: PLC0415
    from pipeline.recognition.engines.load import EngineSettings, load  # noqa: PLC0415
    from pipeline.recognition.scheduler import Scheduler  # noqa: PLC0415

    async def words(stack: ExitStack) -> int:
        engine = stack.enter_context(closing(load(EngineSettings(engine="whisper", model=MODEL))))
        batch = Batch(
            engine=engine,
            recognition=stack.enter_context(closing(Scheduler(engine))),
            voice=VoiceDetector(),
            isolation=stack.enter_context(closing(Isolation())),
            threads=stack.enter_context(ThreadPoolExecutor(2)),
        )
        count = 0
        async for chunk in batch.transcribe(path, BatchOptions(tenant="file")):
            count += sum(len(segment.words) for segment in chunk.segments)
        return count

    with ExitStack() as stack:
        return asyncio.run(words(stack))


def batched(path: Path) -> int:
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415

    pipeline = BatchedInferencePipeline(WhisperModel(MODEL, device="cpu", compute_type="int8"))
    segments, _ = pipeline.transcribe(str(path), batch_size=8, word_timestamps=True)
    return sum(len(segment.words or []) for segment in segments)


def sequential(path: Path) -> int:
    from faster_whisper import WhisperModel  # noqa: PLC0415

    segments, _ = WhisperModel(MODEL, device="cpu", compute_type="int8").transcribe(str(path), word_timestamps=True)
    return sum(len(segment.words or []) for segment in segments)


SYSTEMS: dict[str, Callable[[Path], int]] = {"ours": ours, "batched": batched, "sequential": sequential}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--only", nargs=2, metavar=("SYSTEM", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        words = SYSTEMS[given.only[0]](Path(given.only[1]))
        print(json.dumps({"words": words, "cpu_s": cpu_s()}))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = compared(Path(folder), given.minutes, given.rounds)
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("throughput", result))


def compared(folder: Path, minutes: float, rounds: int) -> dict[str, Any]:
    long, short = folder / "long.flac", folder / "short.flac"
    audio_s = long_file(long, minutes * 60)
    long_file(short, SHORT_MIN * 60)
    ours(short)  # measures the model's windows where that was never done: once a machine, not once a file
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for _ in range(rounds):
        for name in SYSTEMS:
            runs[name].append(run(name, long))
            print(name, runs[name][-1], flush=True)
    rows = {name: median_run(several, audio_s) for name, several in runs.items()}
    rates = {name: row["audio_s_per_cpu_s"] for name, row in rows.items()}
    brief = statistics.median(run("ours", short)["peak_rss_mb"] for _ in range(rounds))
    return {
        "model": "tiny-whisper",
        "audio_s": audio_s,
        "rounds": rounds,
        "systems": rows,
        "ours_to_batched": round(rates["ours"] / rates["batched"], 2),
        "ours_to_sequential": round(rates["ours"] / rates["sequential"], 2),
        f"peak_rss_long_to_{SHORT_MIN}_min": round(rows["ours"]["peak_rss_mb"] / brief, 3),
    }


def long_file(path: Path, least_s: float) -> float:
    """Write speech of at least so many seconds, a block at a time; its length in seconds."""
    rows = json.loads((SPEECH / "manifest.json").read_text())
    clips = [row["file"] for row in rows if row["file"].startswith("espeak/") and row["language"] == "en"]
    pause = np.zeros(round(PAUSE_S * RATE), np.int16)
    written = 0
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16", format="FLAC") as out:
        while written < least_s * RATE:
            for clip in clips:
                samples, _ = soundfile.read(SPEECH / clip, dtype="int16")
                block = np.concatenate([samples, pause])
                out.write(block)
                written += len(block)
    return written / RATE


def run(system: str, path: Path) -> dict[str, float]:
    """One system hears one file in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.throughput", "--only", system, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            time.sleep(SAMPLE_S)
        assert child.stdout is not None
        answer = json.loads(child.stdout.read())
    return {**answer, "peak_rss_mb": round(peak, 1), "wall_s": round(time.monotonic() - began, 1)}


def _resident(pid: int) -> float:
    try:
        return rss_mb(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # one of them ended while it was looked at


def median_run(runs: list[dict[str, float]], audio_s: float) -> dict[str, Any]:
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return {
        **{name: round(value, 1) for name, value in middle.items()},
        "audio_s_per_cpu_s": round(audio_s / middle["cpu_s"], 1),
    }


if __name__ == "__main__":
    main()
