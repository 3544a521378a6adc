"""Uses a server for hours while it is killed and its disk fills up, and looks for growth and broken promises.

Clients (scripts/soak_clients.py) send files, addresses, live audio and more without a pause, and attackers
(scripts/soak_attackers.py) do what they can against it. In the first part of the time the server is killed (SIGKILL),
stopped (SIGTERM) and restarted; in the rest it lives on, so that what grows with time is seen. Its disk runs full now
and then in both parts, where this user may mount one. Each minute gives a row of memory, descriptors, threads,
processes, rows of each table, bytes on disk, CPU time, and how long requests and words took. Afterwards every job must
have ended once, and deleting all of them must leave nothing.

Each row is printed at once. The result is JSON, `faults` in it is everything that was wrong, and the exit status is 0
if there is nothing. The seed is printed; the same seed gives the same plan, but not the same times.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import cpu_s, machine
from scripts.chaos import count_unfinished, wait_until
from scripts.soak_attackers import Attackers, erase_all, new_account
from scripts.soak_clients import END_S, Account, Clients, account
from scripts.soak_growth import growths
from scripts.soak_record import Record, receive
from scripts.soak_server import SoakServer, empty, fill, small_disk
from server.model.jobs import TERMINAL
from server.waiting import set_within

DISTURBED = 0.4  # of the time: then come no more restarts
LOOKS = 12  # a minute
MAX_KILLS = 8
KILLS_APART_S = 30  # at least
FULL_DISKS = 3  # in each part
FULL_S = 20
EMPTIED = ("jobs", "metadata", "chunks", "artifacts", "events", "deliveries", "attempts")
"""Tables that must have no row of a deleted job."""


@dataclass(frozen=True)
class Plan:
    """When what happens, in seconds from the beginning."""

    seconds: float
    minute_s: float  # between two rows
    restarts: tuple[tuple[float, str], ...]  # "kill" or "stop"
    full_disks: tuple[float, ...]
    full_s: float
    live_lengths_s: tuple[int, ...]

    @classmethod
    def make(cls, hours: float, chance: random.Random) -> "Plan":
        """Return a random plan. A run of less than half an hour has thirty shorter "minutes"."""
        seconds = hours * 3600
        minute_s = min(60.0, seconds / 30)
        part = seconds * DISTURBED
        count = max(1, min(MAX_KILLS, int(part / KILLS_APART_S)))
        step = part / (count + 1)
        restarts = tuple(
            (step * (n + chance.uniform(0.5, 0.9)), "stop" if n % 3 == 2 else "kill") for n in range(count)
        )
        full_s = min(FULL_S, minute_s)
        full_disks = tuple(
            begin + length * (n + chance.random()) / FULL_DISKS
            for begin, length in ((0.0, part), (part, seconds * 0.8 - part))
            for n in range(FULL_DISKS)
        )
        if minute_s < 60:
            return cls(seconds, minute_s, restarts, full_disks[::FULL_DISKS], full_s, live_lengths_s=(4, 8))
        return cls(seconds, minute_s, restarts, full_disks, full_s, live_lengths_s=(8, 20, 45))


@dataclass
class Soak:
    """One run: the server, what its clients see, and the rows of the minutes."""

    server: SoakServer
    record: Record
    plan: Plan
    may_fill: bool

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.over = asyncio.Event()
        self.rows: list[dict[str, Any]] = []
        self._stopped_at: float | None = None  # while the server is restarted

    async def run(self, clients: Clients, attackers: Attackers, chance: random.Random) -> None:
        """Run clients and attackers for the planned time, and wait until all that they began has ended."""
        self.began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(clients.run(chance))
            tasks.create_task(attackers.run(random.Random(chance.random())))
            tasks.create_task(self._restart())
            tasks.create_task(self._fill())
            await self._watch()
            clients.stop.set()
            attackers.stop.set()
            self.over.set()

    async def _restart(self) -> None:
        for at_s, how in self.plan.restarts:
            if await self._until(at_s):
                return
            self._stopped_at = time.monotonic()
            with self.record.trouble():
                await asyncio.to_thread(self.server.kill if how == "kill" else self.server.stop)
                await asyncio.to_thread(self.server.start)
            self.began += time.monotonic() - self._stopped_at
            self._stopped_at = None
            self.record.done[how] += 1

    async def _fill(self) -> None:
        for at_s in self.plan.full_disks if self.may_fill else ():
            if await self._until(at_s):
                return
            with self.record.trouble():
                await asyncio.to_thread(fill, self.server.disk)
                await asyncio.sleep(self.plan.full_s)
                empty(self.server.disk)
            self.record.done["full disk"] += 1

    async def _watch(self) -> None:
        """Add a row each minute until the planned time is over. A minute with a restart gives none."""
        for minute in range(1, round(self.plan.seconds / self.plan.minute_s) + 1):
            looks, life = [], self.server.life
            for n in range(1, LOOKS + 1):
                await self._until((minute - 1 + n / LOOKS) * self.plan.minute_s)
                if self.server.runs:
                    looks.append(await asyncio.to_thread(self.server.look))
            if len(looks) == LOOKS and self.server.runs and self.server.life == life:
                self.rows.append(await asyncio.to_thread(self._row, minute, looks))
                print(json.dumps(self.rows[-1]), flush=True)

    def _row(self, minute: int, looks: list[dict[str, float]]) -> dict[str, Any]:
        return {
            "minute": round(minute * self.plan.minute_s / 60, 2),
            "life": self.server.life,
            **{name: min(look[name] for look in looks) for name in looks[0]},
            "peak_rss_mb": max(look["rss_mb"] for look in looks),
            "server_cpu_s_of_life": round(cpu_s(self.server.pid), 1),
            "clients_cpu_s": round(sum(os.times()[:2]), 1),
            "rows": self.server.rows(),
            "disk_mb": self.server.disk_mb(),
            "times": self.record.take_times(),
        }

    async def _until(self, at_s: float) -> bool:
        """Wait until *at_s* of the planned time, which stands still while the server is restarted.

        Returns True if the run is over before.
        """
        while (left_s := self.began + at_s - (self._stopped_at or time.monotonic())) > 0:
            if await set_within(self.over, min(left_s, 0.5)):
                return True
        return self.over.is_set()


async def soak(folder: Path, plan: Plan, chance: random.Random, *, attackers: int) -> dict[str, Any]:
    """Run *plan* with a server below *folder* and so many *attackers*, and return the result."""
    record, recordings = Record(), folder / "recordings"
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that the server is ended too
    recordings.mkdir()
    receiver = receive(record, recordings, random.Random(chance.random()))
    with small_disk(folder / "disk") as may_fill:
        server = SoakServer(folder / "disk")
        server.start()
        try:
            keys = [(folder / "disk" / "data" / "operator-key").read_text().strip(), sandbox_key(server.base)]
            async with AsyncExitStack() as stack:
                production = await stack.enter_async_context(account(server.base, keys[0]))
                own = await stack.enter_async_context(account(f"{server.base}/sandbox", keys[1]))
                hostile = [await stack.enter_async_context(await new_account(server.base)) for _ in range(attackers)]
                hooks = f"http://127.0.0.1:{receiver.server_port}"
                clients = Clients(
                    production=production,
                    sandbox=own,
                    folder=recordings,
                    hooks=hooks,
                    record=record,
                    live_lengths_s=plan.live_lengths_s,
                )
                await clients.prepare()
                run = Soak(server, record, plan, may_fill)
                await run.run(clients, Attackers(accounts=hostile, record=record), chance)
                await asyncio.to_thread(wait_until, lambda: count_unfinished(server.data) == 0, END_S, must=False)
                for http in hostile:
                    await erase_all(http)
                after = [*find_broken_promises(server, record), *await find_leftovers(server, (production, own))]
        finally:
            await asyncio.to_thread(server.stop)
        receiver.shutdown()
        return result(run, after)


def sandbox_key(base: str) -> str:
    """Make a free account with a key for the sandbox."""
    return str(httpx.post(f"{base}/v1/keys", json={"environment": "sandbox"}).raise_for_status().json()["key"])


def find_broken_promises(server: SoakServer, record: Record) -> list[str]:
    """Return the broken promises about jobs, as the database and the webhooks show them."""
    with closing(sqlite3.connect(f"file:{server.data / 'scribewire.db'}?mode=ro", uri=True)) as database:
        states = dict(database.execute("SELECT id, state FROM jobs"))
        used = {job for (job,) in database.execute("SELECT job FROM usage")}
        spans = list(database.execute("SELECT stream, count(*), min(seq), max(seq) FROM events GROUP BY stream"))
        sound = database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = {
        "accepted, but without a usage row": record.jobs - used,
        "not ended": {job for job, state in states.items() if state not in TERMINAL},
        "events with gaps": {job for job, count, low, high in spans if (low, high) != (1, count)},
        "several webhook ids": {job for job, ids in record.hooks.items() if len(ids) > 1},
        "broken database": set() if sound else {"integrity_check"},
        "processes that outlived a killed server": {str(server.orphans)} if server.orphans else set(),
        "exit status of a stopped server": {str(code) for code in server.exits if code},
    }
    return [f"{name}: {len(jobs)} {sorted(jobs)[:3]}" for name, jobs in found.items() if jobs]


async def find_leftovers(server: SoakServer, accounts: Sequence[Account]) -> list[str]:
    """Delete every job, and return what is still stored of them."""
    for owner in accounts:
        while jobs := (await owner.ask("GET", "/v1/jobs", params={"limit": 100})).json()["data"]:
            for job in jobs:
                await owner.ask("DELETE", f"/v1/jobs/{job['job_id']}", params={"force": "true"})
    rows = server.rows()
    left = [f"{rows[table]} rows of {table} are left" for table in EMPTIED if rows.get(table)]
    files = [path for place in ("blobs", "incoming") for path in (server.data / place).rglob("*") if path.is_file()]
    return left + ([f"{len(files)} files are left: {files[0].relative_to(server.data)}"] if files else [])


def result(run: Soak, after: list[str]) -> dict[str, Any]:
    """Return the result: the plan, the actions, the rows of the minutes, the growth of each figure, and all faults."""
    lines = growths(run.rows)
    grown = [f"{name} grew by {line.rise}, allowed are {line.allowed}" for name, line in lines.items() if line.too_much]
    faults = [*run.record.faults, *after, *grown, *([] if lines else ["too few minutes to see growth"])]
    return {
        "machine": machine(),
        "plan": asdict(run.plan),
        "full_disk_played": run.may_fill,
        "done": run.record.done,
        "excused": run.record.excused,
        "growth": {name: asdict(line) for name, line in lines.items()},
        "faults": faults,
        "minutes": run.rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", type=Path, default=Path("soak.json"), help="where the result is written")
    parser.add_argument("--attackers", type=int, default=2, help="how many attack it all the time")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(Path(folder), Plan.make(given.hours, chance), chance, attackers=given.attackers))
    given.out.write_text(json.dumps({"seed": given.seed, **found}, indent=1) + "\n")
    print(json.dumps({name: found[name] for name in ("done", "excused", "growth", "faults")}, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
