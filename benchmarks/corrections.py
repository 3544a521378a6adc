"""What corrections cost and miss: python -m benchmarks.corrections [--jobs 20000]

1. Subtitles are given to an editor of subtitles that breaks lines anew, joins cues, adds styling and mends some words;
   how many of the words that it kept are found again, and how many of those have their times.
2. Readers of a live session wait for corrections.
3. An archive of many transcripts, with words as frequent as in English, is searched for words and phrases.
Writes benchmarks/results/corrections.json.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from benchmarks.measure import ROOT, spread, write
from benchmarks.serving import Serving, serving
from pipeline.audio import RATE
from pipeline.corrections import Correcting
from pipeline.documents.edited import changes_in, read_edited
from pipeline.timeline import Correction, Entry, StoredWord, Words
from pipeline.words import Word
from server.clock import now_ms
from server.model.jobs import NewJob, Outcome, State
from server.model.orders import Order, Source
from server.storage.sqlite.open import open_storage

WORD_SAMPLES = RATE // 2
HOUR_WORDS = 7_200
EDITED_SHARE = 0.03  # of words that the editor mends, and as many that go or come
TALK_WORDS = 150
QUERIES = 200
CORRECTIONS = 100
AT_ONCE = 64
SECOND = bytes(2 * RATE)
MANY = {"requests_per_minute = 3000": "requests_per_minute = 1000000"}


def vocabulary() -> tuple[list[str], list[float]]:
    """Return English words and how often each is said, after Zipf."""
    words = (ROOT / "pipeline" / "text" / "words_by_frequency" / "en.txt").read_text(encoding="utf-8").split()
    return words, [1 / rank for rank in range(1, len(words) + 1)]


# --- 1. an edited document -------------------------------------------------------------------------------------------


def aligned(dice: random.Random) -> dict[str, Any]:
    """Return how many words of an hour are found again after an editor had them."""
    words, weights = vocabulary()
    said = dice.choices(words, weights, k=HOUR_WORDS)
    spoken = [(Word(text, n * WORD_SAMPLES, (n + 1) * WORD_SAMPLES - 800, 0.9), None) for n, text in enumerate(said)]
    kept, text, numbers = list(said), list[str](), list[int | None]()
    for number, word in enumerate(kept):
        chance = dice.random()
        if chance < EDITED_SHARE / 3:
            continue  # left out
        if chance < EDITED_SHARE * 2 / 3:
            text.append(word.upper() + "x")
            numbers.append(None)
            continue
        text.append(f"<i>{word}</i>" if dice.random() < EDITED_SHARE else word)
        numbers.append(number)
        if chance > 1 - EDITED_SHARE / 3:
            text.append("inserted")
            numbers.append(None)
    cues, at = [], 0
    while at < len(text):
        size = dice.randint(4, 16)
        lines = text[at : at + size]
        middle = len(lines) // 2
        cues.append(
            f"{len(cues) + 1}\n00:00:00,000 --> 00:00:01,000\n{' '.join(lines[:middle])}\n{' '.join(lines[middle:])}\n"
        )
        at += size
    began = time.perf_counter()
    state = Correcting(spoken, [None] * len(spoken), ())
    changes = state.changes_of(
        changes_in(read_edited("\n".join(cues).encode(), "srt"), state), lambda _before, words, _after: words
    )
    took = time.perf_counter() - began
    after = Correcting(spoken, [None] * len(spoken), [Correction(1, "editor", tuple(changes))])
    found = {(word.text, word.start) for number in range(len(spoken)) for word in after.words_at(number)}
    alike = [number for number in numbers if number is not None]
    exact = sum((spoken[number][0].text, spoken[number][0].start) in found for number in alike)
    return {"words": len(alike), "with_their_times": round(exact / len(alike), 5), "took_s": round(took, 2)}


# --- 2. live corrections ---------------------------------------------------------------------------------------------


async def live(server: Serving) -> dict[str, Any]:
    """Return how long readers wait for corrections of a session that goes on."""
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=server.base, headers=headers, timeout=60) as client:
        job = (await client.post("/v1/live", json={})).json()["job_id"]
        path = f"ws{server.base.removeprefix('http')}/v1/jobs/{job}"
        seen: dict[int, float] = {}
        heard = asyncio.Event()
        over = asyncio.Event()

        async def speak() -> None:
            async with connect(f"{path}/audio", additional_headers=headers, proxy=None) as writer:
                receiving = asyncio.create_task(_drain(writer))
                while not over.is_set():
                    await writer.send(SECOND[: len(SECOND) // 10])
                    await asyncio.sleep(0.1)
                receiving.cancel()

        async def read() -> None:
            async with connect(f"{path}/stream", additional_headers=headers, proxy=None) as reader:
                async for frame in reader:
                    event = json.loads(frame)
                    if event["type"] == "word" and event["index"] >= 1:
                        heard.set()
                    elif event["type"] == "corrected":
                        seen[event["revision"]] = time.monotonic()

        speaking, reading = asyncio.create_task(speak()), asyncio.create_task(read())
        await asyncio.wait_for(heard.wait(), 60)
        sent: dict[int, float] = {}
        for number in range(CORRECTIONS):
            body = {"changes": [{"first": 0, "last": 0, "text": f"word{number}"}]}
            began = time.monotonic()
            answer = await client.post(f"/v1/jobs/{job}/corrections", json=body)
            sent[answer.raise_for_status().json()["revision"]] = began
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        over.set()
        await speaking
        reading.cancel()
    late = [seen[revision] - began for revision, began in sent.items()]
    return {"corrections": len(late), "late_s": spread(late)}


async def _drain(socket: Any) -> None:
    async for _ in socket:
        pass


# --- 3. the archive --------------------------------------------------------------------------------------------------


async def fill(folder: Path, count: int, dice: random.Random) -> None:
    """Store *count* finished jobs of the operator, as the server would."""
    with sqlite3.connect(f"file:{folder / 'scribewire.db'}?mode=ro", uri=True) as opened:
        [(account,)] = opened.execute("SELECT account FROM keys LIMIT 1").fetchall()
    words, weights = vocabulary()
    storage = open_storage(folder, clock=now_ms, max_queued=count)
    try:
        numbers = iter(range(count))

        async def store() -> None:
            for number in numbers:
                said = dice.choices(words, weights, k=TALK_WORDS)
                job = NewJob(
                    id=f"job_{number:026}", account=account, environment="production", order=Order(),
                    source=Source(type="upload"), blob=None, audio_s=75.0, retention_ms=30 * 24 * 3600 * 1000,
                )  # fmt: skip
                await storage.jobs.submit(job, idempotency=None)
                lease = await storage.jobs.claim("benchmark", environments=["production"], lease_s=60)
                assert lease is not None
                times = range(0, TALK_WORDS * WORD_SAMPLES, WORD_SAMPLES)
                stored = tuple(
                    StoredWord(text, at, at + WORD_SAMPLES, 0.9) for text, at in zip(said, times, strict=True)
                )
                entries: list[Entry] = [Words(0, 0, stored)]
                await storage.jobs.append(lease, entries)
                done = Outcome(
                    state=State.COMPLETED,
                    duration_s=75.0,
                    text=" ".join(said),
                    language="en",
                    engine="none",
                    model="none",
                )
                assert await storage.jobs.finish(lease, done)

        await asyncio.gather(*(store() for _ in range(AT_ONCE)))  # commits are shared
    finally:
        await storage.close()


def searched(server: Serving, dice: random.Random) -> dict[str, Any]:
    """Return how long searches take: of any word, of any two, and of a phrase that somebody said."""
    words, weights = vocabulary()
    ways = {
        "a word": lambda: dice.choices(words, weights)[0],
        "two words": lambda: " ".join(dice.choices(words, weights, k=2)),
        "a phrase": lambda: f'"{" ".join(dice.choices(words[:200], weights[:200], k=2))}"',
        "a phrase of three": lambda: f'"{" ".join(dice.choices(words[:50], weights[:50], k=3))}"',
        "a rare word": lambda: dice.choice(words[10_000:]),
    }
    found: dict[str, Any] = {}
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as client:
        for way, query in ways.items():
            took, matched = [], 0
            for _ in range(QUERIES):
                began = time.monotonic()
                page = client.get("/v1/jobs", params={"q": query()}).raise_for_status().json()["data"]
                took.append(time.monotonic() - began)
                matched += bool(page)
            found[way] = {"took_s": spread(took), "with_matches": matched}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    given = parser.parse_args()
    dice = random.Random(7)
    result: dict[str, Any] = {"edited": aligned(dice)}
    print(json.dumps(result), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        with serving(MANY, kept=Path(folder), ENGINE="scripted") as server:
            result["live"] = asyncio.run(live(server))
        print(json.dumps(result["live"]), flush=True)
        began = time.monotonic()
        asyncio.run(fill(Path(folder) / "data", given.jobs, dice))
        print(f"{given.jobs} jobs stored in {time.monotonic() - began:.0f} s", flush=True)
        with serving(MANY, kept=Path(folder), ENGINE="scripted") as server:
            result["archive"] = {"jobs": given.jobs, **searched(server, dice)}
    print(json.dumps(result["archive"]), flush=True)
    write("corrections", result)


if __name__ == "__main__":
    main()
