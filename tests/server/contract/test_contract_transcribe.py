"""Black-box tests of transcribing, refusing and downloading, on a real server with a real model."""

import http.client
import io
import json
import re
import socket
import struct
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import av
import httpx
import jsonschema
import numpy as np
import pytest
import soundfile

from tests.server.contracts import problem
from tests.server.running import CLIP, SPEECH, Server, until_over


def post(client: httpx.Client, file: Path | bytes = CLIP, **fields: str) -> httpx.Response:
    content = file if isinstance(file, bytes) else file.read_bytes()
    return client.post("/v1/transcribe", files={"file": ("clip.flac", content)}, data=fields)


@pytest.fixture(scope="module")
def pro(server: Server) -> httpx.Client:
    return server.client(server.new_key("pro"))


@pytest.fixture(scope="module")
def complete_job(pro: httpx.Client) -> dict[str, object]:
    """Return a finished job with every output and its words."""
    answer = post(pro, output_formats="json,srt,vtt,txt", word_timestamps="true")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


# --- authentication ---------------------------------------------------------------------------------------


def test_without_a_key_the_answer_is_401_and_names_no_error(server: Server) -> None:
    answer = httpx.post(server.base + "/v1/transcribe")
    problem(answer, 401, "missing_credentials")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "error=" not in answer.headers["www-authenticate"]


@pytest.mark.parametrize("expect", [False, True])
def test_a_bad_key_is_refused_before_the_body_is_read(server: Server, *, expect: bool) -> None:
    address = urlsplit(server.base)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    connection.putrequest("POST", "/v1/transcribe")
    for name, value in {
        "Authorization": "Bearer nonsense",
        "Content-Type": "multipart/form-data; boundary=x",
        "Content-Length": str(20_000_000),
        **({"Expect": "100-continue"} if expect else {}),
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 401
    assert 'error="invalid_token"' in (answer.headers["www-authenticate"] or "")
    assert json.loads(answer.read())["code"] == "invalid_key"
    connection.close()


def test_a_key_is_free_and_its_secret_is_shown_once(server: Server) -> None:
    answer = httpx.post(server.base + "/v1/keys", json={})
    assert answer.status_code == 201
    made = answer.json()
    assert made["key"].startswith("sw_live_")
    assert made["plan"] == "free"
    assert made["webhook_secret"].startswith("whsec_")
    listed = server.client(made["key"]).get("/v1/keys").json()["data"]
    assert [row["key_id"] for row in listed] == [made["key_id"]]
    assert all("key" not in row for row in listed)


def test_a_revoked_key_stops_at_once(server: Server) -> None:
    key = server.new_key("free")
    client = server.client(key)
    [row] = client.get("/v1/keys").json()["data"]
    assert client.delete(f"/v1/keys/{row['key_id']}").status_code == 204
    problem(client.get("/v1/usage"), 401, "invalid_key")


def test_a_key_that_the_operator_revokes_from_another_process_stops_at_once(server: Server) -> None:
    made = json.loads(server.cli("keys", "create"))
    client = server.client(made["key"])
    assert [client.get("/v1/usage").status_code for _ in range(3)] == [200] * 3
    server.cli("keys", "revoke", made["account_id"], made["key_id"])
    problem(client.get("/v1/usage"), 401, "invalid_key")


def test_keys_work_in_their_own_environment_only(server: Server, pro: httpx.Client) -> None:
    live = pro.headers["authorization"]
    problem(httpx.get(server.base + "/sandbox/v1/usage", headers={"Authorization": live}), 403, "environment_mismatch")
    test_key = server.new_key("free", environment="sandbox")
    problem(server.client(test_key).get("/v1/usage"), 403, "environment_mismatch")
    assert server.client(test_key, sandbox=True).get("/v1/usage").status_code == 200


# --- the job ---------------------------------------------------------------------------------------------


def test_a_short_clip_is_answered_at_once_with_words_and_links(pro: httpx.Client) -> None:
    answer = post(pro, output_formats="json,srt,vtt", word_timestamps="true")
    record = answer.json()
    assert answer.status_code == 200
    assert record["status"] == "completed"
    assert record["job_id"].startswith("job_")
    assert record["schema"] == "service_v1"
    assert set(record["formats"]) == {"json", "srt", "vtt"}
    assert record["words"]
    assert answer.headers["content-location"] == f"/v1/jobs/{record['job_id']}"


def test_words_and_schema_are_shown_only_where_asked_for(pro: httpx.Client) -> None:
    record = post(pro, output_formats="srt").json()
    assert "words" not in record
    assert "schema" not in record


def test_json_is_the_default_and_txt_is_the_text(pro: httpx.Client) -> None:
    assert set(post(pro).json()["formats"]) == {"json"}
    record = post(pro, output_formats="txt").json()
    answer = httpx.get(record["formats"]["txt"])
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == record["text"] + "\n"


def test_respond_async_is_answered_at_once(pro: httpx.Client) -> None:
    answer = pro.post("/v1/transcribe", files={"file": CLIP.read_bytes()}, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    record = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{record['job_id']}"
    assert answer.headers["preference-applied"] == "respond-async"
    assert int(answer.headers["retry-after"]) > 0
    assert record["formats"] == {}
    assert until_over(pro, record["job_id"])["status"] == "completed"


def test_the_wait_is_a_whole_number_and_clamped(pro: httpx.Client) -> None:
    assert post(pro, wait="0").status_code == 202
    problem(post(pro, wait="abc"), 422, "invalid_parameter")
    clamped = post(pro, wait="100000")
    assert (clamped.status_code, clamped.headers["preference-applied"]) == (200, "wait=300")


def test_statuses_only_move_along_and_progress_never_falls(pro: httpx.Client) -> None:
    long = SPEECH / "espeak" / "en_long.flac"
    job_id = post(pro, long, wait="0").json()["job_id"]
    seen = [pro.get(f"/v1/jobs/{job_id}").json()]
    while seen[-1]["status"] in ("queued", "processing"):
        seen.append(pro.get(f"/v1/jobs/{job_id}").json())
        time.sleep(0.05)
    order = ["queued", "processing", "completed"]
    assert [order.index(record["status"]) for record in seen] == sorted(order.index(r["status"]) for r in seen)
    assert [record["progress"] for record in seen] == sorted(record["progress"] for record in seen)
    last = seen[-1]
    assert last["created_at"] <= last["started_at"] <= last["finished_at"]


# --- faults -------------------------------------------------------------------------------


def test_the_source_must_be_given_once_and_hold_bytes(pro: httpx.Client) -> None:
    problem(pro.post("/v1/transcribe", files={"other": b"x"}), 422, "missing_input")
    problem(post(pro, url="https://example.org/a.mp3"), 422, "ambiguous_input")
    problem(post(pro, b""), 422, "empty_file")


def test_wrong_members_are_named(pro: httpx.Client) -> None:
    body = problem(post(pro, output_formats="doc"), 422, "invalid_parameter")
    assert body["errors"][0]["param"] == "output_formats"  # type: ignore[index]  # any JSON
    problem(post(pro, word_timestamps="maybe"), 422, "invalid_parameter")
    body = problem(post(pro, max_columns="5"), 422, "invalid_parameter")
    assert body["errors"][0]["param"] == "max_columns"  # type: ignore[index]  # any JSON
    problem(post(pro, webhook_events="job.completed"), 422, "invalid_parameter")
    problem(post(pro, webhook_url="https://x.test/", webhook_events="job.started"), 422, "invalid_parameter")


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


def test_what_is_no_audio_is_refused_and_costs_nothing(server: Server) -> None:
    client = server.client(server.new_key("free"))
    problem(post(client, b"This is a text, not a recording.\n" * 50), 415, "unsupported_audio_format")
    problem(post(client, CLIP.read_bytes()[:60]), 422, "invalid_audio")
    problem(post(client, silent_video()), 422, "no_audio_stream")
    used = {row["name"]: row["used"] for row in client.get("/v1/usage").json()["usage"]}
    assert used["transcriptions"] == 0


def test_bodies_of_another_kind_or_broken_are_refused(pro: httpx.Client) -> None:
    answer = pro.post("/v1/transcribe", content=b"hello", headers={"Content-Type": "text/plain"})
    problem(answer, 415, "unsupported_media_type")
    assert "multipart/form-data" in answer.headers["accept"]
    no_boundary = pro.post("/v1/transcribe", content=b"hello", headers={"Content-Type": "multipart/form-data"})
    problem(no_boundary, 400, "invalid_multipart")
    broken = pro.post("/v1/transcribe", content=b"{", headers={"Content-Type": "application/json"})
    problem(broken, 400, "invalid_json")
    packed = pro.post(
        "/v1/transcribe", content=b"x", headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
    )
    problem(packed, 415, "unsupported_encoding")


def test_a_body_declared_over_the_cap_is_413(server: Server) -> None:
    key = server.new_key("free")
    address = urlsplit(server.base)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "multipart/form-data; boundary=x"}
    connection.putrequest("POST", "/v1/transcribe")
    for name, value in {**headers, "Content-Length": str(600 * 1024 * 1024)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["code"] == "payload_too_large"
    connection.close()


def test_a_chunked_body_is_cut_off_when_it_crosses_the_cap(small_server: Server) -> None:
    """The free plan of this server takes one mebibyte, so that the test need not send 600."""

    def endless() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        for _ in range(64):
            yield bytes(256 * 1024)

    client = small_server.client(small_server.new_key("free"))
    answer = client.post(
        "/v1/transcribe", content=endless(), headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    problem(answer, 413, "payload_too_large")
    assert not list((small_server.data_dir / "incoming").iterdir())


def silent_flac(seconds: int, claimed: int | None = None) -> bytes:
    """Return silence as FLAC. *claimed* seconds are in its header."""
    out = io.BytesIO()
    soundfile.write(out, np.zeros(8000 * seconds, np.int16), 8000, format="FLAC")
    data = bytearray(out.getvalue())
    if claimed is not None:  # STREAMINFO: the 36-bit number of samples ends at byte 26 of the file
        samples = claimed * 8000
        data[21] = (data[21] & 0xF0) | samples >> 32
        data[22:26] = struct.pack(">I", samples & 0xFFFFFFFF)
    return bytes(data)


def test_more_minutes_than_the_plan_takes_are_refused_whatever_the_header_says(server: Server) -> None:
    client = server.client(server.new_key("free"))
    body = problem(post(client, silent_flac(31 * 60)), 413, "audio_too_long")
    assert body["limit"] == 1800
    record = post(client, silent_flac(31 * 60, claimed=60)).json()
    assert record["status"] == "failed"
    assert record["error"]["code"] == "audio_too_long"


def test_a_playlist_or_a_session_description_is_no_audio_and_reaches_nobody(pro: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nhttp://127.0.0.1:{port}/a.ts\n".encode()
        problem(pro.post("/v1/transcribe", files={"file": ("x.m3u8", playlist)}), 415, "unsupported_audio_format")
        description = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nm=audio 9 RTP/AVP 0\r\n"
        problem(pro.post("/v1/transcribe", files={"file": ("x.sdp", description)}), 415, "unsupported_audio_format")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


# --- downloads -------------------------------------------------------------------------------------------


def test_a_signed_link_works_without_a_key_until_it_is_changed(complete_job: dict[str, object]) -> None:
    link = complete_job["formats"]["srt"]  # type: ignore[index]  # any JSON
    assert httpx.get(link).status_code == 200
    parts = urlsplit(link)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
    flipped = {**query, "sig": ("A" if query["sig"][0] != "A" else "B") + query["sig"][1:]}
    problem(httpx.get(bare, params=flipped), 403, "invalid_signature")
    problem(httpx.get(bare, params={**query, "exp": str(int(query["exp"]) + 1)}), 403, "invalid_signature")
    problem(httpx.get(bare.replace("/srt", "/vtt"), params=query), 403, "invalid_signature")


def test_a_link_expires(pro: httpx.Client, complete_job: dict[str, object]) -> None:
    link = pro.get(f"/v1/jobs/{complete_job['job_id']}", params={"url_ttl": 1}).json()["formats"]["srt"]
    time.sleep(2.1)
    problem(httpx.get(link), 403, "url_expired")


def test_downloads_know_head_ranges_and_entity_tags(complete_job: dict[str, object]) -> None:
    link = complete_job["formats"]["json"]  # type: ignore[index]  # any JSON
    whole, head = httpx.get(link), httpx.head(link)
    varying = {"date", "x-request-id"}
    assert {n: v for n, v in whole.headers.items() if n not in varying} == {
        n: v for n, v in head.headers.items() if n not in varying
    }
    part = httpx.get(link, headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, whole.content[:10])
    assert part.headers["content-range"] == f"bytes 0-9/{len(whole.content)}"
    beyond = httpx.get(link, headers={"Range": "bytes=99999999-"})
    problem(beyond, 416, "range_not_satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{len(whole.content)}"
    assert httpx.get(link, headers={"Range": "items=0-1"}).status_code == 200
    assert httpx.get(link, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304


def test_the_json_output_is_service_v1(server: Server, complete_job: dict[str, object]) -> None:
    document = httpx.get(complete_job["formats"]["json"]).json()  # type: ignore[index]  # any JSON
    jsonschema.validate(document, httpx.get(server.base + "/schemas/service_v1.json").json())
    starts = [word["start"] for word in document["words"]]
    assert starts == sorted(starts)
    assert all(0 <= word["start"] <= word["end"] <= document["duration"] for word in document["words"])


def test_subtitles_are_well_formed(complete_job: dict[str, object]) -> None:
    formats = complete_job["formats"]
    blocks = httpx.get(formats["srt"]).text.strip().split("\n\n")  # type: ignore[index]  # any JSON
    line = re.compile(r"(\d{2,}):(\d\d):(\d\d),(\d{3}) --> (\d{2,}):(\d\d):(\d\d),(\d{3})")
    for number, block in enumerate(blocks, 1):
        first, times, *_ = block.split("\n")
        found = line.fullmatch(times)
        assert first == str(number)
        assert found is not None
        assert found.groups()[:4] < found.groups()[4:]
    vtt = httpx.get(formats["vtt"]).text  # type: ignore[index]  # any JSON
    assert vtt.startswith("WEBVTT\n\n")
    assert not re.search(r"&(?!amp;|lt;|gt;)|<", vtt)


def widest_line(srt: str) -> int:
    return max(len(line) for line in srt.splitlines() if "-->" not in line)


def test_subtitles_have_the_shape_that_was_asked_for(pro: httpx.Client) -> None:
    usual, narrow = (
        httpx.get(post(pro, output_formats="srt", **shape).json()["formats"]["srt"]).text
        for shape in ({}, {"max_columns": "20", "max_lines": "1"})
    )
    assert widest_line(usual) > 20 >= widest_line(narrow)
    assert all(len(cue.splitlines()) == 3 for cue in narrow.strip().split("\n\n"))


def test_silence_completes_with_empty_outputs(pro: httpx.Client) -> None:
    record = post(pro, SPEECH / "other" / "silence.flac", output_formats="srt,vtt,txt,json").json()
    assert record["status"] == "completed"
    assert httpx.get(record["formats"]["srt"]).content == b""
    assert httpx.get(record["formats"]["txt"]).content == b""
    assert httpx.get(record["formats"]["vtt"]).content == b"WEBVTT\n\n"


def test_a_file_that_was_cut_off_gives_what_it_holds_and_says_so(pro: httpx.Client) -> None:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(32000))
    record = post(pro, out.getvalue()[: 44 + 16000]).json()
    assert record["status"] == "completed"
    assert {"code": "audio_truncated"} in record["warnings"]


def test_a_very_quiet_file_is_heard_and_its_level_told(pro: httpx.Client) -> None:
    samples, rate = soundfile.read(SPEECH / "espeak" / "en_05.flac", dtype="float32")
    out = io.BytesIO()
    soundfile.write(out, samples * 10 ** (-50 / 20), rate, format="wav", subtype="FLOAT")
    record = post(pro, out.getvalue()).json()
    assert record["text"]
    [warning] = [one for one in record["warnings"] if one["code"] == "quiet_input"]
    assert re.search(r"speech is at -\d\d dBFS", warning["message"])
