"""Whole journeys of a client, with a real model, on one machine and on two nodes behind a balancer."""

import io
import json
import re
import socket
from collections.abc import Iterator

import av
import httpx
import jsonschema
import numpy as np
import openai
import pytest
import soundfile
import standardwebhooks
from openai.types.audio import TranscriptionDiarized, TranscriptionTextDeltaEvent
from openai.types.audio.transcription_text_segment_event import TranscriptionTextSegmentEvent

from tests.server.conforming import PROBLEM
from tests.server.receiving import ReceivedRequest, Receiver, receiver
from tests.server.running import CLIP, SPEECH, Server, run_server, until_over
from tests.waiting import until

SMALL = CLIP.parent / "en_00.flac"


@pytest.fixture(scope="module")
def pro(server: Server) -> httpx.Client:
    return server.client(server.new_key("pro"))


@pytest.fixture(scope="module")
def scripted(small_server: Server) -> httpx.Client:
    """Return a client of the server with the scripted engine."""
    return small_server.client(small_server.new_key("pro"))


@pytest.fixture(scope="module")
def newcomer(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=server.new_key("pro"), base_url=server.base + "/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


@pytest.fixture(scope="module")
def call() -> bytes:
    """Return a call in stereo: the clip on the left and, after a pause, on the right."""
    samples, rate = soundfile.read(CLIP, dtype="int16")
    pause = np.zeros(len(samples) + rate, np.int16)
    sides = (np.concatenate((samples, pause)), np.concatenate((pause, samples)))
    return encode(np.stack(sides, axis=1), rate)


def encode(samples: np.ndarray, rate: int, kind: str = "WAV", subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def post(client: httpx.Client, audio: bytes | None = None, **fields: str) -> httpx.Response:
    """Send *audio*, or the small file, for transcription."""
    return client.post("/v1/transcribe", files={"file": ("a", audio or SMALL.read_bytes())}, data=fields)


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """Check that the answer is a refusal with this status and code, and return its body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith(PROBLEM)
    body: dict[str, object] = answer.json()
    assert (body["code"], body["status"], body["request_id"]) == (code, status, answer.headers["x-request-id"])
    return body


def used(client: httpx.Client, name: str) -> int:
    return next(row["used"] for row in client.get("/v1/usage").json()["usage"] if row["name"] == name)


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_clip_becomes_words_and_files_behind_links_that_end(server, pro):
    answer = post(pro, CLIP.read_bytes(), output_formats="json,srt,vtt,txt", word_timestamps="true")
    record = answer.json()
    assert (answer.status_code, record["status"], record["schema"]) == (200, "completed", "service_v1")
    assert answer.headers["content-location"] == f"/v1/jobs/{record['job_id']}"
    document, srt, vtt, txt = (httpx.get(record["formats"][name]) for name in ("json", "srt", "vtt", "txt"))
    jsonschema.validate(document.json(), httpx.get(server.base + "/schemas/service_v1.json").json())
    words = document.json()["words"]
    assert words == record["words"] == sorted(words, key=lambda word: word["start"])
    assert all(0 <= word["start"] <= word["end"] <= record["duration"] for word in words)
    assert txt.text == record["text"] + "\n"
    assert srt.text.startswith("1\n00:00:0")
    assert vtt.text.startswith("WEBVTT\n\n00:00:0")
    ending = pro.get(f"/v1/jobs/{record['job_id']}", params={"url_ttl": 1}).json()["formats"]["json"]
    check_problem(until(lambda: refusal(httpx.get(ending))), 403, "url_expired")


def refusal(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.is_client_error else None


def test_statuses_only_move_along_and_progress_never_falls(pro):
    long = SPEECH / "espeak" / "en_long.flac"
    seen = [post(pro, long.read_bytes(), wait="0").json()]

    def is_over() -> bool:
        seen.append(pro.get(f"/v1/jobs/{seen[0]['job_id']}").json())
        return seen[-1]["status"] == "completed"

    until(is_over, max_s=60)
    places = [["queued", "processing", "completed"].index(record["status"]) for record in seen]
    assert places == sorted(places)
    assert [record["progress"] for record in seen] == sorted(record["progress"] for record in seen)
    assert seen[-1]["created_at"] <= seen[-1]["started_at"] <= seen[-1]["finished_at"]


def silent_video() -> bytes:
    """Return an MP4 with a picture track and no sound."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def test_what_is_no_audio_is_refused_reaches_nobody_and_costs_nothing(server):
    client = server.client(server.new_key("free"))
    check_problem(post(client, b"This is a text, not a recording.\n" * 50), 415, "unsupported_audio_format")
    check_problem(post(client, CLIP.read_bytes()[:60]), 422, "invalid_audio")
    check_problem(post(client, silent_video()), 422, "no_audio_stream")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        playlist = f"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:{listener.getsockname()[1]}/a.ts\n".encode()
        files = {"file": ("x.m3u8", playlist)}
        check_problem(client.post("/v1/transcribe", files=files), 415, "unsupported_audio_format")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert used(client, "transcriptions") == 0


def test_more_minutes_than_the_plan_takes_are_refused_whatever_the_header_says(server):
    client = server.client(server.new_key("free"))
    silence = bytearray(encode(np.zeros(8000 * 31 * 60, np.int16), 8000, "FLAC"))
    assert check_problem(post(client, bytes(silence)), 413, "audio_too_long")["limit"] == 1800
    silence[21:26] = bytes([silence[21] & 0xF0]) + (60 * 8000).to_bytes(4)  # STREAMINFO: the number of samples
    record = post(client, bytes(silence)).json()
    assert (record["status"], record["error"]["code"]) == ("failed", "audio_too_long")


def test_files_that_are_cut_off_or_very_quiet_are_heard_and_warned_of(pro):
    answer = post(pro, encode(np.zeros(16_000, np.int16), 16_000)[: 44 + 16_000])
    cut = answer.json()
    assert answer.headers["scribewire-warning"].startswith('audio_truncated;message="The recording ends 16000 bytes')
    assert cut["status"] == "completed"
    assert cut["warnings"] == [
        {"code": "audio_truncated", "message": "The recording ends 16000 bytes before the end that its header states."}
    ]
    samples, rate = soundfile.read(CLIP, dtype="float32")
    quiet = post(pro, encode(samples * 10 ** (-50 / 20), rate, subtype="FLOAT")).json()
    assert quiet["text"]
    [warning] = [one for one in quiet["warnings"] if one["code"] == "quiet_input"]
    assert re.search(r"speech is at -\d\d dBFS", warning["message"])


def test_an_address_is_fetched_and_its_faults_are_named(small_server, hook):
    def host(got: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        if got.path == "/inside":
            return 302, {"Location": "http://10.0.0.1:1/"}, b""
        if got.path == "/missing":
            return 404, {}, b""
        if got.path == "/moved":
            return 302, {"Location": "/a.flac"}, b""
        return 200, {}, bytes(3 << 20) if got.path == "/large" else SMALL.read_bytes()

    hook.answer = host
    client = small_server.client(small_server.new_key("free"))
    by_json = client.post("/v1/transcribe", json={"url": hook.url + "/a.flac"}).json()
    by_form = client.post("/v1/transcribe", data={"url": hook.url + "/moved"}).json()
    by_part = client.post("/v1/transcribe", files={"audio_url": (None, hook.url + "/a.flac")}).json()
    assert by_json["status"] == "completed"
    assert by_json["text"] == by_form["text"] == by_part["text"]
    assert by_json["source"]["filename"] == "a.flac"
    faults = {"/inside": "source_not_allowed", "/missing": "source_http_error", "/large": "source_too_large"}
    for path, code in faults.items():
        record = client.post("/v1/transcribe", json={"url": hook.url + path}).json()
        assert (record["status"], record["error"]["code"]) == ("failed", code)
    assert used(client, "transcriptions") == 3


def test_with_default_settings_addresses_that_lead_inside_are_refused(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strict")
    with run_server(folder, ENGINE="scripted", EGRESS_ALLOW_CIDRS="", ALLOW_HTTP_SOURCES="0") as strict:
        client = strict.client(strict.new_key("pro"))
        for url in (
            "http://169.254.169.254/",
            "https://127.0.0.1/",
            "https://[::ffff:10.0.0.1]/",
            "https://localhost/",
        ):
            check_problem(client.post("/v1/transcribe", json={"url": url}), 422, "url_not_allowed")
            check_problem(post(client, webhook_url=url), 422, "url_not_allowed")


def test_both_sides_of_a_call_are_one_transcript_that_names_them(pro, call):
    before = used(pro, "audio_seconds")
    job = post(pro, call, channels="separate", output_formats="json,srt,vtt", word_timestamps="true").json()
    document, srt, vtt = (httpx.get(job["formats"][name]) for name in ("json", "srt", "vtt"))
    speakers = [(segment["channel"], segment["speaker"]) for segment in document.json()["segments"]]
    assert set(speakers) == {(0, "S1"), (1, "S2")}
    assert speakers == sorted(speakers), "the left side speaks first"
    assert {(word["channel"], word["speaker"]) for word in job["words"]} == set(speakers)
    assert "\nS1: " in srt.text
    assert "\n<v S2>" in vtt.text
    assert "\n<v S1>" in pro.get(f"/v1/jobs/{job['job_id']}/live.vtt").text
    assert '"channel":1,"speaker":"S2"' in pro.get(f"/v1/jobs/{job['job_id']}/events").text
    assert used(pro, "audio_seconds") - before == pytest.approx(2 * job["duration"], abs=1)
    mixed = post(pro, call, output_formats="srt").json()
    assert "S1" not in httpx.get(mixed["formats"]["srt"]).text
    assert check_problem(post(pro, call, channels="both"), 422, "invalid_parameter")["errors"]


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_a_slow_job_can_be_waited_for_followed_canceled_and_deleted(small_server):
    client = small_server.client(small_server.new_key("free", environment="sandbox"), sandbox=True)
    answer = client.post(
        "/v1/transcribe",
        files={"file": SMALL.read_bytes()},
        data={"sandbox_scenario": "slow"},
        headers={"Prefer": "wait=1"},
    )
    assert answer.status_code == 202
    path = f"/v1/jobs/{answer.json()['job_id']}"
    with client.stream("GET", f"{path}/events", headers={"Accept-Encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers
        assert any(line.startswith(": keep-alive") for line in events.iter_lines())
    assert client.get(path, params={"wait": 30}).json()["status"] == "completed"
    check_problem(client.post(f"{path}/cancel"), 409, "job_not_cancelable")
    second, third = (post(client, sandbox_scenario="slow", wait="0").json()["job_id"] for _ in range(2))
    check_problem(client.delete(f"/v1/jobs/{second}"), 409, "job_active")
    assert client.post(f"/v1/jobs/{second}/cancel").status_code in (200, 202)
    assert until_over(client, second)["status"] == "canceled"
    assert client.delete(f"/v1/jobs/{third}", params={"force": "true"}).status_code == 204
    check_problem(client.get(f"/v1/jobs/{third}"), 404, "job_not_found")


# --- accounts --------------------------------------------------------------------------------------------------------


def test_a_key_that_the_operator_revokes_from_another_process_stops_at_once(small_server):
    made = json.loads(small_server.cli("keys", "create"))
    client = small_server.client(made["key"])
    assert [client.get("/v1/usage").status_code for _ in range(3)] == [200] * 3
    small_server.cli("keys", "revoke", made["account_id"], made["key_id"])
    check_problem(client.get("/v1/usage"), 401, "invalid_key")


def test_a_transcript_can_be_priced(scripted):
    query = {"models": "gpt-5-mini,claude-haiku-5-5", "agent_turns": 2}
    answer = scripted.get(f"/v1/jobs/{post(scripted).json()['job_id']}/estimate", params=query)
    assert (answer.status_code, len(answer.json()["ranking"])) == (200, 2)
    assert len(scripted.get("/v1/estimate/models").json()["data"]) >= 24


def test_no_log_line_holds_a_key_a_token_a_signature_or_a_prompt(small_server, scripted):
    record = post(scripted, prompt="a hint that nobody logs").json()
    httpx.get(record["formats"]["json"])
    scripted.post("/v1/estimate", json={"prompt": "a prompt that nobody logs"})
    token = scripted.post("/v1/tokens", json={"job_id": record["job_id"]}).json()["token"]
    httpx.get(f"{small_server.base}/v1/jobs/{record['job_id']}/events", params={"token": token})
    key = scripted.headers["authorization"].split()[1]
    log = "\n".join(small_server.log)
    assert not any(secret in log for secret in (key, token, "token=", "sig=", "that nobody logs"))


# --- webhooks --------------------------------------------------------------------------------------------------------


def test_a_webhook_is_signed_tried_again_with_the_same_id_and_sent_once_more_by_hand(small_server, hook):
    made = json.loads(small_server.cli("keys", "create", "--plan", "pro"))
    client = small_server.client(made["key"])
    new = client.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 3600}).json()["webhook_secret"]
    statuses = iter([500, 200, 200])
    hook.answer = lambda _got: (next(statuses), {}, b"")
    answer = post(client, webhook_url=hook.url + "/hook", word_timestamps="true", metadata='{"order":"7"}')
    assert answer.status_code == 202
    path = f"/v1/jobs/{answer.json()['job_id']}/deliveries"
    first, _ = hook.wait_for(2)
    for secret in (made["webhook_secret"], new):
        body = standardwebhooks.Webhook(secret).verify(first.body.decode(), first.headers)
    assert (body["type"], body["data"]["metadata"]) == ("job.completed", {"order": "7"})
    assert "words" not in body["data"]
    assert httpx.get(body["data"]["formats"]["json"]).status_code == 200
    delivery = until(
        lambda: next((one for one in client.get(path).json()["data"] if one["state"] == "delivered"), None)
    )
    assert [attempt["status_code"] for attempt in delivery["attempts"]] == [500, 200]
    assert client.post(f"{path}/{delivery['delivery_id']}/redeliver").status_code == 202
    assert {got.headers["webhook-id"] for got in hook.wait_for(3)} == {delivery["webhook_id"]}


# --- OpenAI's client -------------------------------------------------------------------------------------------------


def cue_text(subtitles: object) -> str:
    """Return the words of all cues, without their numbers and times."""
    lines = [line for line in str(subtitles).splitlines() if line and not line.isdecimal() and "-->" not in line]
    return " ".join(lines).removeprefix("WEBVTT ")


def test_openais_client_gets_the_same_text_in_every_format(newcomer):
    create = newcomer.audio.transcriptions.create
    text = create(file=CLIP, model="whisper-1").text
    assert len(text.split()) > 10
    assert str(create(file=CLIP, model="whisper-1", response_format="text")).strip() == text
    assert cue_text(create(file=CLIP, model="whisper-1", response_format="srt")) == text
    assert cue_text(create(file=CLIP, model="whisper-1", response_format="vtt")) == text
    narrow = {"max_columns": 20, "max_lines": 1}
    cues = str(create(file=CLIP, model="whisper-1", response_format="srt", extra_body=narrow)).strip().split("\n\n")
    assert all(len(cue.splitlines()) == 3 and len(cue.splitlines()[2]) <= 20 for cue in cues)
    bare = create(file=CLIP, model="whisper-1", response_format="verbose_json")
    assert (bare.words, bare.language) == (None, "english")
    full = create(file=CLIP, model="whisper-1", response_format="verbose_json", timestamp_granularities=["word"])
    assert full.words
    assert " ".join(word.word for word in full.words) == full.text == text
    assert full.words[0].start < full.words[-1].end <= full.duration
    events = list(create(file=CLIP, model="whisper-1", stream=True))
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert len(deltas) > 10
    assert "".join(deltas) == text
    assert [event.text for event in events if event.type == "transcript.text.done"] == [text]


def test_openais_client_gets_its_own_errors(server, newcomer):
    with (
        openai.OpenAI(api_key="sw_live_wrong", base_url=server.base + "/v1", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.audio.transcriptions.create(file=CLIP, model="whisper-1")
    with pytest.raises(openai.NotFoundError):
        newcomer.audio.transcriptions.create(file=CLIP, model="gpt-9")
    with openai.OpenAI(api_key=server.new_key("free"), base_url=server.base + "/v1", max_retries=0) as free:
        for _ in range(5):
            free.audio.transcriptions.create(file=SMALL, model="whisper-1")
        with pytest.raises(openai.RateLimitError):
            free.audio.transcriptions.create(file=SMALL, model="whisper-1")


def test_openais_client_reads_who_spoke_on_which_channel(newcomer, call):
    asked = {"file": ("call.wav", call), "model": "whisper-1", "response_format": "diarized_json"}
    separate = {"channels": "separate"}
    create = newcomer.audio.transcriptions.create
    transcript = create(**asked, extra_body=separate)  # type: ignore[call-overload]  # members are as in the other calls
    assert isinstance(transcript, TranscriptionDiarized)
    TranscriptionDiarized.model_validate(transcript.model_dump(), strict=True)
    assert [segment.speaker for segment in transcript.segments] == sorted(
        segment.speaker for segment in transcript.segments
    )
    assert {segment.speaker for segment in transcript.segments} == {"A", "B"}
    assert " ".join(segment.text for segment in transcript.segments) == transcript.text
    assert {segment.speaker for segment in create(**asked).segments} == {"A"}  # type: ignore[call-overload]
    events = list(create(**asked, stream=True, extra_body=separate))  # type: ignore[call-overload]
    segments = [event for event in events if isinstance(event, TranscriptionTextSegmentEvent)]
    assert {segment.speaker for segment in segments} == {"A", "B"}
    for segment in segments:
        deltas = [
            event.delta
            for event in events
            if isinstance(event, TranscriptionTextDeltaEvent) and event.segment_id == segment.id
        ]
        assert "".join(deltas).strip() == segment.text
    with pytest.raises(openai.UnprocessableEntityError, match="channels"):
        create(**{**asked, "extra_body": {"channels": "both"}})  # type: ignore[call-overload]
