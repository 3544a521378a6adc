"""Tests of whole estimates, from a request to its JSON answer."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator import Estimator, estimate_id
from estimator.tokens import BadRankFile
from tests.estimator.asking import PROMPT_2000, ask, codes, row_of, usd
from tests.estimator.pricing import NOON

# --- the worked example, from text to JSON


def test_the_worked_example_from_prompt_to_answer(estimator):
    row = row_of(estimator, "gpt-5-mini", prompt=PROMPT_2000, agent_turns=5)
    assert row["tokens"]["prompt"] == {
        "low": 2000,
        "expected": 2000,
        "high": 2060,
        "method": "exact_text",
        "encoding": "o200k_base",
    }
    assert row["tokens"]["input"] == {"low": 14_035, "expected": 20_635, "high": 79_035}
    assert row["tokens"]["cached_input"]["expected"] == 13_235
    assert row["tokens"]["output"]["expected"] == 6_750
    assert row["tokens"]["reasoning"]["expected"] == 4_250
    assert row["cost_usd"] == {"low": "0.00576015", "expected": "0.015680875", "high": "0.06319855"}
    assert row["multiplied_usd"]["expected"] == "0.01600875"
    assert row["cost_split_usd"] == {
        "input": "0.00185",
        "cached": "0.000330875",
        "cache_write": "0",
        "output": "0.0135",
    }
    assert (row["context_window"], row["context_overflow"], row["overflow_at_turn"]) == (400_000, False, None)
    assert row["cheaper_by"][0]["change"] == "fewer_turns"
    assert (row["retires_on"], row["replaced_by"]) == ("2026-12-11", "gpt-6.1-terra")
    assert (row["status"], row["rank"], row["times_cheapest"], row["price_changes_on"]) == ("priced", 1, "1.0", None)


# --- the whole answer


def test_the_answer_says_what_was_asked_when_and_from_which_prices(estimator):
    answer = ask(estimator, models=["gpt-5-mini"], agent_turns=2)
    assert answer["object"] == "estimate"
    assert answer["id"] == "est_1"
    assert answer["created_at"] == answer["priced_at"] == "2026-11-20T12:00:00Z"
    assert answer["currency"] == "USD"
    assert answer["inputs"] == {
        "prompt_chars": 13,
        "prompt_sha256": hashlib.sha256(b"Hello, world!").hexdigest(),
        "complexity": "medium",
        "agent_turns": 2,
        "cache": "auto",
        "reasoning": "auto",
        "output_tokens": None,
        "system_tokens": 0,
        "audio_seconds": None,
    }
    assert answer["price_source"] == {
        "name": "genai-prices",
        "version": "0.2.3",
        "newest_price": "2026-11-09",
        "overlay": "2026-11-28",
    }
    assert answer["cheapest"] == {"model": "gpt-5-mini", "cost_usd": answer["models"][0]["cost_usd"]["expected"]}
    assert answer["unknown_models"] == answer["warnings"] == answer["ranking_overlaps"] == []


def test_the_prompt_itself_is_nowhere_in_the_answer(estimator):
    answer = ask(estimator, prompt="a very secret recipe", models=["gpt-5-mini", "nope"])
    assert "secret" not in str(answer)


def test_the_answer_names_its_assumptions_and_that_low_and_high_are_no_percentiles(estimator):
    answer = ask(estimator)
    assert answer["assumptions_version"] == "2"
    messages = {note["code"]: note["message"] for note in answer["assumptions"]}
    assert "envelope, not percentiles" in messages["envelope"]
    assert {"whole_history", "output_by_complexity", "reasoning", "cache_hits", "token_counts"} < messages.keys()


@pytest.mark.parametrize("models", [None, []])
def test_no_models_means_the_whole_catalogue(estimator, models):
    answer = ask(estimator, models=models)
    assert len(answer["models"]) == len(answer["ranking"]) == 35
    assert len({row["cluster"] for row in answer["models"]}) == 6
    assert all(row["status"] == "priced" for row in answer["models"])


def test_the_ranking_goes_from_cheap_to_dear(estimator):
    answer = ask(estimator, agent_turns=5)
    cost = {row["model"]: usd(row["cost_usd"]) for row in answer["models"]}
    assert answer["ranking"] == sorted(cost, key=lambda name: (cost[name], name))
    assert [row["model"] for row in sorted(answer["models"], key=lambda row: row["rank"])] == answer["ranking"]
    cheapest = cost[answer["ranking"][0]]
    for row in answer["models"]:
        assert abs(Decimal(row["times_cheapest"]) - cost[row["model"]] / cheapest) <= Decimal("0.05")


def test_overlaps_are_exactly_the_ranked_pairs_whose_envelopes_cross(estimator):
    answer = ask(estimator)
    rows = {row["model"]: row["cost_usd"] for row in answer["models"]}
    order = answer["ranking"]
    pairs = [[a, b] for place, a in enumerate(order) for b in order[place + 1 :]]
    crossing = [[a, b] for a, b in pairs if usd(rows[a], "high") >= usd(rows[b], "low")]
    assert answer["ranking_overlaps"] == crossing
    assert 0 < len(crossing) < len(pairs)


def test_money_is_never_a_float_and_never_rounded(estimator):
    def floats(value: object) -> list[float]:
        if isinstance(value, dict):
            return [one for inner in value.values() for one in floats(inner)]
        if isinstance(value, list):
            return [one for inner in value for one in floats(inner)]
        return [value] if isinstance(value, float) else []

    assert floats(ask(estimator, agent_turns=200)) == []
    tiny = row_of(estimator, "ministral-8b-2512", prompt="", output_tokens=1)
    assert tiny["cost_usd"]["expected"] == "0.0000006"  # 3 + 1 tokens at $0.15 a million


@settings(max_examples=30)
@given(
    prompt=st.text(max_size=50),
    turns=st.integers(1, 200),
    complexity=st.sampled_from(["low", "medium", "high"]),
    cache=st.sampled_from(["auto", "off"]),
    reasoning=st.sampled_from(["auto", "off", "high"]),
)
def test_the_parts_of_any_estimate_fit_together(estimator, prompt, turns, **members):
    answer = ask(estimator, prompt=prompt, agent_turns=turns, **members)
    one = {row["model"]: row for row in ask(estimator, prompt=prompt, agent_turns=1, **members)["models"]}
    for row in answer["models"]:
        cost, multiplied = row["cost_usd"], row["multiplied_usd"]
        assert 0 < usd(cost, "low") <= usd(cost) <= usd(cost, "high")
        assert sum(map(Decimal, row["cost_split_usd"].values())) == usd(cost)
        for bound in ("low", "expected", "high"):
            assert usd(multiplied, bound) == turns * usd(one[row["model"]]["cost_usd"], bound)
        assert one[row["model"]]["cost_usd"] == one[row["model"]]["multiplied_usd"]
        assert [Decimal(saving["saves_usd"]) for saving in row["cheaper_by"]] == sorted(
            (Decimal(saving["saves_usd"]) for saving in row["cheaper_by"]), reverse=True
        )
        assert all(0 < Decimal(saving["saves_usd"]) < usd(cost) for saving in row["cheaper_by"])


@settings(max_examples=25)
@given(
    words=st.integers(0, 5_000),
    turns=st.integers(1, 40),
    cache=st.sampled_from(["auto", "off"]),
    reasoning=st.sampled_from(["auto", "off", "high"]),
)
def test_costs_grow_strictly_with_turns_and_with_complexity(estimator, words, turns, cache, reasoning):
    def costs(**members: object) -> list[dict[str, Any]]:
        return ask(estimator, prompt=" a" * words, cache=cache, reasoning=reasoning, **members)["models"]

    shorter, longer = costs(agent_turns=turns), costs(agent_turns=turns + 1)
    low, high = costs(agent_turns=turns, complexity="low"), costs(agent_turns=turns, complexity="high")
    for a, b in [*zip(shorter, longer, strict=True), *zip(low, shorter, strict=True), *zip(shorter, high, strict=True)]:
        if b["status"] != "partial":  # a run that the window ends does not grow any more
            assert usd(a["cost_usd"]) < usd(b["cost_usd"]), a["model"]
        assert usd(a["multiplied_usd"]) < usd(b["multiplied_usd"]), a["model"]


# --- windows, tiers, savings


def test_a_run_that_fills_the_window_is_partial_and_not_ranked(estimator):
    answer = ask(estimator, models=["claude-haiku-4-5", "gpt-4.1"], agent_turns=200, complexity="high")
    row = answer["models"][0]
    turn = row["overflow_at_turn"]
    assert row["status"] == "partial"
    assert row["context_overflow"] is True
    assert (row["turns_priced"], row["rank"]) == (turn - 1, None)
    fits = row_of(estimator, "claude-haiku-4-5", agent_turns=turn - 1, complexity="high")
    assert fits["status"] == "priced"
    assert fits["cost_usd"] == row["cost_usd"]
    assert fits["tokens"] == row["tokens"]
    assert answer["ranking"] == ["gpt-4.1"]
    assert "context_overflow" in codes(row["notes"])


def test_a_prompt_that_does_not_fit_at_all_has_no_cost(estimator):
    answer = ask(estimator, models=["gpt-5-mini"], system_tokens=272_000)
    row = answer["models"][0]
    assert (row["status"], row["overflow_at_turn"], row["turns_priced"]) == ("partial", 1, 0)
    assert row["cost_usd"] is row["multiplied_usd"] is answer["cheapest"] is None
    assert answer["ranking"] == []


def test_a_high_scenario_that_fills_the_window_is_noted(estimator):
    row = row_of(estimator, "claude-haiku-4-5", agent_turns=40)
    assert (row["status"], row["overflow_at_turn"]) == ("priced", None)
    assert "high_overflows" in codes(row["notes"])


def test_crossing_a_tier_is_dated_and_priced(estimator):
    row = row_of(estimator, "claude-haiku-5-5", system_tokens=90_000, agent_turns=20)
    turn = row["higher_tier_at_turn"]
    inputs = [row_of(estimator, "claude-haiku-5-5", system_tokens=90_000, agent_turns=n) for n in (turn - 1, turn)]
    assert [one["higher_tier_at_turn"] for one in inputs] == [None, turn]
    saving = next(one for one in row["cheaper_by"] if one["change"] == "stay_under_tier")
    assert (saving["input_tokens"], saving["from_turn"]) == (100_000, turn)


def test_each_saving_is_what_asking_that_way_would_cost_less(estimator):
    def saving_of(row: dict[str, Any], change: str) -> Decimal:
        return next(Decimal(one["saves_usd"]) for one in row["cheaper_by"] if one["change"] == change)

    off = row_of(estimator, "claude-opus-5-5", agent_turns=10, cache="off", prompt=PROMPT_2000)
    auto = row_of(estimator, "claude-opus-5-5", agent_turns=10, cache="auto", prompt=PROMPT_2000)
    fewer = row_of(estimator, "claude-opus-5-5", agent_turns=9, cache="off", prompt=PROMPT_2000)
    assert saving_of(off, "cache") == usd(off["cost_usd"]) - usd(auto["cost_usd"])
    assert saving_of(off, "fewer_turns") == usd(off["cost_usd"]) - usd(fewer["cost_usd"])


def test_a_cache_that_costs_more_than_it_saves_is_said_so(estimator):
    """Below the minimum nothing is cached, but writing costs more: two short turns are cheaper without a cache."""
    row = row_of(estimator, "claude-haiku-4-5", agent_turns=2)
    without = row_of(estimator, "claude-haiku-4-5", agent_turns=2, cache="off")
    saving = next(one for one in row["cheaper_by"] if one["change"] == "cache_off")
    assert Decimal(saving["saves_usd"]) == usd(row["cost_usd"]) - usd(without["cost_usd"])


# --- the rest of the interface


def test_the_same_audio_is_priced_at_hosted_services(estimator):
    answer = ask(estimator, audio_seconds=1800.5)
    rows = answer["hosted_transcription"]
    assert answer["inputs"]["audio_seconds"] == 1800.5
    assert rows == sorted(rows, key=lambda row: (Decimal(row["usd_per_hour"]), row["model"]))
    whisper = next(row for row in rows if row["model"] == "openai/whisper-1")
    assert whisper == {
        "model": "openai/whisper-1",
        "provider": "openai",
        "usd_per_hour": "0.36",
        "cost_usd": "0.18005",
        "retires_on": "2027-02-26",
        "replaced_by": None,
    }
    assert ask(estimator)["hosted_transcription"] is None


def test_the_listing_has_every_model_with_prices_source_and_date(estimator):
    listing = orjson.loads(orjson.dumps(estimator.models(now=NOON)))
    assert len(listing["data"]) == 35
    assert len({model["cluster"] for model in listing["data"]}) == 6
    by_id = {model["id"]: model for model in listing["data"]}
    mini, sol = by_id["gpt-5-mini"], by_id["gpt-6.1-sol"]
    assert mini["prices"] == {
        "input_per_mtok_usd": "0.25",
        "cached_input_per_mtok_usd": "0.025",
        "cache_write_per_mtok_usd": None,
        "output_per_mtok_usd": "2",
        "tiers": [],
    }
    assert (mini["retires_on"], mini["replaced_by"]) == ("2026-12-11", "gpt-6.1-terra")
    assert sol["retires_on"] is None
    assert sol["prices"]["tiers"][0]["above_input_tokens"] == 272_000
    assert sol["prices"]["tiers"][0]["input_per_mtok_usd"] == "4"
    assert by_id["claude-haiku-5-5"]["aliases"] == ["haiku-5-5"]
    assert mini["source"]["name"] == "genai-prices"
    assert mini["source"]["url"].startswith("https://")
    assert mini["checked_on"] == "2026-11-28"
    assert by_id["gemini-4-argon"]["price_changes_on"] == "2026-12-01"


def test_ids_are_sortable_by_time_and_unique_by_entropy():
    first = estimate_id(NOON, bytes(10))
    assert first == estimate_id(NOON, bytes(10))
    assert len(first) == 30
    assert first.startswith("est_")
    later = estimate_id(NOON.replace(microsecond=1000), bytes(10))
    assert first < estimate_id(NOON, b"\xff" * 10) < later


def test_many_threads_may_ask_an_estimator_that_has_loaded_nothing_yet():
    fresh = Estimator()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(fresh, agent_turns=3), range(8)))
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize(
    ("model", "members", "code"),
    [
        ("gpt-4.1", {"output_tokens": 40_000}, "answer_cut"),
        ("grok-4.7", {}, "token_count_weak"),
        ("openai/gpt-4o", {}, "outside_catalogue"),
        ("codestral-2508", {"reasoning": "high"}, "no_reasoning"),
        ("gpt-4.1", {}, "retires"),
        ("gpt-4.1", {"priced_at": "2027-02-01T00:00:00Z"}, "retired"),
    ],
)
def test_a_row_says_what_its_reader_should_know(estimator, model, members, code):
    assert code in codes(row_of(estimator, model, **members)["notes"])


def test_warming_up_refuses_a_rank_file_that_was_changed(tmp_path):
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"IQ== 0\n")
    with pytest.raises(BadRankFile):
        Estimator(ranks_dir=tmp_path).warm()
