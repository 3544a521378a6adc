"""Tests of estimates that could mislead: models that are unknown or have no price, odd prompts, guessed counts."""

import pytest

from estimator import Estimator, UnknownModels
from tests.estimator.asking import PROMPT_2000, ask, codes, row_of, usd


def test_an_unknown_id_gets_a_row_without_cost_and_suggestions(estimator):
    answer = ask(estimator, models=["gpt-5-mni", "gpt-5-mini", "nope"])
    unknown, known, nope = answer["models"]
    assert (unknown["status"], unknown["model"], unknown["cost_usd"], unknown["rank"]) == (
        "unknown_model",
        None,
        None,
        None,
    )
    assert unknown["did_you_mean"][0] == "gpt-5-mini"
    assert nope["did_you_mean"] == []
    assert known["status"] == "priced"
    assert answer["unknown_models"] == ["gpt-5-mni", "nope"]
    assert answer["ranking"] == ["gpt-5-mini"]


def test_many_unknown_names_get_suggestions_for_the_first_ten_alone(estimator):
    rows = ask(estimator, models=["gpt-5-mini", *(f"openai/gpt-5-mni{number}" for number in range(20))])["models"]
    assert [bool(row["did_you_mean"]) for row in rows[1:]] == [True] * 10 + [False] * 10


def test_an_unpriced_model_has_no_cost_and_no_rank(estimator):
    answer = ask(estimator, models=["openai/text-embedding-3-small", "gpt-5-mini"])
    row = answer["models"][0]
    assert (row["status"], row["cost_usd"], row["multiplied_usd"], row["rank"]) == ("unpriced", None, None, None)
    assert row["tokens"]["prompt"]["expected"] == 4
    assert codes(row["notes"]) == ["unpriced"]
    assert answer["ranking"] == ["gpt-5-mini"]
    assert answer["unknown_models"] == []


def test_nothing_priced_at_all_is_an_error_that_says_why_for_each(estimator):
    with pytest.raises(UnknownModels) as caught:
        ask(estimator, models=["nope", "gpt-5-mni", "openai/text-embedding-3-small"])
    assert caught.value.code == "unknown_models"
    assert [(one.param, one.pointer, one.code) for one in caught.value.problems] == [
        ("models", "/models/0", "unknown_model"),
        ("models", "/models/1", "unknown_model"),
        ("models", "/models/2", "unpriced"),
    ]
    assert "gpt-5-mini" in caught.value.problems[1].message


def test_a_model_asked_for_twice_is_one_row_also_by_alias(estimator):
    asked = ["claude-sonnet-4.6", "claude-sonnet-4-6", "anthropic/claude-sonnet-4-6", "nope", " NOPE"]
    answer = ask(estimator, models=asked)
    assert [row["requested_id"] for row in answer["models"]] == ["claude-sonnet-4.6", "nope"]
    assert answer["models"][0]["model"] == "claude-sonnet-4-6"
    assert codes(answer["warnings"]) == ["duplicate_model"] * 3


def test_the_resolved_id_stands_beside_the_requested_one(estimator):
    row = row_of(estimator, "gpt-4o-2024-08-06")
    assert (row["requested_id"], row["model"], row["provider"]) == ("gpt-4o-2024-08-06", "openai/gpt-4o", "openai")
    assert row_of(estimator, row["model"])["cost_usd"] == row["cost_usd"]


def test_prices_are_those_of_priced_at_which_is_echoed(estimator):
    peak = ask(estimator, models=["deepseek-v4-pro"], priced_at="2026-11-21T03:00:00+01:00")
    calm = ask(estimator, models=["deepseek-v4-pro"])
    assert peak["priced_at"] == "2026-11-21T02:00:00Z"
    assert peak["created_at"] == "2026-11-20T12:00:00Z"
    assert usd(peak["models"][0]["cost_usd"]) == 2 * usd(calm["models"][0]["cost_usd"])
    assert "time_of_day_price" in codes(calm["models"][0]["notes"])


def test_an_announced_change_of_price_is_dated(estimator):
    row = row_of(estimator, "gemini-4-argon", cache="off")
    later = row_of(estimator, "gemini-4-argon", cache="off", priced_at="2026-12-01T00:00:00Z")
    assert row["price_changes_on"] == "2026-12-01"
    assert later["price_changes_on"] is None
    assert usd(later["cost_usd"]) == 2 * usd(row["cost_usd"])


def test_a_shorter_run_that_is_never_cached_does_not_put_low_above_expected(estimator):
    """With 100 tokens more a turn, 781 tokens reach the minimum of 1024 too late; with 250 the third call is cached."""
    asked = {"prompt": "a" + " a" * 780, "agent_turns": 4, "output_tokens": 1, "reasoning": "off", "complexity": "low"}
    row = row_of(estimator, "gpt-6-astra", **asked)
    assert row["tokens"]["input"]["low"] < row["tokens"]["input"]["expected"]
    assert row["tokens"]["cached_input"]["low"] == 0 < row["tokens"]["cached_input"]["expected"]
    assert row["cost_usd"]["low"] == row["cost_usd"]["expected"]


def test_foreign_text_is_said_to_widen_the_bounds(estimator):
    assert "non_ascii_text" in codes(row_of(estimator, "claude-opus-5-5", prompt="Привет, мир")["notes"])
    assert "non_ascii_text" not in codes(row_of(estimator, "gpt-5-mini", prompt="Привет, мир")["notes"])


def test_without_rank_files_the_answer_says_it_guessed():
    answer = ask(Estimator(bundled=False), models=["gpt-5-mini", "claude-opus-5-5"])
    assert [row["tokens"]["prompt"]["method"] for row in answer["models"]] == ["heuristic", "heuristic"]
    assert codes(answer["warnings"]) == ["heuristic_tokens"]


def test_the_envelope_of_a_family_with_bounds_includes_them(estimator):
    row = row_of(estimator, "claude-sonnet-4-6", prompt=PROMPT_2000, output_tokens=1, reasoning="off")
    assert row["tokens"]["input"] == {"low": 2007, "expected": 2247, "high": 2547}
    assert (row["tokens"]["prompt"]["low"], row["tokens"]["prompt"]["high"]) == (2000, 2540)
