"""Uses a server for hours while it is killed, its disk runs full and strangers attack it: scripts/soak [--hours H]

Clients send files and live audio and read what comes, without a pause; an attacker sends floods (benchmarks/floods.py)
and broken files. In the first part of the time the server is killed (SIGKILL) or stopped (SIGTERM) and started again;
then it lives on, so that what grows with time is seen. Its disk runs full once in each part, where this user may mount
one. Each minute gives a row: memory, descriptors, threads, processes, temporary files, bytes on disk, and how long
requests and words took.

The verdict is `faults` in the result, and the exit status is 0 if there are none. It is a fault if an answer is wrong
or missing at a time when nothing disturbs the server, if an accepted job does not end exactly once, if anything is left
of deleted jobs, or if a figure grows, which takes an hour to see. The seed is printed; the same seed gives the same
plan, but not the same times.
"""

import argparse
import asyncio
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from websockets.exceptions import WebSocketException

from benchmarks.floods import Flood, strangers
from benchmarks.measure import ROOT, machine, spread
from scripts.chaos import (
    PIECE_S,
    RATE,
    Seen,
    ask_sqlite,
    broken_promises,
    receive,
    scripted_words,
    silence,
    wait_until,
)  # fmt: skip
from scripts.fuzzing.containers import change_file
from scripts.soak_server import Soaked, fill, small_disk
from server.client import Client, ServiceError
from server.model.jobs import TERMINAL_EVENTS

DISTURBED = 0.4  # of the time: then come no more restarts
MAX_RESTARTS, RESTARTS_APART_S = 8, 30
LOOKS = 12  # a minute, of which each figure's lowest counts, because work in progress is no growth
FULL_S = 20
SETTLE_S = 20  # after a disturbance, in which failures are still excused
END_S = 120  # within which an accepted job and its webhook must be there
LENGTHS_S = (4, 20, 90, 400)  # of files
SPOKEN_S = (4, 12)
SPEECH = ROOT / "tests" / "speech" / "human" / "jfk.flac"
WORK = "SELECT 1 FROM jobs WHERE state IN ('queued', 'processing') LIMIT 1"
PASSING = (httpx.HTTPError, ServiceError, OSError, WebSocketException, TimeoutError)
"""The errors that an interrupted client may get."""


class WrongAnswerError(Exception):
    """The server broke a promise."""


# --- growth ----------------------------------------------------------------------------------------------------------

ALLOWED = {"rss_mb": 16, "descriptors": 3, "threads": 3, "processes": 1, "temporary_files": 2}
"""How far each figure may rise while it is judged."""

WARM_UP = 1 / 3  # of the last life, in which caches fill
JUDGED_MIN = 15  # within less, memory and pools still settle, and floods come and go


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how far each figure of ALLOWED rises in the last life of the server; nothing if it is too short to say.

    *rows* have `minute` and `life` too. The line through them is Theil and Sen's: its slope is the median of the slopes
    of all pairs of points, so that single high or low minutes do not change it.
    """
    last = [row for row in rows if row["life"] == rows[-1]["life"]]
    judged = last[int(len(last) * WARM_UP) :]
    minutes = judged[-1]["minute"] - judged[0]["minute"] if judged else 0
    if minutes < JUDGED_MIN:
        return {}
    found = {}
    for name in ALLOWED:
        points = [(row["minute"], row[name]) for row in judged]
        per_min = median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))
        found[name] = {"per_hour": round(per_min * 60, 2), "rise": round(per_min * minutes, 2)}
    return found


# --- clients and the attacker ----------------------------------------------------------------------------------------


@dataclass
class Load:
    """Loops that use the server until *stop* is set. Failures while it is disturbed are excused, wrong answers never.

    *production* and *sandbox* are clients of two accounts, *keys* their keys. *hooks* is where webhooks go.
    """

    base: str
    production: Client
    sandbox: Client
    keys: tuple[str, str]
    folder: Path
    hooks: str
    seen: Seen
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    done: Counter[str] = field(default_factory=lambda: Counter({"kill": 0, "stop": 0, "full disk": 0}))
    excused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    times: "defaultdict[str, list[float]]" = field(default_factory=lambda: defaultdict(list))
    texts: dict[int, str] = field(default_factory=dict)  # seconds of a file -> its text from the undisturbed server
    _troubles: int = 0
    _calm_since: float = 0.0

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """Excuse failures that happen inside and for SETTLE_S afterwards."""
        self._troubles += 1
        try:
            yield
        finally:
            self._troubles -= 1
            self._calm_since = time.monotonic() + SETTLE_S

    async def prepare(self) -> None:
        """Have each recording transcribed once, before anything disturbs the server."""
        for length_s in LENGTHS_S:
            file = self.folder / f"{length_s}.flac"
            file.write_bytes(silence(length_s))
            self.texts[length_s] = (await self.sandbox.transcribe(file))["text"]

    async def run(self, chance: random.Random, *, attack: bool) -> None:
        acts = [
            (self.send_file, 1.0), (self.send_file, 1.0), (self.speak, 1.0), (self.speak, 1.0), (self.ask, 0.5),
            (self.delete_early, 10.0), (self.send_voice, 20.0),
            *([(self.send_flood, 2.0), (self.send_broken_file, 2.0)] if attack else []),
        ]  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            for act, pause_s in acts:
                tasks.create_task(self._repeat(act, pause_s, random.Random(chance.random())))

    async def _repeat(
        self, act: Callable[[random.Random], Awaitable[None]], pause_s: float, chance: random.Random
    ) -> None:
        name = act.__name__
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                await act(chance)
                self.done[name] += 1
            except* PASSING as errors:
                if self._troubles or began < self._calm_since:
                    self.excused[name] += 1
                else:
                    self.faults.append(f"{name}: {errors.exceptions[0]!r}"[:300])
            except* WrongAnswerError as errors:
                self.faults.append(f"{name}: {errors.exceptions[0]}"[:300])
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(1, 3) * pause_s):
                    await self.stop.wait()

    async def send_file(self, chance: random.Random) -> None:
        """Upload a file, perhaps follow its events, and compare its text with that of the undisturbed server."""
        length_s = chance.choice(LENGTHS_S)
        job_id = await self._submit(self.sandbox, self.folder / f"{length_s}.flac", output_formats=["srt"])
        if chance.random() < 0.5:
            events = [event["type"] async for event in self.sandbox.events(job_id)]
            check(events[-1] == "job.completed", f"{job_id} ended its events with {events[-1]}")
        record = await self._wait_for_end(self.sandbox, job_id)
        check(record["text"] == self.texts[length_s], f"{job_id} heard {record['text']!r}")
        check(b"-->" in await self.sandbox.output(record, "srt"), f"{job_id} has an empty srt")
        await self._delete_or_leave(job_id, chance)

    async def send_voice(self, _chance: random.Random) -> None:
        """Have a person's voice recognised by the real model."""
        job_id = await self._submit(self.production, SPEECH)
        record = await self._wait_for_end(self.production, job_id)
        check("country" in record["text"], f"{job_id} heard {record['text']!r}")

    async def speak(self, chance: random.Random) -> None:
        """Speak for a while at the speed of speech. A late reader must get the events that the writer got."""
        length_s, options = chance.randint(*SPOKEN_S), {"record": chance.random() < 0.3, "max_utterance_s": 5}
        async with self.sandbox.live(**options, webhook_url=f"{self.hooks}/live") as stream:
            job_id = stream.job_id
            self.seen.jobs[job_id] = job_id
            began, events = time.monotonic(), asyncio.create_task(all_of(stream.events()))
            for number in range(int(length_s / PIECE_S)):
                await asyncio.sleep(began + (number + 1) * PIECE_S - time.monotonic())
                await stream.send(bytes(int(2 * RATE * PIECE_S)))
            stream.close()
            told = [event for event in await events if "seq" in event]
        words = [event for event in told if event["type"] == "word"]
        self.times["word_lag_s"] += [event["lag_ms"] / 1000 for event in words]
        check([event["word"] for event in words] == scripted_words(length_s), f"{job_id}: {len(words)} words")
        read = [event["seq"] for event in await all_of(self.sandbox.events(job_id)) if "seq" in event]
        check(read == list(range(1, len(read) + 1)), f"{job_id} has gaps: {read}")
        check(told[-1]["type"] in TERMINAL_EVENTS, f"{job_id} ended its events with {told[-1]['type']}")
        await self._wait_for_end(self.sandbox, job_id)
        await self._delete_or_leave(job_id, chance)

    async def ask(self, chance: random.Random) -> None:
        """Send one of the requests that clients send most, or price a prompt."""
        path, body = chance.choice(
            [
                ("/v1/jobs?limit=20", None),
                ("/v1/usage", None),
                ("/v1/estimate", {"prompt": "my fellow Americans " * 99}),
            ]
        )
        began = time.monotonic()
        await self._request("GET" if body is None else "POST", path, self.keys[0], json=body)
        self.times["request_s"].append(time.monotonic() - began)

    async def delete_early(self, chance: random.Random) -> None:
        """Delete a job while it is at work."""
        job = await self.sandbox.submit(self.folder / f"{max(LENGTHS_S)}.flac", sandbox_scenario="slow")
        await asyncio.sleep(chance.uniform(0, 3))
        await self._request("DELETE", f"/sandbox/v1/jobs/{job['job_id']}?force=true", self.keys[1])

    async def send_flood(self, chance: random.Random) -> None:
        """Send small things in great numbers for some seconds, from another address."""
        sockets, upload = (("WS", "/sandbox/v1/listen"),), (("POST", "/sandbox/v1/transcribe"),)
        floods = [
            Flood(kind="empty frames", doors=sockets, connections=4, bytes_s=2e5, key=self.keys[1]),
            Flood(kind="pings", doors=(("WS", "/v1/jobs/x/stream?token=st_bad"),), connections=4, bytes_s=2e5),
            Flood(kind="half bodies", doors=upload, connections=4, bytes_s=100, key=self.keys[1]),
            Flood(kind="chunks", doors=upload, connections=4, bytes_s=2e5, key=self.keys[1]),
            Flood(kind="requests", doors=(("GET", "/v1/jobs"), ("GET", "/nowhere")), connections=4, bytes_s=2e5),
        ]

        def send() -> None:
            with strangers(self.base, chance.sample(floods, 2), 10.0, {}):
                self.done["floods"] += 1

        await asyncio.to_thread(send)

    async def send_broken_file(self, chance: random.Random) -> None:
        """Send a changed file: the answer does not matter, unless it says that the server has a fault."""
        files = {"file": change_file((chance.randrange(9), chance.randrange(2**32)))}
        with suppress(httpx.HTTPStatusError):
            await self._request("POST", "/sandbox/v1/transcribe?wait=0", self.keys[1], files=files)

    async def _request(self, method: str, path: str, key: str, **request: Any) -> None:
        """Raises httpx.HTTPError for a refusal, WrongAnswerError for a 500."""
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=self.base, headers=headers, timeout=30) as http:
            answer = await http.request(method, path, **request)
        check(answer.status_code != 500, f"{path}: {answer.text}")
        answer.raise_for_status()

    async def _submit(self, client: Client, file: Path, **fields: Any) -> str:
        began = time.monotonic()
        job_id: str = (await client.submit(file, webhook_url=f"{self.hooks}/job", **fields))["job_id"]
        self.times["accepted_s"].append(time.monotonic() - began)
        self.seen.jobs[job_id] = job_id
        return job_id

    async def _wait_for_end(self, client: Client, job_id: str) -> dict[str, Any]:
        """Return the record of the job once it is over and its webhook is here, which must be within END_S."""
        async with asyncio.timeout(END_S):
            record = await client.wait(job_id)
            while job_id not in self.seen.hooks:  # noqa: ASYNC110  it comes by a thread
                await asyncio.sleep(0.2)
        check(record["status"] == "completed", f"{job_id} is {record['status']}: {record.get('error')}")
        return record

    async def _delete_or_leave(self, job_id: str, chance: random.Random) -> None:
        if chance.random() < 0.7:
            await self._request("DELETE", f"/sandbox/v1/jobs/{job_id}", self.keys[1])
            del self.seen.jobs[job_id]


async def all_of(events: Any) -> list[dict[str, Any]]:
    return [event async for event in events]


def check(holds: object, otherwise: str) -> None:
    if not holds:
        raise WrongAnswerError(otherwise)


# --- one run ---------------------------------------------------------------------------------------------------------


def disturbances(seconds: float, chance: random.Random) -> list[tuple[float, str]]:
    """Return what disturbs the server, and when: restarts in the first part, a full disk in both."""
    part = seconds * DISTURBED
    count = max(1, min(MAX_RESTARTS, int(part / RESTARTS_APART_S)))
    restarts = [
        (part * (n + chance.uniform(0.4, 0.7)) / (count + 1), "stop" if n % 3 == 2 else "kill") for n in range(count)
    ]
    full = [(at * seconds, "full disk") for at in (DISTURBED * chance.random(), chance.uniform(0.5, 0.7))]
    return sorted([*restarts, *full])


async def disturb(server: Soaked, load: Load, plan: Sequence[tuple[float, str]], full_s: float) -> None:
    began = time.monotonic()
    for at_s, what in plan:
        await asyncio.sleep(began + at_s - time.monotonic())
        with load.trouble():
            if what == "full disk":
                filler = server.disk / "filler"
                await asyncio.to_thread(fill, filler)
                await asyncio.sleep(full_s)
                filler.unlink()
            else:
                await asyncio.to_thread(server.kill if what == "kill" else server.stop)
                await asyncio.to_thread(server.start)
        load.done[what] += 1


async def watch(server: Soaked, load: Load, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each minute without a restart; a run of less than half an hour has thirty shorter "minutes"."""
    rows, began, minute_s = list[dict[str, Any]](), time.monotonic(), min(60.0, seconds / 30)
    while (past_s := time.monotonic() - began) < seconds:
        looks, life = [], server.life
        for _ in range(LOOKS):
            await asyncio.sleep(minute_s / LOOKS)
            if server.runs:
                looks.append(await asyncio.to_thread(server.look))
        if len(looks) == LOOKS and server.life == life:
            times, load.times = load.times, defaultdict(list)
            stored = sum(path.stat().st_size for path in server.data.glob("scribewire.db*"))
            row = {
                "minute": round((past_s + minute_s) / 60, 2),
                "life": life,
                **{name: min(look[name] for look in looks) for name in looks[0]},
                "database_mb": round(stored / 2**20, 1),
                "rows": server.count_rows(),
                **{name: {**spread(values), "count": len(values)} for name, values in sorted(times.items())},
            }
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


async def find_leftovers(server: Soaked, keys: Sequence[str]) -> list[str]:
    """Delete every job, and return what is still stored of them."""
    for key, base in zip(keys, (server.base, f"{server.base}/sandbox"), strict=True):
        async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
            while jobs := (await http.get("/v1/jobs?limit=100")).raise_for_status().json()["data"]:
                for job in jobs:
                    (await http.delete(f"/v1/jobs/{job['job_id']}?force=true")).raise_for_status()
    rows, files = server.count_rows(), server.stored_files()
    left = [f"{count} rows of {table} are left" for table, count in rows.items() if count]
    return left + ([f"{len(files)} files are left: {files[0].relative_to(server.data)}"] if files else [])


def sandbox_key(base: str) -> str:
    """Make a free account with a key for the sandbox, as anybody may."""
    return str(httpx.post(f"{base}/v1/keys", json={"environment": "sandbox"}).raise_for_status().json()["key"])


async def soak(folder: Path, seconds: float, chance: random.Random, *, attack: bool) -> dict[str, Any]:
    seen, plan = Seen(), disturbances(seconds, chance)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that the server is ended too
    receiver = receive(seen.hooks, random.Random(chance.random()))
    with small_disk(folder / "disk") as may_fill:
        server = Soaked(folder / "disk")
        server.start()
        try:
            keys = (
                (server.data / "operator-key").read_text().strip(),
                await asyncio.to_thread(sandbox_key, server.base),
            )
            sandbox = f"{server.base}/sandbox"
            async with Client(server.base, keys[0]) as production, Client(sandbox, keys[1]) as rehearsal:
                hooks = f"http://127.0.0.1:{receiver.server_port}"
                load = Load(server.base, production, rehearsal, keys, folder, hooks, seen)
                await load.prepare()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(load.run(chance, attack=attack))
                    events = [(at_s, what) for at_s, what in plan if may_fill or what != "full disk"]
                    tasks.create_task(disturb(server, load, events, min(FULL_S, seconds / 30)))
                    rows = await watch(server, load, seconds)
                    load.stop.set()
            ask = partial(ask_sqlite, server.data)
            await asyncio.to_thread(wait_until, lambda: not ask(WORK), END_S, must=False)
            wait_until(lambda: set(seen.hooks) >= set(seen.jobs.values()), END_S, must=False)
            promises = broken_promises(ask, seen)
            del promises["not completed"]  # a full disk may fail a job, which says so
            left = await find_leftovers(server, keys)
            with closing(sqlite3.connect(f"file:{server.data / 'scribewire.db'}?mode=ro", uri=True)) as database:
                left += [why for (why,) in database.execute("PRAGMA integrity_check") if why != "ok"]
        finally:
            await asyncio.to_thread(server.stop)
            receiver.shutdown()
    broken = [f"{name}: {len(jobs)} {list(jobs)[:3]}" for name, jobs in promises.items() if jobs]
    grown = growth(rows)
    too_much = [f"{name} grew by {line['rise']}" for name, line in grown.items() if line["rise"] > ALLOWED[name]]
    return {
        "machine": machine(),
        "plan": {"seconds": seconds, "disturbances": plan},
        "full_disk_played": may_fill,
        "done": load.done,
        "excused": load.excused,
        "growth": grown,
        "faults": [*load.faults, *broken, *left, *server.faults, *too_much],
        "minutes": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", type=Path, default=Path("soak.json"), help="where the result is written")
    parser.add_argument("--calm", action="store_true", help="without the attacker")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run = soak(Path(folder), given.hours * 3600, random.Random(given.seed), attack=not given.calm)
        found = {"seed": given.seed, **asyncio.run(run)}
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: found[name] for name in ("done", "excused", "growth", "faults")}, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
