"""Files of raw audio, without a header, at every door that takes files, with the model of the installation."""

from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest

from pipeline.ingest.raw_audio import ALAW, MULAW
from tests.pipeline.sounds import SPEECH, encode_audio, read
from tests.processes import output_of
from tests.server.receiving import receiver
from tests.server.running import Server

CLIP = read(SPEECH / "human" / "LJ001-0002.flac")
WAV = encode_audio(CLIP, "wav", "pcm_s16le", rate=8000)
TELEPHONE = np.frombuffer(WAV[WAV.index(b"data") + 8 :], "<i2").astype(np.float32) / 32768
STEREO = np.repeat((CLIP * 32767).astype("<i2"), 2).tobytes()


def companded(values: np.ndarray) -> bytes:  # type: ignore[type-arg]  # any of 256
    """Return the telephone's audio in the codes whose values are nearest."""
    order = np.argsort(values)
    return order[np.searchsorted(values[order], TELEPHONE).clip(0, 255)].astype(np.uint8).tobytes()


RAW = {
    "mulaw": (companded(MULAW), {"encoding": "mulaw", "sample_rate": "8000"}),
    "alaw": (companded(ALAW), {"encoding": "alaw", "sample_rate": "8000"}),
    "pcm_s16le": (STEREO, {"encoding": "pcm_s16le", "sample_rate": "16000", "channel_count": "2"}),
    "pcm_f32le": (CLIP.tobytes(), {"encoding": "pcm_f32le", "sample_rate": "16000"}),
}


@pytest.fixture(scope="module")
def client(bundled_server: Server) -> Iterator[httpx.Client]:
    with bundled_server.client(bundled_server.new_key("pro")) as made:
        yield made


def post(client: httpx.Client, audio: bytes, **fields: str) -> httpx.Response:
    return client.post("/v1/transcribe", files={"file": ("call.raw", audio)}, data=fields)


@pytest.mark.parametrize("encoding", RAW)
def test_raw_audio_is_decoded_as_declared(client, encoding):
    audio, declared = RAW[encoding]
    job = post(client, audio, **declared).json()
    assert "modern" in job["text"]
    assert job["duration"] == pytest.approx(len(CLIP) / 16_000, abs=0.01)
    assert job["warnings"] == []


def test_every_door_takes_raw_audio(client, bundled_server, tmp_path):
    audio, declared = RAW["mulaw"]
    text = post(client, audio, **declared).json()["text"]
    heard = client.post("/v1/listen", params={**declared, "punctuate": "true"}, content=audio).json()
    assert heard["results"]["channels"][0]["alternatives"][0]["transcript"] == text
    linear = {"encoding": "linear16", "sample_rate": 16000, "channels": 2, "multichannel": "true"}
    heard = client.post("/v1/listen", params=linear, content=STEREO).json()
    assert len(heard["results"]["channels"]) == 2
    with openai.OpenAI(api_key=bundled_server.new_key("pro"), base_url=f"{bundled_server.base}/v1") as other:
        made = other.audio.transcriptions.create(file=("a.ulaw", audio), model="whisper-1", extra_body=declared)
        assert made.text == text
    with receiver() as source:
        source.answer = lambda _: (200, {}, audio)
        asked = {"url": source.url + "/call.ulaw", "wait": 60, "encoding": "mulaw", "sample_rate": 8000}
        assert client.post("/v1/transcribe", json=asked).json()["text"] == text
    file = tmp_path / "call.ulaw"
    file.write_bytes(audio)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in declared.items()]
    program = "import sys; from server.__main__ import main; sys.exit(main())"
    there = ["--server", bundled_server.base, "--key", bundled_server.new_key("pro")]
    assert output_of(program, "transcribe", str(file), *flags, *there) == text
    assert "modern" in output_of(program, "transcribe", str(file), *flags, ENGINE="auto", WHISPER_MODEL="tiny.en")


def test_a_file_with_a_header_is_believed_whatever_is_declared(client):
    job = post(client, WAV, encoding="pcm_s16le", sample_rate="16000").json()
    assert "modern" in job["text"]
    assert job["duration"] == pytest.approx(len(CLIP) / 16_000, abs=0.01)
    assert [warning["code"] for warning in job["warnings"]] == ["header_found"]


@pytest.mark.parametrize(
    ("declared", "param", "code"),
    [
        ({"encoding": "mulaw"}, "sample_rate", "missing_companion"),
        ({"sample_rate": "8000"}, "sample_rate", "missing_companion"),
        ({"channel_count": "2"}, "channel_count", "missing_companion"),
        ({"encoding": "g729", "sample_rate": "8000"}, "encoding", "unknown_value"),
        ({"encoding": "mulaw", "sample_rate": "7999"}, "sample_rate", "out_of_range"),
        ({"encoding": "mulaw", "sample_rate": "8000", "channel_count": "3"}, "channel_count", "out_of_range"),
        ({"encoding": "mulaw", "sample_rate": "8000", "track": "2"}, "track", "conflict"),
    ],
)
def test_one_member_without_the_other_is_refused(client, declared, param, code):
    answer = post(client, RAW["mulaw"][0], **declared)
    assert answer.status_code == 422
    assert [(fault["param"], fault["code"]) for fault in answer.json()["errors"]] == [(param, code)]
    names = {"channel_count": "channels"}
    query = {names.get(name, name): value for name, value in declared.items()}
    assert client.post("/v1/listen", params=query, content=RAW["mulaw"][0]).status_code == 400
