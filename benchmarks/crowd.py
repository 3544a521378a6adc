"""Many speakers at once on one server: python -m benchmarks.crowd [--sessions 8] [--seconds 180] [--overload 80]

    .venv/bin/python -m benchmarks.crowd --sessions 24 --overload 240 --model tests/speech/tiny-whisper --speech made

First, --sessions sessions speak together for minutes: none may be dropped, and the event loop must stay responsive.
Then far more try to connect: partials become rarer, the server refuses sessions once the model is busy, and every
admitted session must finish.
Writes benchmarks/results/crowd.json, for made speech crowd-made.json.
"""

import argparse
import asyncio
from collections import Counter
from itertools import cycle, islice
from typing import Any

from benchmarks.choices import add_choices, choices_of
from benchmarks.driving import FRAME_S, Crowd, random_starts
from benchmarks.measure import rss_mb, write
from benchmarks.named import MODEL, cpu_by_use
from benchmarks.serving import Serving, buckets, percentile, serving
from benchmarks.tracks import WARM_UP_S, Track
from benchmarks.wires import Scribewire, Wire

MANY = {"live_sessions = 100\n": "live_sessions = 1000\n"}
OVERLOAD_S = 60.0  # length of a session
ARRIVAL_S = 0.25  # between two of them
VOICES = 240  # different ones; later speakers repeat what an earlier one said
OVERLOAD_FRAME_S = 0.1  # the sender shares the machine


async def crowd(
    server: Serving, tracks: list[Track], apart_s: list[float], *, frame_s: float = FRAME_S, since_s: float = 0.0
) -> tuple[dict[str, Any], list[float]]:
    """Return the results of all sessions, and the server's memory at the start of each minute."""

    async def open_wire(track: Track) -> Wire:
        return await asyncio.to_thread(Scribewire.open_session, server.base, server.key, track.language)

    before, used = buckets(server.metrics()), cpu_by_use(server.pid)
    speakers = Crowd(open_wire, server.pid, frame_s=frame_s, since_s=since_s)
    row = await speakers.run(tracks, apart_s)
    after = buckets(await asyncio.to_thread(server.metrics))
    row |= {
        "loop_lag_p99_ms_at_most": percentile(before, after, 0.99) * 1000,
        "rss_mb_after": round(rss_mb(server.pid)),
        **shares(cpu_by_use(server.pid) - used),
    }
    print(row, flush=True)
    return row, speakers.memory_mb()


def shares(used: Counter[str]) -> dict[str, Any]:
    """Return the CPU seconds of the server by use, and of all uses but the model as a share of the model's."""
    return {
        "cpu_s": {use: round(seconds, 1) for use, seconds in used.most_common()},
        "cpu_beside_model": round((used.total() - used[MODEL]) / used[MODEL], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--overload", type=int, default=80, help="how many sessions want in then; 0: not measured")
    parser.add_argument("--overload-seconds", type=float, default=OVERLOAD_S, help="length of each of these")
    parser.add_argument("--result", default="crowd", help="name of the result file")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    choices = choices_of(args)
    settings = {"ENGINE": "whisper", "WHISPER_MODEL": choices.model}
    rows: dict[str, dict[str, Any]] = {}
    memory_mb: dict[str, list[float]] = {}
    with serving(MANY, program="benchmarks.named", **settings) as server:
        tracks = choices.tracks(args.sessions, args.seconds)
        speaking = crowd(server, tracks, random_starts(args.sessions), since_s=WARM_UP_S)
        rows["together"], memory_mb["together"] = asyncio.run(speaking)
    if args.overload:
        with serving(MANY, program="benchmarks.named", **settings) as server:
            voices = choices.tracks(min(VOICES, args.overload), args.overload_seconds)
            tracks = list(islice(cycle(voices), args.overload))
            apart = [ARRIVAL_S * number for number in range(args.overload)]
            speaking = crowd(server, tracks, apart, frame_s=OVERLOAD_FRAME_S)
            rows["overload"], memory_mb["overload"] = asyncio.run(speaking)
    if not args.no_write:
        print(write(choices.result(args.result), {**choices.about(), **rows, "memory_mb": memory_mb}))


if __name__ == "__main__":
    main()
