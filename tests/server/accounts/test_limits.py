"""Tests of limits.py: plans, time windows, and the headers that report them."""

import re
from dataclasses import fields
from datetime import UTC, datetime
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.accounts.limits import Calendar, Limits, day_of, month_of, with_overrides
from server.http.headers import limit_headers, seconds_until
from server.model.accounts import Plan, WindowUse
from server.model.errors import BadLimits

BUILT_IN = files("server").joinpath("limits.toml").read_text()
LIMITS = Limits.from_toml(BUILT_IN)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# The built-in numbers


def test_the_longest_file_of_a_plan_fits_its_byte_cap_as_uncompressed_studio_sound():
    free = LIMITS.plans["free"]
    assert free.audio_s_per_file * 48_000 * 3 * 2 <= free.upload_bytes


def test_the_sandbox_counts_no_months():
    plan = LIMITS.plan("free", {}, sandbox=True)
    assert (plan.transcriptions_per_month, plan.audio_hours_per_month) == (None, None)
    assert plan.estimates_per_day == 50  # one thread makes the estimates of both environments
    assert (plan.requests_per_minute, plan.retention_hours) == (300, 24)
    assert plan.audio_minutes_per_file == 30


def test_the_sandbox_takes_smaller_files_than_the_plans():
    assert {LIMITS.plan(name, {}, sandbox=True).upload_mib for name in LIMITS.plans} == {64}
    assert LIMITS.plan("pro", {"upload_mib": 5}, sandbox=True).upload_mib == 5


# One account's own numbers


def test_an_account_may_have_its_own_numbers():
    plan = LIMITS.plan("enterprise", {"requests_per_minute": 9, "active_jobs": None, "weight": 2.5}, sandbox=False)
    assert (plan.requests_per_minute, plan.active_jobs, plan.weight) == (9, None, 2.5)
    assert plan.upload_mib == LIMITS.plans["enterprise"].upload_mib


def test_a_plan_nobody_knows_is_refused():
    with pytest.raises(BadLimits, match="no plan 'gold', only free, pro, enterprise"):
        LIMITS.plan("gold", {}, sandbox=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"request_per_minute": 1}, "no limit 'request_per_minute'"),
        ({"requests_per_minute": None}, "requests_per_minute must be a whole number from 0, got None"),
        ({"active_jobs": -1}, 'active_jobs must be a whole number from 0 or "unlimited", got -1'),
        ({"active_jobs": True}, "got True"),
        ({"active_jobs": 1.5}, "got 1.5"),
        ({"upload_mib": "1"}, "got '1'"),
        ({"weight": 0}, "weight must be more than 0"),
        ({"weight": float("nan")}, "weight must be a number"),
    ],
)
def test_an_override_that_cannot_be_used_is_refused(overrides, message):
    with pytest.raises(BadLimits, match=re.escape(message)):
        with_overrides(LIMITS.plans["free"], overrides)


# An operator's file


def test_an_operator_may_replace_every_number():
    limits = Limits.from_toml(BUILT_IN.replace("transcriptions_per_month = 5\n", "transcriptions_per_month = 7\n"))
    assert limits.plans["free"].transcriptions_per_month == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[plans.free]", "[plans.free", "limits are no TOML"),
        ("[plans.free]", "[plans.basic]", "plans lacks 'free'"),
        ("[keyless]", "[guests]", "limits knows no 'guests'"),
        ("signups_per_day = 10", "", "keyless lacks 'signups_per_day'"),
        ("signups_per_day = 10", "signups_per_day = 10\nsign_ups = 1", "keyless knows no 'sign_ups'"),
        ("signups_per_day = 10", 'signups_per_day = "unlimited"', "keyless.signups_per_day must be a whole number"),
        ("estimates_per_day = 50 ", 'estimates_per_day = "none" ', "plans.free.estimates_per_day must be"),
        ("delays_s = [5,", 'delays_s = ["5",', "webhooks.delays_s must be a number"),
        ("delays_s = [", "delays_s = 5 # [", "webhooks.delays_s must be a list of numbers"),
        ("weight = 1 ", "weight = 0 ", "weight must be more than 0"),
        ("weight = 1 ", "weight = inf ", "plans.free.weight must be a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(old, new, message):
    assert old in BUILT_IN
    with pytest.raises(BadLimits, match=re.escape(message)):
        Limits.from_toml(BUILT_IN.replace(old, new, 1))


def test_a_section_that_is_no_table_is_refused():
    with pytest.raises(BadLimits, match="plans must be a table"):
        Limits.from_toml("plans = 1\nsandbox = 1\nkeyless = 1\nstreams = 1\nwebhooks = 1")


NAMES = st.sampled_from([number.name for number in fields(Plan)])
JSON = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)


@given(st.dictionaries(NAMES | st.text(max_size=3), JSON, max_size=3))
def test_any_override_is_used_as_it_is_or_refused(overrides):
    try:
        own = with_overrides(LIMITS.plans["free"], overrides)
    except BadLimits:
        return
    for name, value in overrides.items():
        assert getattr(own, name) == (None if value == "unlimited" else value)


# Days and months


@pytest.mark.parametrize(
    ("now", "name", "resets"),
    [
        ("2026-11-20T00:00:00", "2026-11-20", "2026-11-21T00:00:00"),
        ("2026-11-20T23:59:59.999", "2026-11-20", "2026-11-21T00:00:00"),
        ("2026-12-31T12:00:00", "2026-12-31", "2027-01-01T00:00:00"),
        ("2028-02-28T12:00:00", "2028-02-28", "2028-02-29T00:00:00"),
    ],
)
def test_a_day_is_a_utc_day(now, name, resets):
    assert day_of(ms(now)) == Calendar(name, ms(resets), 86_400)


@pytest.mark.parametrize(
    ("now", "name", "resets"),
    [
        ("2026-11-20T12:00:00", "2026-11", "2026-12-01T00:00:00"),
        ("2026-11-30T23:59:59.999", "2026-11", "2026-12-01T00:00:00"),
        ("2026-12-01T00:00:00", "2026-12", "2027-01-01T00:00:00"),
        ("2027-01-31T00:00:00", "2027-01", "2027-02-01T00:00:00"),
        ("2028-02-29T00:00:00", "2028-02", "2028-03-01T00:00:00"),
    ],
)
def test_a_month_is_a_utc_calendar_month(now, name, resets):
    assert month_of(ms(now)) == Calendar(name, ms(resets), 2_592_000)


# What clients are told

MINUTE = WindowUse("minute", limit=30, used=1, window_s=60, resets_at=ms("2026-11-20T12:00:00.001"))
MONTH = WindowUse("transcriptions", limit=5, used=1, window_s=2_592_000, resets_at=ms("2026-12-01T00:00:00"))


def test_the_headers_of_all_windows_and_of_the_tightest():
    assert limit_headers([MINUTE, MONTH], now=ms("2026-11-20T11:59:00")) == {
        "RateLimit-Policy": '"minute";q=30;w=60, "transcriptions";q=5;w=2592000',
        "RateLimit": '"minute";r=29;t=61, "transcriptions";r=4;t=907260',
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "4",
        "X-RateLimit-Reset": str(ms("2026-12-01T00:00:00") // 1000),
        "X-RateLimit-Resource": "transcriptions",
    }


def test_the_window_that_refused_is_the_tightest():
    spent = WindowUse("estimates", limit=3, used=3, window_s=86_400, resets_at=ms("2026-11-21T00:00:00"))
    refused = WindowUse("minute", limit=30, used=30, window_s=60, resets_at=ms("2026-11-20T12:00:00"), allowed=False)
    headers = limit_headers([spent, refused], now=ms("2026-11-20T11:59:00"))
    assert (headers["X-RateLimit-Resource"], headers["X-RateLimit-Remaining"]) == ("minute", "0")


@given(st.integers(0, 10**13), st.integers(-(10**6), 10**10))
def test_after_the_seconds_told_the_instant_has_passed(now, ahead):
    wait_s = seconds_until(now + ahead, now)
    assert wait_s >= 1
    assert now + wait_s * 1000 >= now + ahead
    assert wait_s == 1 or now + (wait_s - 1) * 1000 < now + ahead
