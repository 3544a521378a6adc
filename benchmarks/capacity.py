"""What a large installation needs, computed from what was measured: python -m benchmarks.capacity

    .venv/bin/python -m benchmarks.capacity --audio-hours 1000000 --sessions 10000 --node-cores 16 --database-cores 64

Takes the costs of a job, of a chunk and of a second of a live session from results/cluster.json, and the speed of the
recogniser from results/throughput.json and results/crowd.json: with another model, measure these two anew. Each line
says how it was computed. Writes benchmarks/results/capacity.json.
"""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import RESULTS, write

WORDS_S = 2.5  # of a person who speaks; each is a row of `events`
CHUNK_S = 28.0
MINUTES_A_FILE = 10.0
OUTPUTS = 2  # files a job leaves in the bucket
ROWS_A_JOB = 8  # job, first and last events, usage, counters, fairness, outputs
PEAK = 2.0  # the busiest hour, relative to the mean of the day
FULL = 0.7  # how much of a machine is planned to be in use
RETENTION_DAYS = 7.0
CONNECTIONS_A_NODE = 12  # at most: the pool and the listener of a process
LISTED_A_SWEEP, SWEEP_S = 20_000, 600.0  # of storage/s3/listing.py and jobs/housekeeping.py
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Wish:
    """The load that the installation must carry."""

    audio_hours: float  # of files, a day
    sessions: int  # live ones at once
    node_cores: int
    database_cores: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs, in seconds of a core unless a comment says otherwise."""

    job: float  # of the database: submit, claim and finish
    chunk: float  # of the database
    live_second: float  # of the database
    audio_s_a_core_s: float
    sessions_a_core: float
    event_bytes: float


def costs(cluster: Mapping[str, Any], throughput: Mapping[str, Any], crowd: Mapping[str, Any]) -> Costs:
    """Return the costs in three results of benchmarks."""
    store = cluster["stores"]["cluster"]
    return Costs(
        job=sum(store[f"database_cpu_ms {step}"] for step in ("submits", "claims", "finishes")) / 1000,
        chunk=store["database_cpu_ms chunks"] / 1000,
        live_second=store["database_cpu_ms a live second"] / 1000,
        audio_s_a_core_s=throughput["systems"]["ours"]["audio_s_per_cpu_s"],
        sessions_a_core=crowd["together"]["sessions"] / crowd["machine"]["cores"],
        event_bytes=store["bytes an event"],
    )


def _line(value: float, how: str) -> dict[str, Any]:
    return {"value": round(value, 1) if value < 100 else round(value), "how": how}


def demand(wish: Wish, cost: Costs) -> dict[str, dict[str, Any]]:
    """Return what is needed in the busiest hour, each number with its arithmetic."""
    audio_s = wish.audio_hours * 3600 / DAY_S * PEAK
    jobs_s = audio_s / (MINUTES_A_FILE * 60)
    chunks_s = audio_s / CHUNK_S
    worker_cores = audio_s / cost.audio_s_a_core_s / FULL
    live_cores = wish.sessions / cost.sessions_a_core / FULL
    words_s = (audio_s + wish.sessions) * WORDS_S
    rows_s = words_s + chunks_s * 2 + jobs_s * ROWS_A_JOB
    database = jobs_s * cost.job + chunks_s * cost.chunk + wish.sessions * cost.live_second
    return {
        "audio of files, s/s": _line(audio_s, f"{wish.audio_hours:,.0f} h x 3600 / {DAY_S:,.0f} s x peak {PEAK:g}"),
        "jobs/s": _line(jobs_s, f"that / {MINUTES_A_FILE:g} min a file"),
        "chunks/s": _line(chunks_s, f"audio / {CHUNK_S:g} s"),
        "worker nodes": _line(
            math.ceil(worker_cores / wish.node_cores) + 1,
            f"audio / {cost.audio_s_a_core_s:g} s a core second / {FULL:g} / {wish.node_cores} cores, and a spare",
        ),
        "live nodes": _line(
            math.ceil(live_cores / wish.node_cores) + 1,
            f"{wish.sessions:,} / {cost.sessions_a_core:g} a core / {FULL:g} / {wish.node_cores} cores, and a spare",
        ),
        "rows/s": _line(
            rows_s,
            f"(audio + sessions) x {WORDS_S:g} words, 2 a chunk, {ROWS_A_JOB} a job",
        ),
        "MB/s": _line(rows_s * cost.event_bytes / 1e6, f"rows x {cost.event_bytes:g} bytes"),
        "database cores": _line(
            database,
            f"jobs x {1000 * cost.job:.2f} ms + chunks x {1000 * cost.chunk:.2f} ms"
            f" + sessions x {1000 * cost.live_second:.3f} ms",
        ),
    }


def bottlenecks(wish: Wish, needed: Mapping[str, Mapping[str, Any]], cost: Costs) -> list[dict[str, Any]]:
    """Return what reaches its limit, the first first. *share* is the demand as a share of that limit."""
    kept_rows = needed["rows/s"]["value"] / PEAK * DAY_S * RETENTION_DAYS
    nodes = needed["worker nodes"]["value"] + needed["live nodes"]["value"]
    blobs = needed["jobs/s"]["value"] / PEAK * DAY_S * RETENTION_DAYS * OUTPUTS
    rows: list[tuple[str, float, float, str]] = [
        (
            "processor of the database",
            needed["database cores"]["value"],
            wish.database_cores * FULL,
            "a second database by account: every key begins with the account or the job",
        ),
        (
            "log of the database, MB/s",
            needed["MB/s"]["value"] * 2,
            500.0,
            "tables of events and jobs partitioned by day, and order words of files only where somebody reads them",
        ),
        (
            "disk of the database, TB",
            kept_rows * cost.event_bytes / 1e12,
            30.0,
            "events partitioned by day, so that old ones are dropped and not deleted; shorter retention",
        ),
        (
            "connections to the database",
            nodes * CONNECTIONS_A_NODE,
            1000.0,
            "larger nodes, smaller pools in workers, a pooler in front of the database",
        ),
        (
            "days to find an orphan in the bucket",
            blobs / LISTED_A_SWEEP * SWEEP_S / DAY_S,
            RETENTION_DAYS,
            "a rule of the bucket that deletes what is older than the longest retention",
        ),
    ]
    found = [
        {
            "name": name,
            "demand": round(amount, 1),
            "carried": limit,
            "share": round(amount / limit, 2),
            "remedy": remedy,
        }
        for name, amount, limit, remedy in rows
    ]
    return sorted(found, key=lambda row: -float(row["share"]))


def hardware_for(wish: Wish, cost: Costs) -> dict[str, Any]:
    needed = demand(wish, cost)
    return {
        "audio_hours_a_day": wish.audio_hours,
        "live_sessions": wish.sessions,
        "node_cores": wish.node_cores,
        "database_cores": wish.database_cores,
        "needed": needed,
        "breaks_first": bottlenecks(wish, needed, cost),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio-hours", type=float, default=1_000_000, help="of files, a day")
    parser.add_argument("--sessions", type=int, default=10_000, help="live sessions at once")
    parser.add_argument("--node-cores", type=int, default=16)
    parser.add_argument("--database-cores", type=int, default=64)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    results = [json.loads((RESULTS / f"{name}.json").read_text()) for name in ("cluster", "throughput", "crowd")]
    result = hardware_for(
        Wish(given.audio_hours, given.sessions, given.node_cores, given.database_cores), costs(*results)
    )
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("capacity", result))


if __name__ == "__main__":
    main()
