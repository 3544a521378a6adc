"""The clients of a soak: files, addresses, live sessions, readers, webhooks, estimates and keys, each in a loop.

Every answer is compared with what was promised. What fails while the server is being killed or its disk is full, or
within SETTLE_S afterwards, is excused and counted; a wrong answer never is.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import soundfile
from websockets.exceptions import WebSocketException

from benchmarks.measure import ROOT
from pipeline.recognition.engines.scripted import SCRIPT
from scripts.chaos import silence
from scripts.soak_record import Record, WrongAnswerError
from server.client import Client, LiveStream, ServiceError
from server.model.jobs import TERMINAL_EVENTS
from server.waiting import set_within

RATE = 16_000
PIECE_S = 0.25  # of live audio in one message
END_S = 120  # within which an accepted job, and its webhook, must be there
LENGTHS_S = (4, 20, 90, 400)  # of the sandbox's files
SPEECH = ROOT / "tests" / "speech" / "human" / "jfk.flac"
DURABLE = ("word", "segment", *TERMINAL_EVENTS)
PASSING = (httpx.HTTPError, ServiceError, OSError, WebSocketException, TimeoutError)
"""The errors that an interrupted client may get."""


@dataclass(frozen=True)
class Account:
    """One key: the Python client, and plain HTTP for what it has no method for."""

    client: Client
    http: httpx.AsyncClient

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Raises httpx.HTTPError if there is no answer, or a refusal."""
        return (await self.http.request(method, path, **request)).raise_for_status()


Act = Callable[[Account, random.Random], Awaitable[None]]


@asynccontextmanager
async def account(base: str, key: str) -> AsyncIterator[Account]:
    headers = {"Authorization": f"Bearer {key}"}
    async with Client(base, key) as client, httpx.AsyncClient(base_url=base, headers=headers, timeout=30) as http:
        yield Account(client, http)


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Loops that use the server until *stop* is set, with one key for production and one for the sandbox.

    *folder* takes their recordings, *hooks* is the address of the receiver.
    """

    production: Account
    sandbox: Account
    folder: Path
    hooks: str
    record: Record
    live_lengths_s: Sequence[int]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    texts: dict[int, str] = field(default_factory=dict)  # seconds of a file -> its text from the undisturbed server

    async def prepare(self) -> None:
        """Have each recording transcribed once, before anything disturbs the server."""
        for length_s in LENGTHS_S:
            file = self.folder / f"{length_s}.flac"
            file.write_bytes(silence(length_s))
            self.texts[length_s] = (await self.sandbox.client.transcribe(file))["text"]

    async def run(self, chance: random.Random) -> None:
        """Run all loops until *stop*, and wait until each has ended what it began."""
        acts: list[tuple[str, tuple[float, float], Account, Act]] = [
            ("file", (1, 5), self.sandbox, self._file),
            ("file", (1, 5), self.sandbox, self._file),
            ("address", (5, 15), self.sandbox, self._address),
            ("deleted while it runs", (10, 30), self.sandbox, self._delete_job),
            ("live", (1, 5), self.sandbox, self._live),
            ("live", (1, 5), self.sandbox, self._live),
            ("live container", (5, 20), self.sandbox, self._container),
            ("requests", (1, 3), self.sandbox, self._requests),
            ("estimate", (5, 15), self.production, self._estimate),
            ("keys", (20, 60), self.production, self._keys),
            ("real file", (30, 60), self.production, self._real_file),
            ("real live", (60, 120), self.production, self._real_live),
        ]
        async with asyncio.TaskGroup() as tasks:
            for name, pause_s, owner, act in acts:
                own = random.Random(chance.random())
                tasks.create_task(self._repeat(name, pause_s, partial(act, owner, own), own))

    async def _repeat(
        self, name: str, pause_s: tuple[float, float], act: Callable[[], Awaitable[None]], chance: random.Random
    ) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                await act()
                self.record.done[name] += 1
            except* PASSING as errors:
                if self.record.was_disturbed(began):
                    self.record.excused[name] += 1
                else:
                    self.record.faults.append(f"{name}: {_first(errors)!r}"[:300])
            except* WrongAnswerError as errors:
                self.record.faults.append(f"{name}: {_first(errors)}"[:300])
            await set_within(self.stop, chance.uniform(*pause_s))

    async def _file(self, owner: Account, chance: random.Random) -> None:
        """Upload a file, follow its events or not, compare the text, take an output, and delete the job or leave it."""
        length_s = chance.choice(LENGTHS_S)
        job_id = await self._submit(owner, self.folder / f"{length_s}.flac", output_formats=["srt"])
        if chance.random() < 0.5:
            kinds = [event["type"] async for event in owner.client.events(job_id)]
            _check(kinds[-1] == "job.completed", f"{job_id} ended its events with {kinds[-1]}")
        record = await self._wait_for_end(owner, job_id)
        _check(record["text"] == self.texts[length_s], f"{job_id} heard {record['text']!r}")
        _check(b"-->" in await owner.client.output(record, "srt"), f"{job_id} has an empty srt")
        await self._delete_or_leave(owner, job_id, chance)

    async def _address(self, owner: Account, chance: random.Random) -> None:
        """Have a file downloaded from an address."""
        length_s = chance.choice(LENGTHS_S)
        job_id = await self._submit(owner, f"{self.hooks}/{length_s}.flac")
        record = await self._wait_for_end(owner, job_id)
        _check(record["text"] == self.texts[length_s], f"{job_id} heard {record['text']!r}")
        await self._delete_or_leave(owner, job_id, chance)

    async def _delete_job(self, owner: Account, chance: random.Random) -> None:
        """Delete a job while it is at work."""
        record = await owner.client.submit(self.folder / f"{max(LENGTHS_S)}.flac", sandbox_scenario="slow")
        await asyncio.sleep(chance.uniform(0, 3))
        await owner.ask("DELETE", f"/v1/jobs/{record['job_id']}", params={"force": "true"})

    async def _live(self, owner: Account, chance: random.Random) -> None:
        """Speak for a while, with two readers: one from the start that leaves and comes back, and one that is late."""
        length_s = chance.choice(self.live_lengths_s)
        options = {"record": chance.random() < 0.3, "webhook_url": f"{self.hooks}/hook", "max_utterance_s": 5}
        async with asyncio.TaskGroup() as tasks, owner.client.live(**options) as stream:
            self.record.jobs.add(stream.job_id)
            restless = tasks.create_task(_read(owner.client, stream.job_id, chance, leaves=2))
            events, _ = await asyncio.gather(
                self._read_events(stream, "word"), _speak(stream, bytes(2 * RATE * length_s))
            )
        late = await _read(owner.client, stream.job_id, chance, leaves=0)
        words = [event["word"] for event in events if event["type"] == "word"]
        _check(words == scripted_words(length_s), f"{stream.job_id} said {len(words)} words in {length_s} s")
        _check(restless.result() == late, f"{stream.job_id} told two readers different things")
        await self._wait_for_end(owner, stream.job_id)
        await self._delete_or_leave(owner, stream.job_id, chance)

    async def _container(self, owner: Account, chance: random.Random) -> None:
        """Send a compressed recording, which a process of its own decodes."""
        length_s = 20
        audio = (self.folder / f"{length_s}.flac").read_bytes()
        async with owner.client.live(encoding="container") as stream:
            size = -(-len(audio) // 10)
            for at in range(0, len(audio), size):
                await stream.send(audio[at : at + size])
                await asyncio.sleep(PIECE_S)
            stream.close()
            events = await self._read_events(stream, "word")
        words = [event["word"] for event in events if event["type"] == "word"]
        _check(words == scripted_words(length_s), f"{stream.job_id} said {len(words)} words in {length_s} s")
        await self._delete_or_leave(owner, stream.job_id, chance)

    async def _requests(self, owner: Account, chance: random.Random) -> None:
        """Send the requests that clients send most."""
        path = chance.choice(("/v1/jobs?limit=20", "/v1/usage", "/v1/models", "/v1/formats", "/healthz"))
        began = time.monotonic()
        await owner.ask("GET", path)
        self.record.time("request_s", time.monotonic() - began)

    async def _estimate(self, owner: Account, chance: random.Random) -> None:
        began = time.monotonic()
        await owner.ask("POST", "/v1/estimate", json={"prompt": "so my fellow Americans " * chance.randrange(1, 500)})
        self.record.time("estimate_s", time.monotonic() - began)

    async def _keys(self, owner: Account, _chance: random.Random) -> None:
        made = (await owner.ask("POST", "/v1/keys", json={"name": "soak"})).json()
        await owner.ask("DELETE", f"/v1/keys/{made['key_id']}")

    async def _real_file(self, owner: Account, chance: random.Random) -> None:
        """Have a person's voice recognised by the real model."""
        job_id = await self._submit(owner, SPEECH, output_formats=["vtt"])
        record = await self._wait_for_end(owner, job_id)
        _check("country" in record["text"], f"{job_id} heard {record['text']!r}")
        await self._delete_or_leave(owner, job_id, chance)

    async def _real_live(self, owner: Account, chance: random.Random) -> None:
        samples, _ = soundfile.read(SPEECH, dtype="int16")
        async with owner.client.live(webhook_url=f"{self.hooks}/hook") as stream:
            self.record.jobs.add(stream.job_id)
            await asyncio.gather(self._read_events(stream, "real word"), _speak(stream, samples.tobytes()))
        record = await self._wait_for_end(owner, stream.job_id)
        _check("country" in record["text"], f"{stream.job_id} heard {record['text']!r}")
        await self._delete_or_leave(owner, stream.job_id, chance)

    async def _submit(self, owner: Account, source: Path | str, **fields: Any) -> str:
        """Start a job with a webhook and return its id."""
        began = time.monotonic()
        job_id: str = (await owner.client.submit(source, webhook_url=f"{self.hooks}/hook", **fields))["job_id"]
        self.record.time("accepted_s", time.monotonic() - began)
        self.record.jobs.add(job_id)
        return job_id

    async def _wait_for_end(self, owner: Account, job_id: str) -> dict[str, Any]:
        """Wait for the job's end and its webhook; they must come within END_S."""
        async with asyncio.timeout(END_S):
            record = await owner.client.wait(job_id)
            _check(record["status"] == "completed", f"{job_id} is {record['status']}: {record.get('error')}")
            while job_id not in self.record.hooks:  # noqa: ASYNC110  it comes by a thread
                await asyncio.sleep(0.2)
        return record

    async def _delete_or_leave(self, owner: Account, job_id: str, chance: random.Random) -> None:
        """Delete the job, or leave it to the end of the soak."""
        if chance.random() < 0.7:
            await owner.ask("DELETE", f"/v1/jobs/{job_id}")

    async def _read_events(self, stream: LiveStream, name: str) -> list[dict[str, Any]]:
        events = [event async for event in stream.events()]
        for event in events:
            if event["type"] == "word":
                self.record.time(f"{name}_lag_s", event["lag_ms"] / 1000)
        return events


async def _speak(stream: LiveStream, audio: bytes) -> None:
    """Send *audio* at the speed of speech, and close the stream."""
    began, size = time.monotonic(), round(2 * RATE * PIECE_S)
    for at in range(0, len(audio), size):
        await asyncio.sleep(began + (at + size) / (2 * RATE) - time.monotonic())
        await stream.send(audio[at : at + size])
    stream.close()


async def _read(client: Client, job_id: str, chance: random.Random, *, leaves: int) -> list[tuple[int, str]]:
    """Return the (number, type) of every event to the end, leaving and coming back *leaves* times."""
    seen: list[tuple[int, str]] = []
    for visit in range(leaves + 1):
        stay = chance.randrange(1, 12) if visit < leaves else None
        async with aclosing(client.events(job_id, after=seen[-1][0] if seen else 0)) as events:
            async for event in events:
                if "seq" in event:
                    seen.append((event["seq"], event["type"]))
                if seen and (seen[-1][1] in TERMINAL_EVENTS or len(seen) == stay):
                    break
        if seen[-1][1] in TERMINAL_EVENTS:
            break
    _check([seq for seq, _ in seen] == list(range(1, len(seen) + 1)), f"{job_id} told events with gaps")
    return seen


def scripted_words(length_s: float) -> list[str]:
    """Return the words of the scripted engine in *length_s* seconds of live audio: each that fits into it."""
    return [SCRIPT[number % len(SCRIPT)] for number in range(int((length_s - 0.32 + 1e-9) / 0.4) + 1)]


def _check(holds: object, otherwise: str) -> None:
    if not holds:
        raise WrongAnswerError(otherwise)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group of groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
