"""/v1/jobs over HTTP: looking, listing, canceling, deleting, downloading."""

import threading
from collections.abc import AsyncGenerator
from urllib.parse import parse_qsl, urlsplit

import pytest

from pipeline.words import Chunk
from tests.server.serving import chunk
from tests.server.submitting import ASYNC, AUDIO, GATES, code, serve_gates, submit, wait_for_record
from tests.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve_gates(tmp_path_factory.mktemp("served")) as it:
        yield it


@pytest.fixture
def gated_job(server, client):
    """Make a running job that continues when its gate is opened; return its record and the gate."""
    record = submit(client, prompt="probe", headers=ASYNC)
    account = server.wait(server.storage.jobs.get(record["job_id"])).account
    opened = GATES[account] = threading.Event()
    record = submit(client, prompt="gate", headers=ASYNC)
    wait_for_record(client, record["job_id"], lambda job: job["progress"] > 0)
    yield record, opened
    opened.set()


# --- looking ---------------------------------------------------------------------------------------------------------


def test_a_job_is_its_owners_alone(server, client):
    job_id = submit(client)["job_id"]
    with server.new_client() as stranger:
        for method, path in (
            ("GET", ""), ("GET", "/outputs/json"), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", ""),
            ("GET", "/deliveries"),
        ):  # fmt: skip
            response = stranger.request(method, f"/v1/jobs/{job_id}{path}")
            assert (response.status_code, code(response)) == (404, "job_not_found")
    assert client.get(f"/v1/jobs/{job_id}").status_code == 200


def test_the_sandbox_does_not_see_production_jobs(server, client):
    job_id = submit(client)["job_id"]
    test = client.post("/v1/keys", json={"environment": "sandbox"}).json()["key"]
    with server.client(test, sandbox=True) as sandbox:
        assert sandbox.get(f"/v1/jobs/{job_id}").status_code == 404
        assert sandbox.get("/v1/jobs").json()["data"] == []


def test_looking_may_wait_for_the_end(client, gated_job):
    record, opened = gated_job
    threading.Timer(0.2, opened.set).start()
    waited = client.get(f"/v1/jobs/{record['job_id']}", params={"wait": 5})
    assert (waited.json()["status"], waited.json()["text"]) == ("completed", "so my")
    assert "retry-after" not in waited.headers


def test_an_unfinished_job_says_when_to_look_again(client, gated_job):
    record, _ = gated_job
    response = client.get(f"/v1/jobs/{record['job_id']}")
    assert (response.headers["retry-after"], response.json()["status"]) == ("2", "processing")
    assert (response.json()["stage"], response.json()["progress"]) == ("transcribing", 0.999)


def test_what_has_not_changed_is_304(client):
    job_id = submit(client)["job_id"]
    first = client.get(f"/v1/jobs/{job_id}")
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    for given_tags in (tag, f'"x", {tag}', "*", tag.removeprefix("W/")):
        again = client.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": given_tags})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_changed_job_has_another_tag(client, gated_job):
    record, opened = gated_job
    before = client.get(f"/v1/jobs/{record['job_id']}").headers["etag"]
    opened.set()
    after = client.get(f"/v1/jobs/{record['job_id']}", params={"wait": 5}, headers={"If-None-Match": before})
    assert (after.status_code, after.json()["status"]) == (200, "completed")


def test_head_is_get_without_the_body(client):
    job_id = submit(client)["job_id"]
    got, head = client.get(f"/v1/jobs/{job_id}"), client.head(f"/v1/jobs/{job_id}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == got.headers["etag"]
    assert head.headers["content-type"] == got.headers["content-type"]


def test_links_live_as_long_as_was_asked(client):
    job_id = submit(client)["job_id"]
    ends = []
    for ttl in (60, 604_800):
        link = client.get(f"/v1/jobs/{job_id}", params={"url_ttl": ttl}).json()["formats"]["json"]
        ends.append(int(dict(parse_qsl(urlsplit(link).query))["exp"]))
    assert 604_700 < ends[1] - ends[0] < 604_800
    for bad in ("0", "604801", "x"):
        assert client.get(f"/v1/jobs/{job_id}", params={"url_ttl": bad}).status_code == 422


# --- listing ---------------------------------------------------------------------------------------------------------


def test_the_next_page_is_linked_too(client):
    made = [submit(client, metadata='{"a": "b&c"}')["job_id"] for _ in range(3)]
    response = client.get("/v1/jobs", params={"limit": 2, "order": "asc", "metadata[a]": "b&c"})
    link, _, relation = response.headers["link"].partition("; ")
    assert relation == 'rel="next"'
    rest = client.get(link.strip("<>"))
    assert [job["job_id"] for job in response.json()["data"] + rest.json()["data"]] == made
    assert "link" not in rest.headers


def test_lists_are_filtered(client):
    good, bad = submit(client), submit(client, prompt="fail")

    def ids(**query: str) -> list[str]:
        return [job["job_id"] for job in client.get("/v1/jobs", params=query).json()["data"]]

    assert ids(status="failed") == [bad["job_id"]]
    assert ids(status="completed, FAILED") == [bad["job_id"], good["job_id"]]
    assert ids(q="FELLOW") == [good["job_id"]]
    assert ids(language="en") == ids(language="en-US") == ids(language="English") == [good["job_id"]]
    refused = client.get("/v1/jobs", params={"language": "germn"})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "language")
    assert "the nearest is german (de)" in refused.text
    assert ids(source="url") == []
    assert ids(created_after=good["created_at"]) == [bad["job_id"]]
    assert ids(created_before=bad["created_at"]) == [good["job_id"]]
    assert ids(order="asc") == [good["job_id"], bad["job_id"]]


@pytest.mark.parametrize(
    ("query", "status", "fault"),
    [
        ({"cursor": "nonsense"}, 400, "invalid_cursor"),
        ({"status": "done"}, 422, "invalid_parameter"),
        ({"source": "radio"}, 422, "invalid_parameter"),
        ({"source": "url,upload"}, 422, "invalid_parameter"),
        ({"order": "up"}, 422, "invalid_parameter"),
        ({"limit": "0"}, 422, "invalid_parameter"),
        ({"limit": "101"}, 422, "invalid_parameter"),
        ({"created_after": "yesterday"}, 422, "invalid_parameter"),
    ],
)
def test_a_filter_that_cannot_be_understood_is_refused(client, query, status, fault):
    response = client.get("/v1/jobs", params=query)
    assert (response.status_code, code(response)) == (status, fault)


def test_a_cursor_is_its_owners_alone(server, client):
    submit(client)
    submit(client)
    cursor = client.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]
    with server.new_client() as stranger:
        assert code(stranger.get("/v1/jobs", params={"cursor": cursor})) == "invalid_cursor"


# --- cancelling and deleting -----------------------------------------------------------------------------------------


def test_a_job_in_work_is_canceled_soon_and_stays_canceled(client, gated_job):
    record, _ = gated_job
    asked = client.post(f"/v1/jobs/{record['job_id']}/cancel")
    assert asked.status_code == 202
    assert asked.json()["cancel_requested_at"] is not None
    ended = client.get(f"/v1/jobs/{record['job_id']}", params={"wait": 5}).json()
    assert (ended["status"], ended["error"], ended["formats"]) == ("canceled", None, {})
    assert client.post(f"/v1/jobs/{record['job_id']}/cancel").status_code == 200


def test_deleting_leaves_nothing(server, client):
    record = submit(client)
    assert client.delete(f"/v1/jobs/{record['job_id']}").status_code == 204
    for path in ("", "/outputs/json", "/events"):
        assert client.get(f"/v1/jobs/{record['job_id']}{path}").status_code == 404
    with server.client() as anybody:
        assert anybody.get(record["formats"]["json"]).status_code == 404
    assert client.delete(f"/v1/jobs/{record['job_id']}").status_code == 404
    assert record["job_id"] not in dict(server.wait(server.storage.blobs.prefixes()))


# --- downloads -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished_job(server):
    """Return a finished job with every output: its owner's client and its record."""
    with server.new_client() as owner:
        yield owner, submit(owner, output_formats="json,srt,vtt,txt", word_timestamps="true")


@pytest.mark.parametrize(
    ("name", "kind", "begins"),
    [
        ("json", "application/json", b'{"schema":"service_v1"'),
        ("srt", "application/x-subrip; charset=utf-8", b"1\n00:00:00,000 --> "),
        ("vtt", "text/vtt; charset=utf-8", b"WEBVTT\n\n"),
        ("txt", "text/plain; charset=utf-8", b"so my fellow\n"),
    ],
)
def test_an_output_is_a_file_to_keep(server, finished_job, name, kind, begins):
    owner, record = finished_job
    response = owner.get(f"/v1/jobs/{record['job_id']}/outputs/{name}")
    assert (response.status_code, response.headers["content-type"]) == (200, kind)
    assert response.content.startswith(begins)
    assert response.headers["content-disposition"] == f'attachment; filename="talk.{name}"'
    assert response.headers["content-length"] == str(len(response.content))
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "private, max-age=0"
    with server.client() as anybody:
        assert anybody.get(record["formats"][name]).content == response.content


def test_head_of_a_download_has_the_headers_of_get(finished_job):
    owner, record = finished_job
    path = f"/v1/jobs/{record['job_id']}/outputs/srt"
    got, head = owner.get(path), owner.head(path, headers={"Range": "bytes=0-1"})
    varying = {"date", "x-request-id"}
    assert {n: v for n, v in head.headers.items() if n not in varying} == {
        n: v for n, v in got.headers.items() if n not in varying
    }
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [("bytes=0-9", 206, slice(0, 10)), ("bytes=-4", 206, slice(-4, None)), ("nonsense", 200, slice(None))],
)
def test_a_part_of_a_download(finished_job, asked, status, part):
    owner, record = finished_job
    path = f"/v1/jobs/{record['job_id']}/outputs/srt"
    whole = owner.get(path).content
    response = owner.get(path, headers={"Range": asked})
    assert (response.status_code, response.content) == (status, whole[part])
    if status == 206:
        first = whole.index(whole[part])
        assert response.headers["content-range"] == f"bytes {first}-{first + len(whole[part]) - 1}/{len(whole)}"


def test_a_range_behind_the_end_is_416_with_the_size(finished_job):
    owner, record = finished_job
    path = f"/v1/jobs/{record['job_id']}/outputs/srt"
    size = len(owner.get(path).content)
    response = owner.get(path, headers={"Range": f"bytes={size}-"})
    assert (response.status_code, code(response)) == (416, "range_not_satisfiable")
    assert response.headers["content-range"] == f"bytes */{size}"


def test_a_download_the_client_has_is_304_and_a_part_of_another_is_the_whole(finished_job):
    owner, record = finished_job
    path = f"/v1/jobs/{record['job_id']}/outputs/srt"
    tag = owner.get(path).headers["etag"]
    assert owner.get(path, headers={"If-None-Match": tag}).status_code == 304
    assert owner.get(path, headers={"Range": "bytes=0-1", "If-Range": tag}).status_code == 206
    assert owner.get(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'}).status_code == 200


def test_a_changed_link_opens_nothing(server, finished_job):
    _, record = finished_job
    link = record["formats"]["srt"]
    query = dict(parse_qsl(urlsplit(link).query))
    bare = link.split("?")[0]
    flipped = query["sig"][:-2] + ("AA" if query["sig"][-2:] != "AA" else "BB")
    with server.client() as anybody:
        for change in ({"sig": flipped}, {"exp": str(int(query["exp"]) + 1)}, {"kid": "9"}, {"sig": ""}):
            response = anybody.get(bare, params={**query, **change})
            assert (response.status_code, code(response)) == (403, "invalid_signature")
        assert anybody.get(bare.replace("/srt", "/vtt"), params=query).status_code == 403
        assert anybody.get(bare).status_code == 401


def test_what_was_not_asked_for_or_is_not_ready_cannot_be_had(client, gated_job):
    record, _ = gated_job
    assert code(client.get(f"/v1/jobs/{record['job_id']}/outputs/srt")) == "output_not_found"
    assert code(client.get(f"/v1/jobs/{record['job_id']}/outputs/exe")) == "output_not_found"
    assert code(client.get(f"/v1/jobs/{record['job_id']}/outputs/json")) == "job_not_completed"


def test_an_empty_output_is_an_empty_file(server, client):
    async def silence(*_: object) -> AsyncGenerator[Chunk]:
        yield chunk(0)

    server.batch.scripts["silence"] = silence
    record = submit(client, output_formats="srt,vtt", prompt="silence")
    srt = client.get(f"/v1/jobs/{record['job_id']}/outputs/srt", headers={"Range": "bytes=0-5"})
    assert (srt.status_code, srt.content, srt.headers["content-length"]) == (200, b"", "0")
    assert client.get(f"/v1/jobs/{record['job_id']}/outputs/vtt").content == b"WEBVTT\n\n"


# --- the audio -------------------------------------------------------------------------------------------------------


def test_the_audio_is_kept_and_played_where_the_request_says_so(server, client):
    record = submit(client, record="true")
    link = urlsplit(record["audio_url"])
    sound = AUDIO["file"][1]
    until(lambda: server.wait(server.storage.jobs.list_with_audio(limit=10)) == [])
    with server.new_client() as stranger:
        assert code(stranger.get(f"/v1/jobs/{record['job_id']}/audio")) == "job_not_found"
        linked = stranger.get(f"{link.path}?{link.query}")
    for answer in (client.get(f"/v1/jobs/{record['job_id']}/audio"), linked):
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, sound, "audio/wav")
    part = client.get(f"/v1/jobs/{record['job_id']}/audio", headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, sound[4:8])
    assert part.headers["content-range"] == f"bytes 4-7/{len(sound)}"
    assert client.delete(f"/v1/jobs/{record['job_id']}").status_code == 204
    assert client.get(f"/v1/jobs/{record['job_id']}/audio").status_code == 404


def test_audio_that_nobody_asked_to_keep_is_gone(client):
    record = submit(client)
    assert "audio_url" not in record
    answer = client.get(f"/v1/jobs/{record['job_id']}/audio")
    assert (answer.status_code, code(answer)) == (404, "output_not_found")
    assert "record=true" in answer.json()["detail"]
