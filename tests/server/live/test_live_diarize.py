"""Tests of live sessions whose speakers are told apart: every reader ends with the labels of the documents."""

import asyncio
import base64
import re

import httpx

from tests.server.serving import wav
from tests.server.talking import Frame, open_talk, silence
from tests.waiting import eventually


def final_labels(frames: list[Frame]) -> dict[int, str | None]:
    """Return the labels that a reader ends with, by word."""
    labels = {frame["index"]: frame.get("speaker") for frame in frames if frame["type"] == "word"}
    for frame in frames:
        if frame["type"] == "speakers.revised":
            for run in frame["words"]:
                labels |= dict.fromkeys(range(run["first"], run["last"] + 1), run["speaker"])
    return labels


async def test_events_records_documents_and_late_readers_agree(me, live_server):
    async with me.speaking(diarize=True, output_formats=["json", "txt"]) as (record, talk):
        await talk.next()
        await talk.send(silence(12))
        await talk.close()
    revisions = talk.of("speakers.revised")
    assert [revision["final"] for revision in revisions] == [False] * (len(revisions) - 1) + [True]
    job = await me.job(record["job_id"])
    labels = final_labels(talk.frames)
    assert [word["speaker"] for word in job["words"]] == [labels[index] for index in sorted(labels)]
    assert {one["speaker"] for one in job["speakers"]} == set(labels.values()) == {"S1", "S2"}
    page = live_server.service.parts.metrics.page().decode()
    assert re.search(r"^scribewire_speakers_found_total [1-9]", page, re.MULTILINE)
    assert re.search(r"^scribewire_speakers_cpu_seconds_total \S*[1-9]", page, re.MULTILINE)
    late = [{"type": kind, **data} for _, kind, data in await me.events(record["job_id"])]
    assert final_labels(late) == labels
    covered = [n for run in revisions[-1]["words"] for n in range(run["first"], run["last"] + 1)]
    assert covered == sorted(labels)
    async with httpx.AsyncClient() as client:
        document = (await client.get(job["formats"]["json"])).json()
        assert document["speakers"] == job["speakers"]
        assert "\nS2: " in (await client.get(job["formats"]["txt"])).text


def cues(vtt: str) -> list[tuple[str, str, str]]:
    """Return the time, the voice and the text of each cue."""
    found = []
    for block in vtt.strip().split("\n\n")[1:]:
        time, text = block.split("\n", 1)
        voice, _, said = text.removeprefix("<v ").partition(">") if text.startswith("<v ") else ("", "", text)
        found.append((time, voice, said))
    return found


async def test_growing_subtitles_have_the_voices_that_readers_know_and_keep_their_cues(me):
    record = await me.start(diarize=True, max_utterance_s=3)
    async with me.client() as client, open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.next()
        await talk.send(silence(9))
        await talk.until("segment")
        now = cues((await client.get(f"/v1/jobs/{record['job_id']}/live.vtt")).text)
        await talk.send(silence(6))
        await talk.close()
        await asyncio.sleep(2.1)  # players that ask together share one rendering
        whole = cues((await client.get(f"/v1/jobs/{record['job_id']}/live.vtt")).text)
    assert now
    assert {voice for _, voice, _ in now} <= {"S1", "S2"}  # who speaks in a cue may be corrected until the end
    assert [said for *_, said in whole[: len(now)]] == [said for *_, said in now]
    assert [time for time, *_ in whole[: len(now) - 1]] == [time for time, *_ in now[:-1]]
    assert {voice for _, voice, _ in whole} == {"S1", "S2"}


async def test_recordings_of_known_people_are_there_until_the_session_ends(me, live_server):
    reference = base64.b64encode(wav()).decode()
    people = {"known_speaker_names": ["Ann"], "known_speaker_references": [f"data:audio/wav;base64,{reference}"]}
    record = await me.start(diarize=True, **people)
    assert not record["warnings"]
    folder = live_server.storage.blobs.scratch.parent / "blobs" / record["job_id"]
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["known"]
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.next()
        await talk.send(silence(2))
        await talk.close()
    await eventually(lambda: not (folder / "voices").exists(), max_s=10)


async def test_channels_that_are_heard_by_themselves_have_speakers_of_their_own(me):
    async with me.speaking(diarize=True, channels="separate") as (record, talk):
        await talk.next()
        await talk.send(silence(8) * 2)
        await talk.close()
    assert len([one for one in talk.of("speakers.revised") if one["final"]]) == 1
    told = {(word["channel"], word["speaker"]) for word in talk.of("word")}
    assert len(told) == len({speaker for _, speaker in told}) == 4
    assert {(word["channel"], word["speaker"]) for word in (await me.job(record["job_id"]))["words"]} == told
