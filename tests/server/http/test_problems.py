"""Tests of problems.py: the table of errors, challenges, and every exception of the project as a Problem."""

import pytest
from msgspec import to_builtins

from pipeline import errors as pipeline_errors
from pipeline.errors import AudioTooLong, PipelineError
from server.accounts.keys import MalformedKey
from server.clock import now_ms, parse_iso
from server.egress.targets import TargetNotAllowed
from server.http.headers import RangeNotSatisfiable
from server.http.problems import CODES, Problem, problem_of
from server.model import errors as storage
from server.model.errors import FieldError, invalid
from server.model.jobs import JOB_CODES


def test_every_code_has_a_known_status_a_title_and_a_challenge_where_a_key_is_wanted():
    assert {status for status, _ in CODES.values()} <= {
        400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 414, 415, 416, 422, 426, 429, 431, 500, 503, 504,
    }  # fmt: skip
    for code, (status, title) in CODES.items():
        assert title
        challenge = Problem(code, "x").headers.get("WWW-Authenticate", "")
        assert challenge.startswith('Bearer realm="api"') is (status == 401 or code == "insufficient_scope")


def test_a_problem_has_the_members_of_rfc_9457_and_ours():
    problem = invalid([FieldError("a/b~c", "unknown_value", "no"), FieldError("wait", "invalid_type", "never")])
    answer = problem_of(problem)
    assert to_builtins(answer.body(instance="/v1/transcribe", request_id="req_1")) == {
        "type": "https://scribewire.dev/problems/invalid_parameter",
        "title": "Invalid parameter",
        "status": 422,
        "detail": "a/b~c: no; wait: never",
        "instance": "/v1/transcribe",
        "code": "invalid_parameter",
        "request_id": "req_1",
        "errors": [
            {"param": "a/b~c", "pointer": "/a~1b~0c", "code": "unknown_value", "message": "no"},
            {"param": "wait", "pointer": "/wait", "code": "invalid_type", "message": "never"},
        ],
    }


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (MalformedKey("x"), "invalid_key", 401),
        (RangeNotSatisfiable(3), "range_not_satisfiable", 416),
        (TargetNotAllowed("x"), "url_not_allowed", 422),
        (pipeline_errors.UndecodableAudio("x"), "unsupported_audio_format", 415),
        (pipeline_errors.InvalidAudio("x"), "invalid_audio", 422),
        (pipeline_errors.NoAudioStream("x"), "no_audio_stream", 422),
        (pipeline_errors.EmptyAudio("x"), "empty_file", 422),
        (storage.QueueFull("x"), "queue_full", 503),
        (storage.DiskFull("x"), "disk_full", 503),
        (storage.IdempotencyReused("x"), "idempotency_key_reused", 422),
        (storage.IdempotencyInProgress("x"), "idempotency_in_progress", 409),
        (storage.ConcurrencyLimited("jobs", limit=5, used=5), "concurrency_limited", 429),
    ],
)
def test_each_error_of_the_project_has_its_code(error, code, status):
    problem = problem_of(error)
    assert (problem.code, problem.status) == (code, status)
    if status in (429, 503) or code == "idempotency_in_progress":
        assert int(problem.headers["Retry-After"]) >= 1


def test_a_used_up_quota_says_how_much_of_what_and_until_when():
    resets_at = now_ms() + 90_500
    problem = problem_of(storage.QuotaExceeded("transcriptions", limit=5, used=5, resets_at=resets_at))
    assert problem.headers["x-should-retry"] == "false"
    assert 90 <= int(problem.headers["Retry-After"]) <= 91
    assert problem.members == {
        "limit": 5,
        "used": 5,
        "window": "transcriptions",
        "resets_at": problem.members["resets_at"],
        "violated_policies": ["transcriptions"],
    }
    assert parse_iso(str(problem.members["resets_at"])) == resets_at


def test_audio_that_is_too_long_says_both_lengths():
    problem = problem_of(AudioTooLong("x", limit_s=1800, actual_s=1860.5))
    assert (problem.status, problem.members) == (413, {"limit": 1800, "actual": 1860.5})


@pytest.mark.parametrize("error", [ValueError("x"), OSError("/secret"), PipelineError("x"), storage.StorageError("x")])
def test_what_nobody_foresaw_has_no_problem_of_its_own(error):
    assert problem_of(error) is None


def test_every_job_error_code_of_the_pipeline_is_documented():
    raised = {kind.code for kind in vars(pipeline_errors).values() if isinstance(kind, type)}
    at_the_door = {"audio_too_fast", "invalid_parameter", "queue_full"}  # jobs end with none of these
    assert raised - at_the_door <= set(JOB_CODES)
