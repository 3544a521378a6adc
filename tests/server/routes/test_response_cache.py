"""Tests of response_cache.py: the answer about an ended job is given again while it is true, and kept no longer."""

from dataclasses import replace

import pytest

from server.model.jobs import Job, State
from server.model.orders import NOTHING, LiveOptions, Order
from server.routes import response_cache as module
from server.routes.response_cache import MAX_BYTES_KEPT, CachedResponse, JobResponseCache
from tests.server.records.test_links import JOB
from tests.server.storing import NOON

HEADERS = {"ETag": '"tag"'}
ANSWER = CachedResponse(b"{}", headers=HEADERS)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "now_ms", lambda: NOON)


def read_again(job: Job, answer: CachedResponse = ANSWER, *, until_ms: int = NOON + 1) -> CachedResponse | None:
    answers = JobResponseCache()
    answers.keep(job, 60, answer, until_ms=until_ms)
    return answers.of(job, 60)


def test_an_answer_is_given_for_the_same_object_and_the_same_links_until_its_time_is_over():
    answers, job, changed = JobResponseCache(), replace(JOB), replace(JOB, text="so my")
    answers.keep(job, 60, ANSWER, until_ms=NOON + 1)
    assert answers.of(job, 60) is ANSWER
    assert answers.of(job, 61) is None
    assert answers.of(changed, 60) is None
    assert read_again(JOB, until_ms=NOON) is None


def test_an_answer_goes_with_its_job():
    answers, job = JobResponseCache(), replace(JOB)
    answers.keep(job, 60, ANSWER, until_ms=NOON + 1)
    del job
    assert answers.of(replace(JOB), 60) is None
    assert not answers._kept


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, state=State.PROCESSING),
        replace(JOB, order=Order(retention=NOTHING)),
        replace(JOB, order=Order(live=LiveOptions())),
    ],
)
def test_what_may_change_by_itself_is_not_kept(job: Job):
    assert read_again(JOB) is ANSWER
    assert read_again(job) is None


def test_a_long_answer_is_not_kept():
    assert read_again(JOB, CachedResponse(b"x" * MAX_BYTES_KEPT, headers=HEADERS)) is not None
    assert read_again(JOB, CachedResponse(b"x" * (MAX_BYTES_KEPT + 1), headers=HEADERS)) is None
