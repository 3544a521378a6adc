"""Files and addresses: what somebody else has transcribed holds up nobody, and nobody gets it for nothing."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx

from server.jobs.acceptance import ARRIVING_WAIT_S
from tests.abuse.hosts import dripping_host, never_ready
from tests.abuse.recordings import without_a_frame
from tests.server.peers import RawClient
from tests.server.serving import wav

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
