"""Tests of live sessions with the small test model and with the bundled one, in server processes."""

import asyncio
import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.server.running import CLIP, SPEECH, Server
from tests.server.talking import SECOND, Caller, durable, open_talk

FASTER = 2.0  # times faster than real time, to save time


def pcm(clip: Path) -> bytes:
    samples, rate = soundfile.read(clip, dtype="int16")
    assert rate == 16_000
    return bytes(samples.tobytes())


def alike(one: str, other: str) -> float:
    """Return the share of the words of *other* that *one* has too, in the same order."""
    a, b = one.lower().split(), other.lower().split()
    common = np.zeros((len(a) + 1, len(b) + 1), int)
    for (i, x), (j, y) in itertools.product(enumerate(a, 1), enumerate(b, 1)):
        common[i, j] = common[i - 1, j - 1] + 1 if x == y else max(common[i - 1, j], common[i, j - 1])
    return float(common[-1, -1]) / len(b)


@pytest.mark.parametrize(
    ("served", "clip", "sure"),
    [("server", CLIP, 0.8), ("bundled_server", SPEECH / "flite" / "rms_4.flac", 0.7)],
    ids=["small", "bundled"],
)
async def test_speech_is_heard_while_it_is_spoken_and_gives_what_the_file_gives(request, served, clip, sure):
    server: Server = request.getfixturevalue(served)
    me, audio = Caller(server, server.new_key()), pcm(clip)
    async with me.client() as client:
        file = (await client.post("/v1/transcribe", files={"file": ("a.flac", clip.read_bytes())})).json()
    record = await me.start(output_formats=["json", "srt"])
    late: list[object] = []
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        listening = asyncio.create_task(talk.to_the_end())
        for at in range(0, len(audio), SECOND // 10):
            await talk.socket.send(audio[at : at + SECOND // 10])
            await asyncio.sleep(0.1 / FASTER)
            if at >= len(audio) / 2 and not late:
                late = [asyncio.create_task(me.events(record["job_id"]))]
        assert talk.of("partial") or talk.words
        await talk.say("close")
        assert await listening == (1000, "")
    job = await me.job(record["job_id"])
    assert (job["status"], set(job["formats"])) == ("completed", {"json", "srt"})
    assert job["text"].split() == " ".join(frame["text"] for frame in talk.of("segment")).split()
    assert [word["word"] for word in job["words"]] == talk.words
    assert alike(job["text"], file["text"]) >= sure
    [events] = [await task for task in late]  # type: ignore[attr-defined]  # tasks of several kinds
    assert durable({"type": kind, **data} for number, kind, data in events if number) == durable(talk.frames)
