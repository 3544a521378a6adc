"""Readers of a live session at a node that only relays it: python -m benchmarks.relaying [--readers 1000 5000]

Two nodes (scripted engine) share a database and a bucket. A writer speaks in real time at one of them. Readers follow
by Server-Sent Events at the other, which learns each word from the database and each partial from a notification; then
the same number follow at the node that has the session, in the same minutes. The ratio of the CPU times is valid
although other work disturbs the machine. Needs PostgreSQL (Debian's package `postgresql`). Writes
benchmarks/results/relaying.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster import DURABLE
from benchmarks.measure import write
from benchmarks.readers import MANY, of_session
from benchmarks.serving import Serving, serving
from server.transport.descriptors import raise_descriptor_limit
from tests.server.buckets import bucket_service
from tests.server.postgres import new_cluster
from tests.server.running import free_port

WAY = "SSE"


@contextmanager
def nodes() -> Iterator[list[Serving]]:
    """Start two nodes of a new cluster."""
    with tempfile.TemporaryDirectory() as folder, bucket_service(Path(folder)) as bucket:
        os.environ.update(bucket.env)
        settings = {
            "ENGINE": "scripted",
            "MAX_CONNECTIONS_PER_ADDRESS": "100000",
            "DATABASE_URL": new_cluster(free_port(), settings=DURABLE).new_database(),
            "BLOBS": bucket.prefix(),
        }
        with serving(MANY, **settings, NODE="hearing") as hearing, serving(MANY, **settings, NODE="relaying") as other:
            yield [hearing, other]


def compare_nodes(hearing: Serving, relaying: Serving, number: int, seconds: float) -> dict[str, Any]:
    """Return what *number* readers receive and cost at either node."""
    there = of_session(relaying, WAY, number, seconds, speaker=hearing)
    here = of_session(hearing, WAY, number, seconds)
    times = round(there["cpu_us_per_event"] / here["cpu_us_per_event"], 2)
    return {"name": f"{number} by {WAY}", "relaying": there, "hearing": here, "relaying_to_hearing": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="of each measurement")
    parser.add_argument("--readers", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    raise_descriptor_limit()
    with nodes() as (hearing, relaying):
        rows = [compare_nodes(hearing, relaying, number, given.seconds) for number in given.readers]
    result = {"seconds": given.seconds, "readers": rows}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("relaying", result))


if __name__ == "__main__":
    main()
