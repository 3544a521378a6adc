"""One model's row of an estimate, as JSON values: its tokens, costs, possible savings, and notes for the reader."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from estimator.families import FAMILIES, PromptTokens, TextCount, prompt_tokens
from estimator.rates import RateCard, usd, usd_text
from estimator.request import MAX_TURNS, EstimateRequest
from estimator.turns import CACHE_HIT, Run, Spread, plan_calls, scenarios

if TYPE_CHECKING:
    from estimator.catalog import PricedModel  # importing them at run time takes a second
    from estimator.prices import PriceHistory

Json = dict[str, object]

PRICED, PARTIAL, UNPRICED, UNKNOWN = "priced", "partial", "unpriced", "unknown_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """The answer for one model. *cost* is that of the run in UNITS; None if no call fits or no price is known."""

    requested: str
    name: str | None  # of the model; None: unknown
    status: str
    answer: Json  # rank and times_cheapest are None until all models are compared
    cost: Spread[int] | None = None
    problem: str = ""  # why no price is known


def unknown_row(requested: str, did_you_mean: list[str]) -> EstimateRow:
    """Return the row of a name that no model has."""
    problem = f"{requested!a} is unknown" + (f"; did you mean {' or '.join(did_you_mean)}?" if did_you_mean else "")
    answer = {**_row_json(requested, UNKNOWN), "did_you_mean": did_you_mean}
    return EstimateRow(requested=requested, name=None, status=UNKNOWN, answer=answer, problem=problem)


def price_row(
    requested: str, model: "PricedModel", request: EstimateRequest, count: TextCount, moment: datetime
) -> EstimateRow:
    """Return the row of *model*. *count* is the count of request.prompt in the encoding of the model's family."""
    prompt = prompt_tokens(FAMILIES[model.family], count)
    prices = model.prices
    card = prices.at(moment) if prices else None
    if prices is None or card is None:
        answer = _row_json(requested, UNPRICED, model) | {
            "tokens": _tokens(prompt),
            "notes": [note("unpriced", "The price table has no price for its input and output tokens.")],
        }
        problem = f"{requested!a} has no known price for input and output tokens"
        return EstimateRow(requested=requested, name=model.name, status=UNPRICED, answer=answer, problem=problem)
    pricing = _Pricing(request, model, prices=prices, card=card, prompt=prompt, moment=moment)
    status = PRICED if pricing.runs.expected.overflow_at is None else PARTIAL
    answer = _row_json(requested, status, model) | pricing.run_members()
    cost = None
    if pricing.runs.expected.turns:
        cost = envelope(pricing.runs)
        answer |= pricing.cost_members(cost)
    return EstimateRow(requested=requested, name=model.name, status=status, answer=answer, cost=cost)


def _row_json(requested: str, status: str, model: "PricedModel | None" = None) -> Json:
    """Return a row with all its members and without any price."""
    return {
        "requested_id": requested,
        "model": model.name if model else None,
        "provider": model.provider if model else None,
        "cluster": model.cluster if model else None,
        "status": status,
        "tokens": None,
        "cost_usd": None,
        "multiplied_usd": None,
        "cost_split_usd": None,
        "batch_cost_usd": None,
        "context_window": model.limits.context_window if model else None,
        "max_input_tokens": model.limits.max_input if model else None,
        "max_output_tokens": model.limits.max_output if model else None,
        "turns_priced": None,
        "context_overflow": False,
        "overflow_at_turn": None,
        "higher_tier_at_turn": None,
        "price_changes_on": None,
        "turns_within_budget": None,
        "rank": None,
        "times_cheapest": None,
        "cheaper_by": [],
        "notes": [],
    }


class _Pricing:
    """One request on one priced model: makes the members of its row."""

    def __init__(
        self,
        request: EstimateRequest,
        model: "PricedModel",
        *,
        prices: "PriceHistory",
        card: RateCard,
        prompt: PromptTokens,
        moment: datetime,
    ) -> None:
        self.request, self.model, self.prices = request, model, prices
        self.card, self.prompt, self.moment = card, prompt, moment
        turns = request.agent_turns
        longest = turns if request.budget_usd is None else MAX_TURNS
        ways = scenarios(request, prompt, FAMILIES[model.family], model.limits, reasons=model.reasons)
        self.calls = ways.map(lambda way: plan_calls(way, model.limits, longest))
        expected = self.calls.expected.price(card, turns)
        low, high = (calls.price(card, turns, most=expected.turns) for calls in (self.calls.low, self.calls.high))
        self.runs = Spread(low, expected, high)
        batch = prices.batch_at(moment)
        self.batch_run = self.calls.expected.price(batch, turns) if batch else None

    def run_members(self) -> Json:
        """Return the members that a run has even if not one of its calls fits the model."""
        run, budget = self.runs.expected, self.request.budget_usd
        within = None if budget is None else self.calls.map(lambda calls: calls.turns_within(budget, self.card))
        return {
            "tokens": _tokens(self.prompt)
            | {
                "input": self.runs.map(lambda run: run.usage.input)._asdict(),
                "cached_input": self.runs.map(lambda run: run.usage.cached)._asdict(),
                "cache_write": self.runs.map(lambda run: run.usage.written)._asdict(),
                "output": self.runs.map(lambda run: run.usage.output)._asdict(),
                "reasoning": self.runs.map(lambda run: run.reasoning)._asdict(),
            },
            "turns_priced": run.turns,
            "context_overflow": run.overflow_at is not None,
            "overflow_at_turn": run.overflow_at,
            "higher_tier_at_turn": run.higher_tier_at,
            "price_changes_on": day_text(self.prices.next_change(self.moment)),
            "turns_within_budget": within._asdict() if within else None,
            "notes": [*self.notes_on_fit(), *self.notes_on_tokens(), *self.notes_on_price()],
        }

    def cost_members(self, cost: Spread[int]) -> Json:
        """Return the members of a run that costs something: *cost*, in UNITS."""
        once = envelope(self.calls.map(lambda calls: calls.price(self.card, 1)))
        split = {part: money(units) for part, units in self.runs.expected.split._asdict().items()}
        if not self.runs.expected.split.requests:
            del split["requests"]
        return {
            "cost_usd": cost.map(money)._asdict(),
            "multiplied_usd": once.map(lambda units: money(self.request.agent_turns * units))._asdict(),
            "cost_split_usd": split,
            "batch_cost_usd": money(self.batch_run.units) if self.batch_run else None,
            "cheaper_by": self.savings(),
        }

    def savings(self) -> list[Json]:
        """Return the changes that would make the expected run cheaper, the largest saving first."""
        calls, spent, turns = self.calls.expected, self.runs.expected, self.request.agent_turns
        off = self.request.cache == "off"
        other = replace(calls.scenario, hit_percent=CACHE_HIT.expected if off else 0)
        other_cache = plan_calls(other, self.model.limits, turns).price(self.card, turns)
        found: list[tuple[str, Run, Json]] = [("cache" if off else "cache_off", other_cache, {})]
        if self.batch_run is not None:
            found.append(("batch", self.batch_run, {}))
        if spent.higher_tier_at is not None:
            # Keeping the context short saves at least the difference in rates for the tokens that remain.
            details: Json = {"input_tokens": self.card.thresholds[0], "from_turn": spent.higher_tier_at}
            found.append(("stay_under_tier", calls.price(self.card.below_tiers(), turns), details))
        if spent.turns == turns > 1:
            found.append(("fewer_turns", calls.price(self.card, turns - 1), {"agent_turns": turns - 1}))
        if (off_peak := self.prices.off_peak(self.moment)) is not None:
            start, card = off_peak
            found.append(("off_peak", calls.price(card, turns), {"from": f"{start:%H:%M}Z"}))
        found.sort(key=lambda one: (one[1].units, one[0]))
        return [
            {"change": change, "saves_usd": money(spent.units - run.units), **details}
            for change, run, details in found
            if run.units < spent.units
        ]

    def notes_on_fit(self) -> Iterator[Json]:
        runs, longest = self.runs, self.model.limits.max_output
        if runs.expected.overflow_at is not None:
            message = f"Only {runs.expected.turns} of {self.request.agent_turns} turns fit; the costs are theirs alone."
            yield note("context_overflow", message)
        elif runs.high.overflow_at is not None:
            yield note("high_overflows", f"In the high scenario turn {runs.high.overflow_at} no longer fits.")
        if longest is not None and self.calls.high.scenario.output >= longest:
            yield note("answer_cut", f"Answers end at this model's {longest} output tokens.")

    def notes_on_tokens(self) -> Iterator[Json]:
        if self.prompt.widened:
            yield note("non_ascii_text", "Over 20 % of the characters are not ASCII: the token bounds are widened.")
        if self.prompt.method in {"weak", "unmeasured"}:
            yield note("token_count_weak", "How this provider counts tokens was seen too rarely for tight bounds.")
        if not self.model.default:
            message = "Outside the default catalogue: its output limit and reasoning are unknown."
            yield note("outside_catalogue", message)
        elif self.request.reasoning == "high" and not self.model.reasons:
            yield note("no_reasoning", "This model does not reason; reasoning is not counted.")

    def notes_on_price(self) -> Iterator[Json]:
        if self.request.agent_turns > 1 and self.request.cache == "auto" and not self.card.reads_cache:
            yield note("no_cache_price", "No price for cached input is known: every turn is billed in full.")
        if self.prices.depends_on_hour():
            at = f"{self.moment:%H:%M} UTC"
            yield note("time_of_day_price", f"The price depends on the time of day; this is the one of {at}.")
        if self.batch_run is None:
            yield note("no_batch_price", "No batch price is known.")
        elif self.card.reads_cache and not self.prices.batch_covers_cache(self.moment):
            yield note("batch_cache_at_standard_price", "In batch, cached input is billed at its standard price.")
        if self.model.deprecated:
            yield note("deprecated", "The provider has deprecated this model.")


def _tokens(prompt: PromptTokens) -> Json:
    bounds = {"low": prompt.low, "expected": prompt.expected, "high": prompt.high}
    return {"prompt": {**bounds, "method": prompt.method, "encoding": prompt.encoding}}


def envelope(runs: Spread[Run]) -> Spread[int]:
    """Return the costs of *runs* in UNITS, with low and high widened so that they include the expected cost.

    A run with fewer tokens can cost more, because it is too short to be cached. A run with more tokens can cost less,
    because it fills the context window earlier.
    """
    low, expected, high = (run.units for run in runs)
    return Spread(min(low, expected), expected, max(expected, high))


def note(code: str, message: str, param: str | None = None) -> Json:
    """Return a note for the reader. Clients switch on *code*; *param* is the member that it is about."""
    about: Json = {"param": param} if param else {}
    return {"code": code, "message": message, **about}


def money(units: int) -> str:
    return usd_text(usd(units))


def day_text(day: date | None) -> str | None:
    return day.isoformat() if day else None
