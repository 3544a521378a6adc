"""Tests of live sessions with the small test model and with the bundled one, in server processes."""

import asyncio
import itertools
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Model:
    """A server with a real model, and a clip that the model recognises well."""

    server: Server
    clip: Path
    sure: float  # share of the words that does not depend on the times of the requests

    @property
    def audio(self) -> bytes:
        """Return the clip in the default encoding."""
        return pcm(self.clip)

    def caller(self) -> Caller:
        return Caller(self.server, self.server.new_key())


@pytest.fixture(params=["small", "bundled"])
def model(request: pytest.FixtureRequest) -> Model:
    if request.param == "small":
        return Model(request.getfixturevalue("server"), CLIP, sure=0.9)
    return Model(request.getfixturevalue("bundled_server"), SPEECH / "flite" / "rms_4.flac", sure=0.8)


async def test_speech_is_heard_while_it_is_spoken_and_gives_what_the_file_gives(model):
    me, audio = model.caller(), model.audio
    async with me.client() as client:
        file = (await client.post("/v1/transcribe", files={"file": ("a.flac", model.clip.read_bytes())})).json()
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
    assert alike(job["text"], file["text"]) >= model.sure - 0.1
    [events] = [await task for task in late]  # type: ignore[attr-defined]  # tasks of several kinds
    assert durable({"type": kind, **data} for number, kind, data in events if number) == durable(talk.frames)
