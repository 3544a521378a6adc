"""Tests of files whose channels are separate speakers: one transcript that names them, and what it counts."""

import io
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest
import soundfile
from openai.types.audio import TranscriptionDiarized, TranscriptionTextDeltaEvent
from openai.types.audio.transcription_text_segment_event import TranscriptionTextSegmentEvent

from tests.server.running import CLIP, Server


@pytest.fixture(scope="module")
def call() -> bytes:
    """Return a call in stereo: the clip on the left and, after a pause, on the right."""
    samples, rate = soundfile.read(CLIP, dtype="int16")
    pause = np.zeros(len(samples) + rate, np.int16)
    left, right = np.concatenate((samples, pause)), np.concatenate((pause, samples))
    file = io.BytesIO()
    soundfile.write(file, np.stack((left, right), axis=1), rate, format="WAV")
    return file.getvalue()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.new_key("pro")) as client:
        yield client


def hours_used(client: httpx.Client) -> int:
    [used] = [row["used"] for row in client.get("/v1/usage").json()["usage"] if row["name"] == "audio_seconds"]
    return int(used)


def post(client: httpx.Client, call: bytes, **fields: str) -> httpx.Response:
    return client.post("/v1/transcribe", files={"file": ("call.wav", call)}, data=fields, timeout=120)


def test_both_sides_of_a_call_are_one_transcript_that_names_them(client: httpx.Client, call: bytes) -> None:
    before = hours_used(client)
    job = post(client, call, channels="separate", output_formats="json,srt,vtt", word_timestamps="true").json()
    assert job["status"] == "completed"
    document, srt, vtt = (httpx.get(job["formats"][name]) for name in ("json", "srt", "vtt"))
    speakers = [(segment["channel"], segment["speaker"]) for segment in document.json()["segments"]]
    assert set(speakers) == {(0, "S1"), (1, "S2")}
    assert speakers == sorted(speakers), "the left side speaks first"
    assert {(word["channel"], word["speaker"]) for word in job["words"]} == {(0, "S1"), (1, "S2")}
    starts = [word["start"] for word in job["words"]]
    assert starts == sorted(starts)
    assert "\nS1: " in srt.text
    assert "\n<v S2>" in vtt.text
    growing = client.get(f"/v1/jobs/{job['job_id']}/live.vtt").text
    assert "\n<v S1>" in growing
    assert hours_used(client) - before == pytest.approx(2 * job["duration"], abs=1)


def test_channels_are_mixed_unless_it_is_asked_for(client: httpx.Client, call: bytes) -> None:
    before = hours_used(client)
    job = post(client, call, output_formats="json,srt").json()
    assert "channel" not in httpx.get(job["formats"]["json"]).json()["segments"][0]
    assert "S1" not in httpx.get(job["formats"]["srt"]).text
    assert hours_used(client) - before == pytest.approx(job["duration"], abs=1)


def test_another_word_for_it_is_refused(client: httpx.Client, call: bytes) -> None:
    refused = post(client, call, channels="both")
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "channels")


def test_the_events_of_a_call_name_the_speakers(client: httpx.Client, call: bytes) -> None:
    job = post(client, call, channels="separate", word_timestamps="true").json()["job_id"]
    events = client.get(f"/v1/jobs/{job}/events").text
    assert '"channel":1,"speaker":"S2"' in events


@pytest.fixture(scope="module")
def newcomer(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=server.new_key("pro"), base_url=server.base + "/v1", max_retries=0) as client:
        yield client


def test_openais_client_reads_who_spoke_on_which_channel(newcomer: openai.OpenAI, call: bytes) -> None:
    told = newcomer.audio.transcriptions.create(
        file=("call.wav", call),
        model="whisper-1",
        response_format="diarized_json",
        extra_body={"channels": "separate"},
    )
    assert isinstance(told, TranscriptionDiarized)
    TranscriptionDiarized.model_validate(told.model_dump(), strict=True)
    speakers = [segment.speaker for segment in told.segments]
    assert set(speakers) == {"A", "B"}
    assert speakers == sorted(speakers), "the left side speaks first"
    assert [segment.id for segment in told.segments] == [f"seg_{number}" for number in range(len(speakers))]
    assert " ".join(segment.text for segment in told.segments) == told.text
    assert told.segments[-1].end <= told.duration


def test_channels_that_are_heard_together_are_one_speaker(newcomer: openai.OpenAI, call: bytes) -> None:
    told = newcomer.audio.transcriptions.create(
        file=("call.wav", call), model="whisper-1", response_format="diarized_json"
    )
    assert {segment.speaker for segment in told.segments} == {"A"}


def test_a_stream_tells_each_segment_with_its_speaker(newcomer: openai.OpenAI, call: bytes) -> None:
    stream = newcomer.audio.transcriptions.create(
        file=("call.wav", call),
        model="whisper-1",
        response_format="diarized_json",
        stream=True,
        extra_body={"channels": "separate"},
    )
    events = list(stream)
    segments = [event for event in events if isinstance(event, TranscriptionTextSegmentEvent)]
    assert {segment.speaker for segment in segments} == {"A", "B"}
    for segment in segments:
        deltas = [
            event.delta
            for event in events
            if isinstance(event, TranscriptionTextDeltaEvent) and event.segment_id == segment.id
        ]
        assert "".join(deltas).strip() == segment.text


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # so OpenAI calls its translations
def test_other_formats_of_openai_have_the_channels_too(newcomer: openai.OpenAI, call: bytes) -> None:
    file, separate = ("call.wav", call), {"channels": "separate"}
    create = newcomer.audio.transcriptions.create
    srt = create(file=file, model="whisper-1", response_format="srt", extra_body=separate)
    assert "\nS2: " in str(srt)
    whole = create(
        file=file,
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["word"],
        extra_body=separate,
    )
    channels = [(segment.model_extra or {})["channel"] for segment in whole.segments or ()]
    assert set(channels) == {0, 1}
    assert channels == sorted(channels), "the left side speaks first"
    starts = [word.start for word in whole.words or ()]
    assert starts == sorted(starts)
    with pytest.raises(openai.UnprocessableEntityError, match="channels"):
        create(file=file, model="whisper-1", extra_body={"channels": "both"})
    with pytest.raises(openai.UnprocessableEntityError, match="response_format"):
        newcomer.audio.translations.create(file=file, model="whisper-1", response_format="diarized_json")  # type: ignore[call-overload]  # its types know that too
