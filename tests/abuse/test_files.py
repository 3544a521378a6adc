"""Files and addresses: what somebody else has transcribed holds up nobody, and nobody gets it for nothing."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx

from server.jobs.acceptance import ARRIVING_WAIT_S
from tests.abuse.arena import Arena
from tests.abuse.hosts import dripping_host, never_ready
from tests.abuse.recordings import long_and_unstated, of_negative_length, without_a_frame
from tests.server.peers import RawClient
from tests.server.serving import wav
from tests.waiting import until

AT_ONCE = {"Prefer": "respond-async"}


@contextmanager
def jobs_of(client: httpx.Client) -> Iterator[None]:
    """Delete what is left of the client's jobs after the block."""
    try:
        yield
    finally:
        for job in client.get("/v1/jobs", params={"limit": 100}).json()["data"]:
            client.delete(f"/v1/jobs/{job['job_id']}", params={"force": True})


def post_audio(client: httpx.Client, audio: bytes, **members: object) -> httpx.Response:
    return client.post("/v1/transcribe", files={"file": audio}, data=members, headers=AT_ONCE)


def test_slow_downloads_hold_up_nobody_else(ring):
    client = ring.stranger().new_client()
    with dripping_host() as url, jobs_of(client):
        for number in range(5):
            client.post("/v1/transcribe", json={"url": f"{url}/{number}.wav"}, headers=AT_ONCE).raise_for_status()
        ring.innocent.is_unharmed()


def test_a_source_that_only_sends_interim_answers_holds_up_nobody_else(ring):
    client = ring.stranger().new_client()
    with never_ready() as url, jobs_of(client):
        job = client.post("/v1/transcribe", json={"url": f"{url}/a.wav"}, headers=AT_ONCE).json()["job_id"]
        ring.innocent.is_unharmed()
        record = client.get(f"/v1/jobs/{job}", params={"wait": 20}).json()
        assert record["error"]["code"] == "source_unreachable"


def test_slow_rehearsals_in_the_sandbox_hold_up_nobody_else(ring):
    client = ring.stranger().new_client(sandbox=True)
    with jobs_of(client):
        for _ in range(12):
            post_audio(client, wav(), sandbox_scenario="slow").raise_for_status()
        ring.innocent.is_unharmed()


def test_files_that_never_decode_hold_up_nobody_else(ring):
    audio = without_a_frame(100_000)
    clients = [ring.stranger().new_client() for _ in range(2)]
    answers: list[int] = []
    sending = [
        threading.Thread(target=lambda client: answers.append(post_audio(client, audio).status_code), args=(client,))
        for client in clients
        for _ in range(8)
    ]
    for one in sending:
        one.start()
    try:
        ring.innocent.is_unharmed()
    finally:
        for one in sending:
            one.join()
    assert set(answers) <= {422, 429}


def test_a_body_that_the_allowance_cannot_take_is_refused_before_it_is_sent(ring):
    stranger = ring.stranger()
    key = stranger.key()
    client = stranger.client(key)
    for _ in range(5):
        until(lambda: post_audio(client, wav()).status_code == 202)
    with RawClient(ring.server.base) as raw:
        raw.send(head_of_upload(key, 400_000_000))
        assert raw.answer()[0] == 429


def test_uploads_that_stand_still_are_few(ring):
    key = ring.stranger().key()
    with ExitStack() as connections, ThreadPoolExecutor(20) as threads:
        stalled = [
            connections.enter_context(RawClient(ring.server.base, timeout_s=ARRIVING_WAIT_S + 3)) for _ in range(20)
        ]
        for upload in stalled:
            upload.send(head_of_upload(key, 400_000_000))
        refusals = threads.map(is_refused, stalled)
        ring.innocent.is_unharmed()
        assert sum(refusals) >= 10


def test_members_that_nobody_knows_are_not_kept(ring):
    client = ring.stranger().new_client(sandbox=True)
    with jobs_of(client):
        members = {"url": f"{ring.innocent.hook.url}/none.wav", **{f"x{number}": 1 for number in range(60_000)}}
        answer = client.post("/v1/transcribe", json=members, headers=AT_ONCE)
        assert answer.status_code in (202, 400, 422)
        assert len(answer.content) < 10_000
        assert len(client.get("/v1/jobs").content) < 10_000


def test_a_file_of_negative_length_gives_nothing_back(ring):
    client = ring.stranger().client(ring.server.new_key("pro"))
    with jobs_of(client):
        assert post_audio(client, wav(60)).status_code == 202
        before = usage_of(client, "audio_seconds")
        assert post_audio(client, of_negative_length(-3_600_000.0)).status_code in (202, 422)
        assert usage_of(client, "audio_seconds") >= before


def test_words_that_were_told_are_counted_even_if_the_job_is_deleted(ring):
    client = ring.stranger().new_client()
    job = post_audio(client, long_and_unstated(1500), word_timestamps="true").json()["job_id"]
    with client.stream("GET", f"/v1/jobs/{job}/events") as events:
        for line in events.iter_lines():
            if line == "event: word":
                break
        client.delete(f"/v1/jobs/{job}", params={"force": True})
    assert usage_of(client, "transcriptions") == 1


def test_a_list_with_a_thousand_filters_is_refused(ring):
    client = ring.stranger().new_client()
    answer = client.get("/v1/jobs", params={f"metadata[{number}]": "x" for number in range(1100)})
    assert 400 <= answer.status_code < 500


def test_a_job_that_is_deleted_while_it_works_leaves_nothing_behind(ring):
    client = ring.stranger().new_client(sandbox=True)
    before = blobs(ring)
    for number in range(60):
        job = post_audio(client, wav(), output_formats="srt,vtt,txt,json").json()["job_id"]
        time.sleep(number % 30 / 1000)
        client.delete(f"/v1/jobs/{job}", params={"force": True}).raise_for_status()
    until(lambda: blobs(ring) <= before, max_s=10)


def blobs(ring: Arena) -> set[str]:
    """The blobs of all jobs."""
    return {path.name for path in (ring.server.data_dir / "blobs").iterdir()}


def usage_of(client: httpx.Client, name: str) -> float:
    """What the account has used of an allowance."""
    return float(next(row["used"] for row in client.get("/v1/usage").json()["usage"] if row["name"] == name))


def head_of_upload(key: str, size: int) -> str:
    """The beginning of an upload whose body does not follow."""
    return (
        f"POST /v1/transcribe HTTP/1.1\r\nHost: scribewire\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {size}\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
    )


def is_refused(upload: RawClient) -> bool:
    """Whether the server answered before the body came."""
    try:
        return upload.answer()[0] in (429, 503)
    except TimeoutError:
        return False
