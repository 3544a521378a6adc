"""The number of live sessions that this machine can carry with each model. `scribewire doctor` measures it.

Either the model is the limit, or the one core on which the server itself runs. The server reads the measurement and
refuses further sessions, so that the running ones do not fall behind.
"""

import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import orjson

from pipeline.audio import RATE, Framer, Samples
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.bootstrap import cores
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.speakers.live import LIVE_STEP
from pipeline.speakers.models import LENGTH
from pipeline.speakers.windows import SpeakerModels

CAPACITY_FILE = "capacity.json"
WINDOW_S = 8  # audio of a usual live request
STEP_S = 0.5  # between two requests of a session in which somebody speaks
BUSY = 0.9  # the fraction of time for which the model may be busy; the rest is for bursts
ROUNDS = 3  # measurements, of which the median counts
SERVED_S = 10  # speech of one session from which the work of the server is estimated
WHOLE = 8.0  # all that the server does for a session, as a multiple of its decisions about words: benchmarks/crowd.py
MAX_BUSY = 0.2  # the fraction of the processors' time that other programs may use while this machine is measured
BUSY_S = 1.5  # for so long they are watched
ENOUGH_S = 5.0  # after this time no further measurement is made, because a slow machine needs only one


@dataclass(frozen=True, slots=True)
class Capacity:
    """The measured capacity of this machine with one model."""

    engine: str
    model: str
    sessions: int  # at least 1
    alone_ms: float  # duration of a call with one request
    shared_ms: float  # duration of a call with as many requests as it takes, while the other replicas are as busy
    speakers_load: float = 0.0  # the load of labelling a session's speakers, as a fraction of the session's own load


def measure(engine: Engine, speech: Samples, speakers: SpeakerModels | None = None) -> Capacity:
    """Measure *engine* with *speech* of at least one second, and the load of labelling *speakers*.

    It takes a few seconds.
    """
    speech = np.resize(speech, WINDOW_S * RATE)
    alone_s = _median_s(lambda: _call_once(engine, speech, 1))
    with ThreadPoolExecutor(engine.replicas) as threads:
        batches = [engine.max_batch] * engine.replicas
        shared_s = _median_s(lambda: list(threads.map(lambda batch: _call_once(engine, speech, batch), batches)))
    sessions = max(1, min(int(BUSY * sum(batches) * STEP_S / shared_s), sessions_of_one_core(speech)))
    load = 0.0
    if speakers is not None:  # they run once a second on one core; all sessions together have BUSY of all cores
        window = np.resize(speech, LENGTH)
        before = speakers.listen(window, 0)
        load = _median_s(lambda: speakers.listen(window, LIVE_STEP, before)) * sessions / (BUSY * cores())
    return Capacity(
        engine.name, engine.model, sessions, round(alone_s * 1000, 1), round(shared_s * 1000, 1), round(load, 2)
    )


def sessions_of_one_core(speech: Samples) -> int:
    """Return how many live sessions the server carries whatever the model: it serves them all on one core."""
    speech, engine, core = np.resize(speech, SERVED_S * RATE), ScriptedEngine(), StreamCore(StreamOptions())
    began = time.process_time()
    for window in Framer().windows_of(speech):
        core.receive_audio(window[np.newaxis], [1.0])
        if (request := core.decode_wanted()) is not None:
            core.receive_hypothesis(engine.recognise([request])[0])
        core.events_received()
    return max(1, int(BUSY * SERVED_S / (WHOLE * (time.process_time() - began))))


def busy_share() -> float:
    """The fraction of the processors' time that all programs use now. It takes BUSY_S on Linux, else an estimate."""
    counts = Path("/proc/stat")
    if not counts.exists():
        return min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    def idle_and_all() -> tuple[int, int]:
        ticks = [int(cell) for cell in counts.read_text().partition("\n")[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)  # idle, and waiting for the disk

    before = idle_and_all()
    time.sleep(BUSY_S)
    idle, total = (after - earlier for after, earlier in zip(idle_and_all(), before, strict=True))
    return 1 - idle / max(1, total)


def write(capacities: Sequence[Capacity], folder: Path) -> Path:
    """Store the measurements of all models in *folder*. Returns the file."""
    path = folder / CAPACITY_FILE
    path.write_bytes(orjson.dumps([asdict(one) for one in capacities], option=orjson.OPT_INDENT_2) + b"\n")
    return path


def capacities_of(engine: str, models: Collection[str], folder: Path) -> dict[str, Capacity]:
    """The capacities that were measured for *models* of this kind of engine, by model. Others are left out."""
    try:
        stored = [Capacity(**one) for one in orjson.loads((folder / CAPACITY_FILE).read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return {}
    return {one.model: one for one in stored if one.engine == engine and one.model in models}


def _call_once(engine: Engine, speech: Samples, count: int) -> None:
    language = "en" if "en" in engine.languages else None
    engine.recognise([DecodeRequest(samples=speech, start=0, language=language, final=False)] * count)


def _median_s(work: Callable[[], object]) -> float:
    times: list[float] = []
    while not times or (len(times) < ROUNDS and sum(times) < ENOUGH_S):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)
