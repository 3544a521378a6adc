"""Streams audio to a live server at the speed of speech and scores the answers, in the same way for every server."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.live_scores import Scores, Seen
from benchmarks.measure import cpu_s, rss_mb, spread
from benchmarks.tracks import Track
from benchmarks.wires import Refused, Wire
from pipeline.audio import RATE

FRAME_S = 0.032
LATEST_SENDER_S = 0.05
READY_S = 60
TAIL_S = 30  # after the last audio, for all that is still to come
SAMPLE_S = 1.0  # between two looks at the server's memory

Opener = Callable[[Track], Awaitable[Wire]]


@dataclass
class Crowd:
    """All sessions of one run and their results."""

    open: Opener
    pid: int  # of the server
    since_s: float = 0.0  # words that end earlier count for accuracy alone
    scores: Scores = field(default_factory=Scores)
    sender_late_s: list[float] = field(default_factory=list)
    audio_s: float = 0.0
    refused: int = 0
    finished: int = 0
    unfinished: int = 0  # closed, or silent, before they said that they were over
    rss_mb: list[float] = field(default_factory=list)

    async def run(self, tracks: Sequence[Track], apart_s: Sequence[float]) -> dict[str, Any]:
        """Run one session for each track; each starts at its own second."""
        before, cpu = cpu_s(self.pid), 0.0
        watching = asyncio.create_task(self._watch())
        async with asyncio.TaskGroup() as tasks:
            sent = [asyncio.Event() for _ in tracks]
            for track, delay_s, done in zip(tracks, apart_s, sent, strict=True):
                tasks.create_task(self._session(track, delay_s, done))
            for done in sent:
                await done.wait()
            cpu = cpu_s(self.pid) - before  # what a server does after the last audio is not the price of live words
        watching.cancel()
        late = spread(self.sender_late_s)
        return {
            "sessions": len(tracks),
            "finished": self.finished,
            "refused": self.refused,
            "unfinished": self.unfinished,
            **self.scores.table(),
            "audio_s": round(self.audio_s),
            "cpu_per_audio_s": round(cpu / max(1.0, self.audio_s), 4),
            "rss_mb": round(max(self.rss_mb)),
            "sender_late_s": late,
            "void": late.get("p99", 0.0) > LATEST_SENDER_S,
        }

    async def _watch(self) -> None:
        while True:
            self.rss_mb.append(rss_mb(self.pid))
            await asyncio.sleep(SAMPLE_S)

    async def _session(self, track: Track, delay_s: float, sent: asyncio.Event) -> None:
        await asyncio.sleep(delay_s)
        seen: list[Seen] = []
        try:
            wire = await self.open(track)
            async with connect(wire.url, max_size=None, compression=None, ping_interval=None) as connection:
                finished = await self._speak(connection, wire, track, seen, sent)
        except Refused:
            self.refused += 1
            return
        finally:
            sent.set()
        self.finished += finished
        self.unfinished += not finished
        self.audio_s += len(track.samples) / RATE
        self.scores.add(track.truth, seen, offline=track.offline, since=self.since_s, language=track.language)

    async def _speak(
        self, connection: ClientConnection, wire: Wire, track: Track, seen: list[Seen], sent: asyncio.Event
    ) -> bool:
        """Send one track. Return whether the server said that it is finished, or closed after the end of the audio."""
        finished = False
        if wire.hello is not None:
            await connection.send(wire.hello)
        while not wire.ready:
            wire.read(str(await asyncio.wait_for(connection.recv(), READY_S)), 0.0)
        began = asyncio.get_running_loop().time()
        reading = asyncio.create_task(_read(connection, wire, began, seen))
        with suppress(ConnectionClosed):  # what was heard until then counts, and that it is not over
            await self._send(connection, wire, track, began)
            sent.set()
            await connection.send(wire.goodbye)
            await asyncio.wait({reading}, timeout=TAIL_S)
            finished = reading.done()
        reading.cancel()
        await asyncio.wait({reading})
        broken = None if reading.cancelled() else reading.exception()
        if broken is not None and not isinstance(broken, ConnectionClosed):
            raise broken
        return finished and broken is None

    async def _send(self, connection: ClientConnection, wire: Wire, track: Track, began: float) -> None:
        loop = asyncio.get_running_loop()
        size = round(FRAME_S * RATE)
        for at in range(0, len(track.samples), size):
            frame = track.samples[at : at + size]
            due = began + (at + len(frame)) / RATE
            await asyncio.sleep(due - loop.time())
            self.sender_late_s.append(loop.time() - due)
            await connection.send(wire.frame(frame))


def random_starts(count: int, *, within_s: float = 1.0, seed: int = 1) -> list[float]:
    """Return random start times, so that the sessions do not run in step."""
    starts = random.Random(seed)
    return [starts.random() * within_s for _ in range(count)]


async def _read(connection: ClientConnection, wire: Wire, began: float, seen: list[Seen]) -> None:
    """Read messages until the server says that it is finished, or closes."""
    loop = asyncio.get_running_loop()
    async for message in connection:
        new = wire.read(str(message), loop.time() - began)
        if new is not None:
            seen.append(new)
        if wire.over:
            break
