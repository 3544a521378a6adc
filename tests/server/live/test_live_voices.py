"""Tests of live sessions whose speakers are told apart, with real voices in real server processes that are killed."""

import asyncio
import base64
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pipeline.speakers.live import SpeakerState, read_state
from tests.pipeline.conversations import clip, conversation
from tests.server.clustering import start_cluster
from tests.server.live.test_live_diarize import final_labels
from tests.server.running import SPEECH, Server, run_server
from tests.server.talking import SECOND, Caller, Frame, durable, open_talk
from tests.waiting import until

TALK = ("flite/rms_0.flac", "flite/slt_1.flac", "flite/rms_4.flac", "flite/slt_1.flac")
CUT_S = 12.5
"""In the middle of the third turn: both have spoken."""

VOICED: Final = {"program": "tests.server.voiced_server", "ENGINE": "scripted"}


def pcm(*clips: str) -> bytes:
    return bytes(np.round(conversation(*clips)[0] * 32767).astype("<i2").tobytes())


def voices(server: Server) -> list[Path]:
    return sorted((server.data_dir / "blobs").glob("job_*/voices/*"))


async def speak_until(me: Caller, record: Frame, audio: bytes, *, label: str) -> list[Frame]:
    """Send *audio*, and return what came until words of somebody with this label were told."""
    async with open_talk(me.socket(record), me.headers) as talk:
        await talk.send(audio, piece_s=0.25)
        await talk.say("finalize")
        await talk.until("finalized")
        while label not in final_labels(talk.frames).values():
            await talk.next()
    return talk.frames


def states(server: Server) -> list[SpeakerState]:
    """Return what is stored of the voices now."""
    with suppress(FileNotFoundError):  # a newer version took its place just now
        return [read_state(path.read_bytes()) for path in voices(server) if path.name != "known"]
    return []


def labels(server: Server) -> set[str]:
    return {label for state in states(server) for label in state.labels()}


async def finish(me: Caller, record: Frame, audio: bytes, last: int) -> list[Frame]:
    """Send the rest of *audio* to whoever has the session now, and return what came after event *last*."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionClosed, InvalidStatus, OSError):
                async with open_talk(f"{me.socket(record)}?last_event_id={last}", me.headers) as talk:
                    ready = await talk.next()
                    if "received_bytes" in ready:
                        await talk.send(audio[ready["received_bytes"] :], piece_s=0.25)
                        await talk.close()
                        return talk.frames
            await asyncio.sleep(0.3)


def speakers_of(job: Frame) -> list[str]:
    """Return who says most of each turn of TALK."""
    starts = [0.0]
    for name in TALK:
        starts.append(starts[-1] + len(clip(name)) / 16_000 + 0.4)
    spoken: list[Counter[str]] = [Counter() for _ in TALK]
    for word in job["words"]:
        turn = sum(word["start"] >= start for start in starts[1:-1])
        spoken[turn][word["speaker"]] += 1
    return [turn.most_common(1)[0][0] for turn in spoken]


def traces(server: Server, known: Sequence[SpeakerState]) -> list[str]:
    """Return where something is of what the voices sound like."""
    sought: list[bytes] = []
    for vector in [voice for state in known for own in state.voices.values() for voice in own.values()]:
        sought += [vector.tobytes()[:64], vector.astype(np.float16).tobytes()[:64], f"{vector.max():.6f}".encode()]
        sought.append(base64.b64encode(vector.tobytes())[:40])
    places = {str(path): path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file()}
    sought = [piece for piece in sought if len(set(piece)) > 7]  # not zeros alone
    places["log"] = "\n".join(server.log).encode()
    return [place for place, data in places.items() if any(piece in data for piece in sought)]


async def run_short_session(me: Caller, server: Server) -> list[SpeakerState]:
    """Run a short session that keeps no results and redacts; return what was stored meanwhile."""
    record = await me.start(diarize=True, retention="none", redact=["numbers"])
    async with open_talk(me.socket(record), me.headers) as talk:
        await talk.send(pcm(TALK[0]), piece_s=0.25)
        await asyncio.to_thread(until, lambda: labels(server))
        known = states(server)
        await talk.close()
        return known


def test_a_killed_server_knows_the_speakers_again_and_keeps_nothing_of_their_voices(tmp_path):
    audio = pcm(*TALK)
    with run_server(tmp_path / "data", **VOICED) as server:
        me = Caller(server, server.new_key())
        record = asyncio.run(me.start(diarize=True, output_formats=["json", "vtt"]))
        before = asyncio.run(speak_until(me, record, audio[: round(CUT_S * SECOND)], label="S2"))
        until(lambda: labels(server) == {"S1", "S2"})
        known = states(server)
        assert traces(server, known) == [str(path) for path in voices(server)]
        server.kill()
        server.start()
        after = asyncio.run(finish(me, record, audio, durable(before)[-1]["seq"]))
        job = asyncio.run(me.job(record["job_id"]))
        assert speakers_of(job) == ["S1", "S2", "S1", "S2"]
        told = final_labels([*before, *after])
        assert told == dict(enumerate(word["speaker"] for word in job["words"]))
        late = [{"type": kind, **data} for _, kind, data in asyncio.run(me.events(record["job_id"]))]
        assert final_labels(late) == told
        assert voices(server) == traces(server, known) == []
        with server.client(me.secret) as client:
            assert client.delete(f"/v1/jobs/{record['job_id']}").status_code == 204
        known = asyncio.run(run_short_session(me, server))
        assert known
        assert voices(server) == traces(server, known) == []


def test_another_node_knows_the_voices_of_the_one_that_died_and_the_names_of_known_people(tmp_path, bucket):
    audio = pcm(*TALK)
    reference = base64.b64encode((SPEECH / "flite" / "slt_5.flac").read_bytes()).decode()
    known = {"known_speaker_names": ["Cindy"], "known_speaker_references": [f"data:audio/flac;base64,{reference}"]}
    with start_cluster(tmp_path, bucket, **VOICED) as nodes:
        one, other = (Caller(node, key) for node, key in zip(nodes.nodes, [nodes.new_key()] * 2, strict=True))
        record = asyncio.run(one.start(diarize=True, **known))
        before = asyncio.run(speak_until(one, record, audio[: round(CUT_S * SECOND)], label="Cindy"))
        nodes.nodes[0].kill()
        after = asyncio.run(finish(other, record, audio, durable(before)[-1]["seq"]))
        job = asyncio.run(other.job(record["job_id"]))
        assert speakers_of(job) == ["S1", "Cindy", "S1", "Cindy"]
        assert final_labels([*before, *after]) == dict(enumerate(word["speaker"] for word in job["words"]))
