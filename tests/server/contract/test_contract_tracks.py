"""A recording with several audio tracks at every door that takes files, with the model of the installation."""

import io
import re
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest
import soundfile

from pipeline.audio import RATE
from server.client import Client
from tests.pipeline.sounds import SPEECH, Sound, read, tracks_in
from tests.server.receiving import receiver
from tests.server.running import Server
from tests.server.talking import Caller, open_talk

CLIP, OTHER = (read(SPEECH / "human" / name) for name in ("LJ001-0002.flac", "LJ001-0004.flac"))
TWO = tracks_in("mp4", Sound(CLIP), Sound(OTHER))


@pytest.fixture(scope="module")
def client(bundled_server: Server) -> Iterator[httpx.Client]:
    with bundled_server.client(bundled_server.new_key("pro")) as made:
        yield made


def post(client: httpx.Client, audio: bytes, **fields: str) -> httpx.Response:
    return client.post("/v1/transcribe", files={"file": ("two.mp4", audio)}, data=fields)


def used_s(client: httpx.Client) -> int:
    return next(row["used"] for row in client.get("/v1/usage").json()["usage"] if row["name"] == "audio_seconds")


def test_the_track_with_speech_is_heard_and_others_are_named(client):
    silent_first = post(client, tracks_in("matroska", Sound(np.zeros(len(CLIP), np.float32)), Sound(CLIP))).json()
    assert "modern" in silent_first["text"]
    assert silent_first["warnings"] == []
    usual = post(client, TWO).json()
    assert "modern" in usual["text"]
    assert [warning["code"] for warning in usual["warnings"]] == ["other_tracks"]


def test_separate_tracks_have_their_speakers_and_count_as_recordings(client):
    before = used_s(client)
    both = post(client, TWO, track="separate", word_timestamps="true").json()
    assert {(word["channel"], word["speaker"]) for word in both["words"]} == {(0, "S1"), (1, "S2")}
    assert used_s(client) - before == pytest.approx(2 * both["duration"], abs=1)
    assert both["warnings"] == []


def test_channels_that_hold_the_same_are_heard_and_counted_once(client):
    before = used_s(client)
    sound = io.BytesIO()
    soundfile.write(sound, np.stack((CLIP, -0.9 * CLIP), axis=1), RATE, format="WAV")
    job = post(client, sound.getvalue(), channels="separate", word_timestamps="true").json()
    assert {word["channel"] for word in job["words"]} == {0}
    assert [word["word"] for word in job["words"]].count("modern.") == 1
    assert [warning["code"] for warning in job["warnings"]] == ["identical_channels"]
    assert used_s(client) - before == pytest.approx(job["duration"], abs=1)


async def test_a_copy_of_a_live_channel_is_heard_and_counted_once(client, bundled_server):
    before = used_s(client)
    sides = np.stack((CLIP, 0.9 * CLIP), axis=1)
    sound = (np.concatenate((sides, np.zeros((RATE, 2)))) * 32767).astype("<i2").tobytes()
    async with Client(bundled_server.base, client.headers["Authorization"].removeprefix("Bearer ")) as ours:
        async with ours.live(channels="separate") as stream:
            await stream.send(sound)
        record = await ours.complete(stream.job_id)
    assert record["text"].endswith("modern.")
    assert {word["channel"] for word in record["words"]} == {0}
    assert [warning["code"] for warning in record["warnings"]] == ["identical_channels"]
    assert used_s(client) - before == pytest.approx(record["duration"], abs=1)


async def test_the_tracks_of_a_live_container_are_chosen_mixed_and_separated(bundled_server):
    me = Caller(bundled_server, bundled_server.new_key("pro"))
    silent = Sound(np.zeros(len(CLIP), np.float32))
    said = {}
    for track, second, sounds in (
        ("auto", False, (Sound(CLIP), Sound(OTHER))),
        ("auto", True, (silent, Sound(CLIP))),
        (2, False, (Sound(CLIP), Sound(OTHER))),
        ("mix", False, (Sound(CLIP), Sound(OTHER, start_s=5))),
        ("separate", False, (Sound(CLIP), Sound(OTHER))),
    ):
        record = await me.start(encoding="container", track=track)
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            await talk.send(tracks_in("matroska", *sounds), piece_s=0.05)
            await talk.say("close")
            assert await talk.to_the_end() == (1000, "")
        job = await me.job(record["job_id"])
        said[track, second] = job["text"]
        told = talk.of("warning")
        codes = ["other_tracks"] * ((track, second) == ("auto", False))
        assert [warning["code"] for warning in told] == [warning["code"] for warning in job["warnings"]] == codes
        if told:
            assert told[0]["message"].startswith(
                "Somebody speaks on track 2, but track 1 is transcribed. Start again with another track"
            )
            assert re.search(r"also spoke on track 2, \d s\. Start again", job["warnings"][0]["message"])
        if track == "separate":
            assert {(word["channel"], word["speaker"]) for word in talk.of("word")} == {(0, "S1"), (1, "S2")}
    for track, second in (("auto", False), ("auto", True), ("mix", False), ("separate", False)):
        assert "modern" in said[track, second]
    for track in (2, "mix", "separate"):
        assert "block books" in said[track, False].lower()


def test_every_door_takes_a_track_and_names_one_that_is_not_there(client, bundled_server):
    second = post(client, TWO, track="2").json()["text"]
    assert "modern" not in second
    heard = client.post("/v1/listen", params={"track": 2, "punctuate": "true"}, content=TWO).json()
    assert heard["results"]["channels"][0]["alternatives"][0]["transcript"] == second
    with openai.OpenAI(api_key=bundled_server.new_key("pro"), base_url=f"{bundled_server.base}/v1") as other:
        create = other.audio.transcriptions.create
        asked = {"file": ("two.mp4", TWO), "model": "whisper-1"}
        assert create(**asked, extra_body={"track": 2}).text == second  # type: ignore[call-overload]  # members as above
        with pytest.raises(openai.UnprocessableEntityError, match="no track 3"):
            create(**asked, extra_body={"track": 3})  # type: ignore[call-overload]  # as above
    with receiver() as source:
        source.answer = lambda _: (200, {}, TWO)
        asked = {"url": source.url + "/two.mp4", "wait": 60}
        assert client.post("/v1/transcribe", json={**asked, "track": 2}).json()["text"] == second
        failed = client.post("/v1/transcribe", json={**asked, "track": 3}).json()
        assert (failed["status"], failed["error"]["code"]) == ("failed", "no_audio_stream")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"track": "3"}, "out_of_range"),
        ({"track": "0"}, "unknown_value"),
        ({"track": "both"}, "unknown_value"),
        ({"track": "mix", "channels": "separate"}, "conflict"),
    ],
)
def test_a_wrong_track_is_refused_by_its_name(client, fields, code):
    answer = post(client, TWO, **fields)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert (fault["param"], fault["code"]) == ("track", code)


@pytest.mark.parametrize("wrong", [{"track": 2}, {"track": "mix", "encoding": "container", "channels": "separate"}])
def test_a_live_session_refuses_tracks_that_it_cannot_hear(client, wrong):
    answer = client.post("/v1/live", json=wrong)
    assert answer.status_code == 422
    assert [fault["param"] for fault in answer.json()["errors"]] == ["track"]
