"""Tests of sender.py: when a webhook is sent again."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.webhooks.sender import JITTER, LONGEST_RETRY_AFTER_S, delay_after, retry_after_s

SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
ROLL = st.floats(0, 1, exclude_max=True)
NOW = 1_795_174_200.0


def test_in_the_middle_of_the_roll_it_is_the_schedule():
    delays = [delay_after(attempt, schedule_s=SCHEDULE, roll=0.5) for attempt in range(1, 11)]
    assert delays == [*SCHEDULE, None]


def test_a_roll_moves_a_delay_by_a_fifth_at_most():
    assert delay_after(1, schedule_s=SCHEDULE, roll=0.0) == pytest.approx(4.0)
    assert delay_after(1, schedule_s=SCHEDULE, roll=1.0) == pytest.approx(6.0)


@given(st.integers(1, 9), ROLL)
def test_every_delay_is_near_its_plan(attempt, roll):
    delay = delay_after(attempt, schedule_s=SCHEDULE, roll=roll)
    assert abs(delay / SCHEDULE[attempt - 1] - 1) <= JITTER * 1.000001


@given(st.integers(10, 1000), ROLL, st.none() | st.floats(0, 1e9))
def test_after_the_last_attempt_nothing_brings_it_back(attempt, roll, asked):
    assert delay_after(attempt, schedule_s=SCHEDULE, roll=roll, retry_after_s=asked) is None


@given(st.integers(1, 9), ROLL, st.floats(0, 1e9))
def test_the_receiver_can_only_ask_for_more_time_and_for_a_day_at_most(attempt, roll, asked):
    planned = delay_after(attempt, schedule_s=SCHEDULE, roll=roll)
    delay = delay_after(attempt, schedule_s=SCHEDULE, roll=roll, retry_after_s=asked)
    assert delay == max(planned, min(asked, LONGEST_RETRY_AFTER_S))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 5000, None),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW + 90), 90.0),  # ends in -0000: UTC of an unnamed place
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Fri, 99 Nov 2026 11:30:00 GMT", None),
        ("Fri, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header, seconds):
    assert retry_after_s(header, now_s=NOW) == seconds


@given(st.text(st.characters(max_codepoint=255)) | st.text("0123456789:,-+ FriNovGMT", max_size=40))
def test_any_retry_after_is_a_wait_or_ignored(header):
    seconds = retry_after_s(header, now_s=NOW)
    assert seconds is None or seconds >= 0
