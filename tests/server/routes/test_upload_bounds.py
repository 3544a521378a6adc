"""What a request to transcribe may cost the server: judged before its body, bounded in number, size and space."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from server.jobs import acceptance
from server.model.bounds import MAX_METADATA_KEYS
from tests.server.peers import RawClient
from tests.server.serving import AppServer, serve, wav
from tests.waiting import until

AUDIO = {"file": ("talk.wav", wav())}
HALF = len(wav()) // 2
ASYNC = {"Prefer": "respond-async"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    with serve(tmp_path_factory.mktemp("served"), WORKERS="1") as it:
        yield it


@contextmanager
def start_upload(
    server: AppServer, client: httpx.Client, *, sent: int, **headers: str
) -> Iterator[tuple[RawClient, bytes]]:
    """A request of which the first *sent* bytes of the body have gone; and the rest."""
    request = client.build_request("POST", "/v1/transcribe", files=AUDIO, headers=headers)
    body = request.read()
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with RawClient(server.base) as raw:
        raw.send(f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n")
        raw.send(body[:sent])
        yield raw, body[sent:]


def is_arriving(server: AppServer) -> bool:
    """Whether a file is on its way."""
    return any(server.storage.blobs.scratch.iterdir())


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"transcriptions_per_month": 0}, b"quota_exceeded"),
        ({"audio_hours_per_month": 0}, b"quota_exceeded"),
        ({"active_jobs": 0}, b"concurrency_limited"),
    ],
)
def test_an_account_without_an_allowance_is_refused_before_its_body(server, limits, code):
    with server.new_client(**limits) as client, start_upload(server, client, sent=0) as (raw, _):
        status, _, body = raw.answer()
    assert status == 429
    assert b'"code":"%s"' % code in body


def test_a_repeated_request_is_answered_although_the_allowance_is_used_up(server):
    with server.new_client(transcriptions_per_month=1) as client:
        first, again = [
            client.post("/v1/transcribe", files=AUDIO, headers={"Idempotency-Key": "once"}) for _ in range(2)
        ]
        other = client.post("/v1/transcribe", files=AUDIO, headers={"Idempotency-Key": "twice"})
    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 429)
    assert again.json()["job_id"] == first.json()["job_id"]


def test_an_account_sends_as_many_files_at_once_as_it_may_have_jobs(server, monkeypatch):
    monkeypatch.setattr(acceptance, "ARRIVING_WAIT_S", 0.2)
    with server.new_client(active_jobs=1) as client, server.new_client() as stranger:
        with start_upload(server, client, sent=HALF) as (raw, rest):
            until(lambda: is_arriving(server))
            refused = client.post("/v1/transcribe", files=AUDIO).json()
            assert (refused["code"], refused["window"]) == ("concurrency_limited", "uploads")
            assert (refused["limit"], refused["used"]) == (1, 1)
            assert stranger.post("/v1/transcribe", files=AUDIO).status_code == 200
            raw.send(rest)
            assert raw.answer()[0] == 200
        assert client.post("/v1/transcribe", files=AUDIO).status_code == 200


def test_the_next_file_waits_for_the_one_that_arrives_and_is_then_judged(server):
    limits = {"active_jobs": 1, "transcriptions_per_month": 1}
    with server.new_client(**limits) as client, start_upload(server, client, sent=HALF) as (raw, rest):
        until(lambda: is_arriving(server))
        with start_upload(server, client, sent=0) as (second, _):
            raw.send(rest)
            assert raw.answer()[0] == 200
            status, _, body = second.answer()
            assert (status, b'"code":"quota_exceeded"' in body) == (429, True)


def test_a_client_that_leaves_makes_room_for_its_next_file(server, monkeypatch):
    monkeypatch.setattr(acceptance, "ARRIVING_WAIT_S", 60)
    with server.new_client(active_jobs=1) as client:
        with start_upload(server, client, sent=HALF):
            until(lambda: is_arriving(server))
        assert client.post("/v1/transcribe", files=AUDIO).status_code == 200


def test_the_last_of_the_disk_is_kept_from_uploads(tmp_path):
    with serve(tmp_path, DISK_RESERVE_MIB=str(2**30)) as server, server.new_client() as client:
        answer = client.post("/v1/transcribe", files=AUDIO)
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "disk_full", "60")
        assert client.get("/v1/jobs").json()["data"] == []  # what needs no room goes on


def test_files_are_smaller_in_the_sandbox(server):
    with server.new_client(sandbox=True) as client:
        request = client.build_request(
            "POST", "/v1/transcribe", headers={"Content-Length": str(66 * 1024 * 1024), "Content-Type": "audio/wav"}
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        with RawClient(server.base) as raw:
            raw.send(f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n")
            status, _, body = raw.answer()
    assert (status, b'"limit":%d' % (64 * 1024 * 1024) in body) == (413, True)


# --- members that mean nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/transcribe", "/v1/live"])
def test_unknown_members_are_warned_of_eight_times_and_refused_beyond_32(server, path):
    def body(members: int) -> dict[str, object]:
        address = {"url": "http://127.0.0.1:9/talk.wav"} if path == "/v1/transcribe" else {}
        return {**address, **{f"unknown_{number}": "x" * 100 for number in range(members - len(address))}}

    with server.new_client() as client:
        made = client.post(path, json=body(32), headers=ASYNC)
        assert made.is_success
        assert [warning["param"] for warning in made.json()["warnings"]] == [f"unknown_{n}" for n in range(8)]
        refused = client.post(path, json=body(33), headers=ASYNC)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_json")
        newest, *_ = client.get("/v1/jobs").json()["data"]
        assert len(newest["warnings"]) == 8


@pytest.mark.parametrize(("filters", "status"), [(MAX_METADATA_KEYS, 200), (MAX_METADATA_KEYS + 1, 422), (30, 422)])
def test_a_list_is_filtered_by_as_many_keys_as_a_job_can_have(server, filters, status):
    with server.new_client() as client:
        found = client.get("/v1/jobs", params={f"metadata[{number}]": "x" for number in range(filters)})
    assert found.status_code == status
    if status == 422:
        assert (found.json()["code"], found.json()["errors"][0]["param"]) == ("invalid_parameter", "metadata")
