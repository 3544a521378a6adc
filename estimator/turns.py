"""The formulas of a run of T calls: what each call sends, reads from the cache, answers, and bills.

With v visible and r reasoning tokens per answer, g tokens of tool results, h the share of the previous call that the
cache still holds, and d = 1 where reasoning stays in the context, call k = 1..T sends and bills

    G   = v + g + d * r
    I_k = F + P + (k - 1) * G
    C_k = 0 if k = 1 or I_{k-1} < cache_minimum, else floor(h * I_{k-1})
    W_k = I_k - C_k where cache writes have a price and caching is on, else 0
    cost_k = (I_k - C_k - W_k) p_in + C_k p_read + W_k p_write + (v + r) p_out, prices of the tier of I_k alone

I_k grows by a constant, so a run consists of a few segments of equal prices, and each sum has a closed form. Pricing
200 calls takes as long as pricing 2. A test compares the closed forms with the formulas above, call by call.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

from estimator.families import Family, PromptTokens
from estimator.rates import RateCard, Rates, Usage, usd
from estimator.request import MAX_TURNS, EstimateRequest

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Spread(Generic[T]):
    """One value in each of the three scenarios. low and high are an envelope of scenarios, not percentiles."""

    low: T
    expected: T
    high: T

    def map(self, change: Callable[[T], U]) -> "Spread[U]":
        return Spread(change(self.low), change(self.expected), change(self.high))


VISIBLE = {"low": Spread(80, 200, 600), "medium": Spread(200, 500, 1500), "high": Spread(500, 1200, 4000)}
"""Visible tokens of an answer, by complexity. An assumption."""

TOOL_GROWTH = {"low": Spread(100, 250, 1000), "medium": Spread(200, 560, 2000), "high": Spread(500, 1500, 6000)}
"""Tokens that tools and follow-up questions add between two calls, by complexity. An assumption."""

CACHE_HIT = Spread(98, 92, 50)
"""How many percent of the previous call the cache still holds, with caching on. An assumption."""

DEFAULT_CACHE_MINIMUM = 1024
"""Providers cache nothing shorter than this many tokens, unless a model's row says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The limits of a model. None means unknown, and never ends a run."""

    context_window: int | None = None  # input + output of one call
    max_input: int | None = None
    max_output: int | None = None
    cache_minimum: int = DEFAULT_CACHE_MINIMUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way a run may go. All numbers are tokens per call."""

    first_input: int  # F + P
    visible: int
    reasoning: int
    growth: int  # G: how much longer each call's input is than the one before
    hit_percent: int  # 0 = caching off

    @property
    def output(self) -> int:
        return self.visible + self.reasoning

    def input(self, turn: int) -> int:
        return self.first_input + (turn - 1) * self.growth

    def first_turn_above(self, tokens: int) -> int | None:
        """Return the first turn whose input is longer than *tokens*, or None."""
        if self.first_input > tokens:
            return 1
        return (tokens - self.first_input) // self.growth + 2 if self.growth else None

    def overflow(self, limits: ModelLimits) -> int | None:
        """Return the first turn that does not fit the model, or None."""
        turns = []
        if limits.context_window is not None:
            turns.append(self.first_turn_above(limits.context_window - self.output))
        if limits.max_input is not None:
            turns.append(self.first_turn_above(limits.max_input))
        return min((turn for turn in turns if turn is not None), default=None)


def reasoning_tokens(visible: int, request: EstimateRequest, *, reasons: bool | None) -> Spread[int]:
    """Return the reasoning tokens billed per call with *visible* expected tokens; *reasons* None means unknown.

    100 + 1.5 v was fitted on 548 replies with reported reasoning; 0.3 and 4 times that span them.
    """
    if request.reasoning == "off" or reasons is False:
        return Spread(0, 0, 0)
    expected = 100 + (3 * visible + 1) // 2
    if request.reasoning == "high":
        expected *= 3
    spread = Spread(expected * 3 // 10, expected, expected * 4)
    return Spread(0, 0, spread.high) if reasons is None and request.reasoning == "auto" else spread


def scenarios(
    request: EstimateRequest, prompt: PromptTokens, family: Family, limits: ModelLimits, *, reasons: bool | None
) -> Spread[Scenario]:
    """Return the three scenarios of *request* on one model. An answer longer than max_output loses reasoning first."""
    visible, growth = VISIBLE[request.complexity], TOOL_GROWTH[request.complexity]
    if request.output_tokens is not None:
        visible = Spread(request.output_tokens, request.output_tokens, request.output_tokens)
    reasoning = reasoning_tokens(visible.expected, request, reasons=reasons)
    hits = CACHE_HIT if request.cache == "auto" else Spread(0, 0, 0)

    def scenario(text: int, seen: int, thought: int, tools: int, hit: int, *, kept: bool) -> Scenario:
        if limits.max_output is not None:
            seen = min(seen, limits.max_output)
            thought = min(thought, limits.max_output - seen)
        return Scenario(
            first_input=family.framing + text + request.system_tokens,
            visible=seen,
            reasoning=thought,
            growth=seen + tools + (thought if kept else 0),
            hit_percent=hit,
        )

    low, expected, high = prompt.in_runs
    return Spread(
        scenario(low, visible.low, reasoning.low, growth.low, hits.low, kept=False),
        scenario(expected, visible.expected, reasoning.expected, growth.expected, hits.expected, kept=False),
        scenario(high, visible.high, reasoning.high, growth.high, hits.high, kept=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """UNITS of money, by what they pay for."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    requests: int = 0

    @property
    def total(self) -> int:
        return self.input + self.cached + self.cache_write + self.output + self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the calls of a run send and cost together."""

    turns: int  # calls that were priced: fewer than requested if the context window is full
    usage: Usage
    reasoning: int  # part of usage.output
    split: Split
    overflow_at: int | None  # the first turn that did not fit
    higher_tier_at: int | None  # the first turn billed above the lowest tier

    @property
    def units(self) -> int:
        return self.split.total

    @property
    def cost(self) -> Decimal:
        return usd(self.units)


def run(scenario: Scenario, card: RateCard, limits: ModelLimits, turns: int, *, max_turns: int | None = None) -> Run:
    """Price a run of *turns* >= 1 calls, but at most *max_turns* calls, and only calls that fit the model."""
    caching = scenario.hit_percent > 0 and turns > 1 and card.reads_cache
    overflow = scenario.overflow(limits)
    overflow = overflow if overflow is not None and overflow <= turns else None
    last = min(turns if overflow is None else overflow - 1, turns if max_turns is None else max_turns)
    full = scenario.first_turn_above(limits.cache_minimum - 1)  # the first turn long enough to be cached
    first_cached = full + 1 if caching and full is not None else last + 1
    tiers = [turn for turn in map(scenario.first_turn_above, card.thresholds) if turn is not None and turn <= last]
    starts = sorted({1, *tiers, *((first_cached,) if first_cached <= last else ())}) if last else []

    usage, split = Usage(input=0), Split()
    for start, end in zip(starts, [*(turn - 1 for turn in starts[1:]), last], strict=False):
        sent = _segment(scenario, start, end, cached=start >= first_cached, written=caching and card.bills_writes)
        usage = Usage(
            input=usage.input + sent.input,
            cached=usage.cached + sent.cached,
            written=usage.written + sent.written,
            output=usage.output + sent.output,
        )
        split = _add(split, sent, card.band(scenario.input(start)), calls=end - start + 1)
    return Run(
        turns=last,
        usage=usage,
        reasoning=last * scenario.reasoning,
        split=split,
        overflow_at=overflow,
        higher_tier_at=min(tiers, default=None),
    )


def _segment(scenario: Scenario, start: int, end: int, *, cached: bool, written: bool) -> Usage:
    """Return the sums of I, C and W over turns start..end, which are all cached or all not."""
    calls, growth, hit = end - start + 1, scenario.growth, scenario.hit_percent
    sent = calls * scenario.input(start) + growth * calls * (calls - 1) // 2
    held = floor_sum(calls, 100, hit * growth, hit * scenario.input(start - 1)) if cached else 0
    return Usage(input=sent, cached=held, written=sent - held if written else 0, output=calls * scenario.output)


def _add(split: Split, sent: Usage, rates: Rates, *, calls: int) -> Split:
    return Split(
        input=split.input + (sent.input - sent.cached - sent.written) * rates.input,
        cached=split.cached + sent.cached * rates.cached,
        cache_write=split.cache_write + sent.written * rates.written,
        output=split.output + sent.output * rates.output,
        requests=split.requests + calls * rates.request,
    )


def floor_sum(terms: int, divisor: int, step: int, first: int) -> int:
    """Return the sum of floor((first + i * step) / divisor) for i = 0..terms - 1; step and first >= 0, divisor > 0.

    It takes O(log divisor) steps, by the same exchange of axes as Euclid's algorithm.
    """
    total = 0
    while terms > 0:
        total += terms * (terms - 1) // 2 * (step // divisor) + terms * (first // divisor)
        step, first = step % divisor, first % divisor
        highest = step * terms + first
        terms, divisor, step, first = highest // divisor, step, divisor, highest % divisor
    return total


def turns_within(budget: Decimal, scenario: Scenario, card: RateCard, limits: ModelLimits) -> int:
    """Return the most calls, up to MAX_TURNS, that fit the model and cost no more than *budget* USD."""
    overflow = scenario.overflow(limits)
    longest = MAX_TURNS if overflow is None else min(MAX_TURNS, overflow - 1)
    # Longer runs cost more, so the runs that fit are the first ones.
    return bisect_right(range(1, longest + 1), budget, key=lambda turns: run(scenario, card, limits, turns).cost)
