"""Tests of sockets.py: close codes and reasons for every problem."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http.problems import CODES, Problem
from server.http.sockets import MAX_REASON_BYTES, close_code, code_label, cut_reason


@pytest.mark.parametrize(
    ("code", "closed"),
    {
        "invalid_message": 4400,
        "invalid_last_event_id": 4400,
        "invalid_token": 4401,
        "insufficient_scope": 4403,
        "origin_not_allowed": 4403,
        "job_not_found": 4404,
        "ingest_idle": 4408,
        "ingest_busy": 4409,
        "ingest_finished": 4410,
        "audio_too_long": 4413,
        "payload_too_large": 4413,
        "unsupported_audio_format": 4415,
        "invalid_audio": 4415,
        "no_audio_stream": 4415,
        "audio_too_fast": 4429,
        "too_many_connections": 4429,
        "internal": 1011,
        "queue_full": 1013,
        "disk_full": 1013,
        "shutting_down": 1001,
    }.items(),
)
def test_a_problem_closes_a_socket_with_its_code(code, closed):
    assert close_code(Problem(code, "")) == closed


@pytest.mark.parametrize("code", CODES)
def test_every_problem_has_a_code_that_may_be_sent(code):
    closed = close_code(Problem(code, ""))
    assert closed in (1001, 1011, 1013) or 4000 <= closed < 5000


@given(st.text())
def test_a_reason_fits_into_a_close_frame(text):
    assert len(cut_reason(text).encode()) <= MAX_REASON_BYTES
    assert text.startswith(cut_reason(text))


def test_the_codes_with_which_peers_close_make_few_labels():
    assert len({code_label(code) for code in range(1000, 5000)}) < 100
    assert {code_label(close_code(Problem(code, ""))) for code in CODES}.isdisjoint({"other"})
    assert [code_label(code) for code in (1000, 1006, 401, None, 3000, 4999)] == [
        "1000", "1006", "401", "None", "other", "other",
    ]  # fmt: skip
