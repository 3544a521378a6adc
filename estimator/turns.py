"""The formulas of a run of T calls, in exact money: what each call sends, reads from the cache, answers, and bills.

Money is a whole number of UNITS of 10**-30 USD, so every sum and product is exact. It becomes Decimal or text only in
answers. Price tables give USD per million tokens, so prices may have 24 decimals.

With v visible and r reasoning tokens per answer, g tokens of tool results, h the share of the previous call that the
cache still holds, and d = 1 where reasoning stays in the context, call k = 1..T sends and bills

    G   = v + g + d * r
    I_k = F + P + (k - 1) * G
    C_k = 0 if k = 1 or I_{k-1} < cache_minimum, else floor(h * I_{k-1})
    W_k = I_k - C_k where cache writes have a price and caching is on, else 0
    cost_k = (I_k - C_k - W_k) p_in + C_k p_read + W_k p_write + (v + r) p_out, prices of the tier of I_k alone

I_k grows by a constant. So the calls that fit the model come first, and the calls of one tier are neighbours. A
Scenario has G, I_1 and h. plan_calls() computes the I and C of each call, and Calls.price() the sum of each tier at its
prices. A test compares the cost with the formulas above, call by call in Decimal.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from itertools import accumulate
from math import inf
from typing import Generic, NamedTuple, TypeVar

from estimator.request import MAX_TURNS, EstimateRequest
from estimator.tokens import Family, PromptTokens

T = TypeVar("T")
U = TypeVar("U")

SCALE = 30
"""Decimal places of one UNIT of money."""

_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation, Overflow])  # rounding is an error, never an answer


def usd(units: int) -> Decimal:
    """Return the amount in USD, exactly."""
    return Decimal(units).scaleb(-SCALE, _EXACT)


def usd_text(amount: Decimal) -> str:
    """Return the amount as a plain decimal: no exponent, no trailing zeros, no rounding."""
    return format(amount.normalize(_EXACT), "f")


def units_per(price: Decimal, *, per: int) -> int:
    """Return the UNITS that one token or call costs if *per* of them cost *price* USD; *per* is a power of ten.

    Raises ValueError for a price that is negative, not finite, or has more decimals than SCALE can hold.
    """
    if not price.is_finite() or price < 0:
        raise ValueError(f"a price must be a finite number of USD, 0 or more, got {price}")
    units = price.scaleb(SCALE, _EXACT)
    whole = int(units)
    if whole != units or whole % per:
        raise ValueError(f"the price {price} has more decimals than can be added exactly")
    return whole // per


class Usage(NamedTuple):
    """Tokens of one or more calls, counted as providers report them: *input* includes *cached* and *written*."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0


class Split(NamedTuple):
    """A cost in UNITS, split by what it pays for."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """UNITS per token, and *request* UNITS per call, within one tier."""

    input: int
    cached: int
    written: int
    output: int
    request: int = 0

    def bill(self, usage: Usage, *, calls: int = 1) -> Split:
        """Return what *calls* calls with *usage* in all cost at these rates."""
        return Split(
            input=(usage.input - usage.cached - usage.written) * self.input,
            cached=usage.cached * self.cached,
            cache_write=usage.written * self.written,
            output=usage.output * self.output,
            requests=calls * self.request,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCard:
    """One model's prices at one moment.

    A call whose input is longer than thresholds[i] is billed at bands[i + 1] for all of its tokens.
    """

    bands: tuple[Rates, ...]
    thresholds: tuple[int, ...] = ()  # ascending; one fewer than bands
    reads_cache: bool = False  # a price for cached input is known
    bills_writes: bool = False  # writing the cache has its own price, not below plain input

    def below_tiers(self) -> "RateCard":
        """Return the same card without its higher tiers."""
        return replace(self, bands=self.bands[:1], thresholds=())


class Spread(NamedTuple, Generic[T]):
    """One value in each of the three scenarios. low and high are an envelope of scenarios, not percentiles."""

    low: T
    expected: T
    high: T

    def map(self, change: Callable[[T], U]) -> "Spread[U]":
        return Spread(*map(change, self))


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

    def longest_input(self, limits: ModelLimits) -> float:
        """Return the tokens that one call may send so that its answer still fits the model; infinity if unknown."""
        window = inf if limits.context_window is None else limits.context_window - self.output
        return min(window, inf if limits.max_input is None else limits.max_input)


def reasoning_tokens(visible: int, request: EstimateRequest, *, reasons: bool | None) -> Spread[int]:
    """Return the reasoning tokens billed for an answer of *visible* tokens; *reasons* None means unknown.

    100 + 1.5 v was fitted on 548 replies with reported reasoning; they lie between 0.3 and 4 times that.
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
    made = []
    for text, v, r, g, h, d in zip(prompt.scenarios, visible, reasoning, growth, hits, (0, 0, 1), strict=True):
        answer = min(v, limits.max_output or v)
        thinking = min(r, limits.max_output - answer) if limits.max_output else r
        made.append(
            Scenario(
                first_input=family.framing + text + request.system_tokens,
                visible=answer,
                reasoning=thinking,
                growth=answer + g + d * thinking,
                hit_percent=h,
            )
        )
    return Spread(*made)


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
        return sum(self.split)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one scenario, up to the last that fits the model. Any number of rate cards may price them."""

    scenario: Scenario
    inputs: Sequence[int]  # I_1, I_2, ...
    cached: Sequence[int]  # entry k is C_1 + ... + C_k; empty where caching is off
    overflow_at: int | None  # the first turn that does not fit

    def price(self, card: RateCard, turns: int, *, most: int = MAX_TURNS) -> Run:
        """Return a run of *turns* calls, no more than were planned. Only the first *most* of them are counted."""
        last = min(turns, most, len(self.inputs))
        caching = self.scenario.hit_percent > 0 and turns > 1 and card.reads_cache
        ends = [*(bisect_right(self.inputs, tokens, 0, last) for tokens in card.thresholds), last]  # of each tier
        usages, bills = [], []
        for rates, start, end in zip(card.bands, (0, *ends), ends, strict=False):
            if end > start:
                sent = (end - start) * (self.inputs[start] + self.inputs[end - 1]) // 2
                cached = self.cached[end] - self.cached[start] if caching else 0
                written = sent - cached if caching and card.bills_writes else 0
                usages.append(Usage(sent, cached, written, (end - start) * self.scenario.output))
                bills.append(rates.bill(usages[-1], calls=end - start))
        return Run(
            turns=last,
            usage=Usage(*map(sum, zip(*usages, strict=True))),
            reasoning=last * self.scenario.reasoning,
            split=Split(*map(sum, zip(*bills, strict=True))),
            overflow_at=self.overflow_at if self.overflow_at is not None and self.overflow_at <= turns else None,
            higher_tier_at=ends[0] + 1 if ends[0] < last else None,
        )


def plan_calls(scenario: Scenario, limits: ModelLimits, turns: int) -> Calls:
    """Return the first *turns* calls of *scenario*, or fewer if more do not fit the model."""
    first, growth, hit = scenario.first_input, scenario.growth, scenario.hit_percent
    inputs = range(first, first + turns * growth, growth) if growth else [first] * turns
    fitting = bisect_right(inputs, scenario.longest_input(limits))
    short = bisect_left(inputs, limits.cache_minimum)  # calls too short to be cached
    held = (hit * tokens // 100 for tokens in inputs[short:fitting])  # C of the calls after them
    return Calls(
        scenario=scenario,
        inputs=inputs[:fitting],
        cached=[*[0] * (short + 1), *accumulate(held, initial=0)] if hit else [],
        overflow_at=fitting + 1 if fitting < turns else None,
    )
