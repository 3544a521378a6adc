"""Tests of turns.py: the formulas of a run against call-by-call arithmetic."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.request import MAX_TURNS, EstimateRequest
from estimator.tokens import FAMILIES, TextCount, prompt_tokens
from estimator.turns import ModelLimits, RateCard, Rates, Run, Scenario, Usage, plan_calls, scenarios, units_per, usd
from tests.estimator.pricing import call_cost


def rates(plain: str, read: str, write: str, out: str) -> Rates:
    units = [units_per(Decimal(price), per=1_000_000) for price in (plain, read, write, out)]
    return Rates(input=units[0], cached=units[1], written=units[2], output=units[3])


PROMPT = TextCount(2000, exact=True, non_ascii_share=0.0)


def run(way: Scenario, card: RateCard, limits: ModelLimits, turns: int, *, most: int = MAX_TURNS) -> Run:
    return plan_calls(way, limits, turns).price(card, turns, most=most)


def by_the_book(way: Scenario, card: RateCard, limits: ModelLimits, turns: int) -> tuple[Usage, Decimal, int | None]:
    """Compute the formulas of turns.py one call after the other, in Decimal."""
    caching = way.hit_percent > 0 and turns > 1 and card.reads_cache
    total, usage, before = Decimal(0), Usage(input=0), None
    for turn in range(1, turns + 1):
        sent = way.first_input + (turn - 1) * way.growth
        window, most = limits.context_window, limits.max_input
        if (window is not None and sent + way.output > window) or (most is not None and sent > most):
            return usage, total, turn
        held = 0
        if caching and before is not None and before >= limits.cache_minimum:
            held = int(Decimal(way.hit_percent) / 100 * before)
        written = sent - held if caching and card.bills_writes else 0
        total += call_cost(card, Usage(input=sent, cached=held, written=written, output=way.output))
        usage = Usage(
            input=usage.input + sent,
            cached=usage.cached + held,
            written=usage.written + written,
            output=usage.output + way.output,
        )
        before = sent
    return usage, total, None


prices = st.integers(1, 10**6).map(lambda price: price * 10**18)
bands = st.builds(Rates, input=prices, cached=prices, written=prices, output=prices, request=prices)
limits_given = st.builds(
    ModelLimits,
    context_window=st.none() | st.integers(1, 400_000),
    max_input=st.none() | st.integers(1, 300_000),
    cache_minimum=st.sampled_from([64, 1024, 4096, 6144]),
)
ways_given = st.builds(
    Scenario,
    first_input=st.integers(0, 50_000),
    visible=st.integers(0, 4_000),
    reasoning=st.integers(0, 8_000),
    growth=st.integers(0, 20_000),
    hit_percent=st.sampled_from([0, 50, 92, 98]),
)


@st.composite
def cards(draw: st.DrawFn) -> RateCard:
    thresholds = tuple(sorted(draw(st.sets(st.integers(0, 200_000), max_size=3))))
    return RateCard(
        bands=tuple(draw(bands) for _ in range(len(thresholds) + 1)),
        thresholds=thresholds,
        reads_cache=draw(st.booleans()),
        bills_writes=draw(st.booleans()),
    )


@settings(max_examples=400)
@given(ways_given, cards(), limits_given, st.integers(1, 60))
def test_a_run_is_the_sum_over_all_calls(way, card, limits, turns):
    usage, total, overflow = by_the_book(way, card, limits, turns)
    found = run(way, card, limits, turns)
    assert found.usage == usage
    assert usd(found.units) == total
    assert found.overflow_at == overflow
    assert found.turns == (turns if overflow is None else overflow - 1)


def test_the_turn_that_enters_a_higher_tier_is_named():
    card = RateCard(bands=(rates("1", "1", "1", "1"), rates("2", "2", "2", "2")), thresholds=(3_000,))
    growing = Scenario(first_input=1_000, visible=0, reasoning=0, growth=1_000, hit_percent=0)
    assert run(growing, card, ModelLimits(), 3).higher_tier_at is None  # 3,000 is not above 3,000
    assert run(growing, card, ModelLimits(), 9).higher_tier_at == 4


def test_an_answer_is_cut_to_the_models_longest_reasoning_first():
    family = FAMILIES["openai"]
    request = EstimateRequest(prompt="", complexity="high")
    prompt = prompt_tokens(family, PROMPT)
    cut = scenarios(request, prompt, family, ModelLimits(max_output=1_500), reasons=True)
    assert (cut.expected.visible, cut.expected.reasoning) == (1_200, 300)
    assert (cut.high.visible, cut.high.reasoning) == (1_500, 0)


@pytest.mark.parametrize(
    ("visible", "reasoning", "reasons", "spread"),
    [
        (500, "auto", True, (255, 850, 3400)),
        (500, "high", True, (765, 2550, 10_200)),
        (500, "off", True, (0, 0, 0)),
        (500, "auto", False, (0, 0, 0)),
        (500, "auto", None, (0, 0, 3400)),
        (500, "high", None, (765, 2550, 10_200)),
        (1, "auto", True, (30, 102, 408)),
    ],
)
def test_reasoning_follows_the_visible_answer(
    visible: int,
    reasoning: str,
    reasons: bool | None,  # noqa: FBT001  a column of the table
    spread: tuple[int, int, int],
) -> None:
    family = FAMILIES["openai"]
    request = EstimateRequest(prompt="", output_tokens=visible, reasoning=reasoning)
    ways = scenarios(request, prompt_tokens(family, PROMPT), family, ModelLimits(), reasons=reasons)
    assert (ways.low.reasoning, ways.expected.reasoning, ways.high.reasoning) == spread


def test_given_output_tokens_replace_the_guess_in_every_scenario():
    family = FAMILIES["openai"]
    request = EstimateRequest(prompt="", output_tokens=77, system_tokens=1000)
    ways = scenarios(request, prompt_tokens(family, PROMPT), family, ModelLimits(), reasons=False)
    assert {way.visible for way in (ways.low, ways.expected, ways.high)} == {77}
    assert ways.expected.first_input == 7 + 2000 + 1000


def test_reasoning_stays_in_the_context_of_the_high_scenario_alone():
    family = FAMILIES["openai"]
    ways = scenarios(EstimateRequest(prompt=""), prompt_tokens(family, PROMPT), family, ModelLimits(), reasons=True)
    assert (ways.low.growth, ways.expected.growth, ways.high.growth) == (400, 1060, 1500 + 2000 + 3400)
