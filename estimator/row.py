"""One model's part of an estimate: its tokens, costs, possible savings, and notes for the reader."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from estimator.families import FAMILIES, PromptTokens, TextCount, prompt_tokens
from estimator.rates import RateCard
from estimator.request import MAX_TURNS, EstimateRequest
from estimator.turns import CACHE_HIT, Calls, Run, Spread, plan_calls, scenarios

if TYPE_CHECKING:
    from estimator.catalog import PricedModel, PriceHistory  # importing them at run time takes a second

PRICED, PARTIAL, UNPRICED, UNKNOWN = "priced", "partial", "unpriced", "unknown_model"


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the reader. Clients switch on *code*."""

    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Saving:
    """A change that would make the expected run cheaper by *units* UNITS, with details of the change."""

    change: str
    units: int
    details: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The cost of a run in UNITS; low <= expected <= high."""

    run: Spread[int]
    multiplied: Spread[int]  # the number of turns times the cost of one turn
    batch: int | None  # the expected run at the batch API's rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The answer for one model. Fields that do not apply to its status are None."""

    requested: str
    status: str
    model: "PricedModel | None" = None
    did_you_mean: tuple[str, ...] = ()
    prompt: PromptTokens | None = None
    runs: Spread[Run] | None = None  # as many turns as the expected run, or fewer where they do not fit
    costs: Costs | None = None  # None if not one call fits, or no price is known
    price_changes_on: date | None = None
    turns_within_budget: Spread[int] | None = None
    savings: tuple[Saving, ...] = ()
    notes: tuple[Note, ...] = ()


def row_of(requested: str, model: "PricedModel", request: EstimateRequest, count: TextCount, moment: datetime) -> Row:
    """Return the row of a known model. *count* is the count of request.prompt in the encoding of the model's family."""
    family = FAMILIES[model.family]
    prompt = prompt_tokens(family, count)
    card = model.prices.at(moment) if model.prices else None
    if model.prices is None or card is None:
        reason = Note("unpriced", "The price table has no price for its input and output tokens.")
        return Row(requested=requested, status=UNPRICED, model=model, prompt=prompt, notes=(reason,))
    longest = request.agent_turns if request.budget_usd is None else MAX_TURNS
    ways = scenarios(request, prompt, family, model.limits, reasons=model.reasons).map(
        lambda way: plan_calls(way, model.limits, longest)
    )
    expected = ways.expected.price(card, request.agent_turns)
    pricing = _Pricing(
        request=request,
        model=model,
        history=model.prices,
        moment=moment,
        card=card,
        batch=model.prices.batch_at(moment),
        prompt=prompt,
        ways=ways,
        runs=Spread(
            ways.low.price(card, request.agent_turns, most=expected.turns),
            expected,
            ways.high.price(card, request.agent_turns, most=expected.turns),
        ),
    )
    return Row(
        requested=requested,
        status=PRICED if expected.overflow_at is None else PARTIAL,
        model=model,
        prompt=prompt,
        runs=pricing.runs,
        costs=pricing.costs() if expected.turns else None,
        price_changes_on=model.prices.next_change(moment),
        turns_within_budget=pricing.turns_within_budget(),
        savings=tuple(pricing.savings()) if expected.turns else (),
        notes=(*pricing.notes_on_fit(), *pricing.notes_on_tokens(), *pricing.notes_on_price()),
    )


def unknown_row(requested: str, did_you_mean: tuple[str, ...]) -> Row:
    return Row(requested=requested, status=UNKNOWN, did_you_mean=did_you_mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pricing:
    """Everything that is known about one request on one priced model."""

    request: EstimateRequest
    model: "PricedModel"
    history: "PriceHistory"
    moment: datetime
    card: RateCard
    batch: RateCard | None
    prompt: PromptTokens
    ways: Spread[Calls]
    runs: Spread[Run]

    def _run(self, way: Calls, *, card: RateCard | None = None, turns: int | None = None) -> Run:
        return way.price(card or self.card, turns or self.request.agent_turns)

    def costs(self) -> Costs:
        once = _envelope(self.ways.map(lambda way: self._run(way, turns=1)))
        return Costs(
            run=_envelope(self.runs),
            multiplied=once.map(lambda units: self.request.agent_turns * units),
            batch=self._run(self.ways.expected, card=self.batch).units if self.batch else None,
        )

    def turns_within_budget(self) -> Spread[int] | None:
        budget = self.request.budget_usd
        if budget is None:
            return None
        return self.ways.map(lambda way: way.turns_within(budget, self.card))

    def savings(self) -> list[Saving]:
        """Return the changes that would make the expected run cheaper, the largest saving first."""
        way, spent, turns = self.ways.expected, self.runs.expected, self.request.agent_turns
        cached = CACHE_HIT.expected if self.request.cache == "off" else 0

        def saving(change: str, other: Run, *details: tuple[str, int | str]) -> Saving:
            return Saving(change, spent.units - other.units, details)

        found = [
            saving(
                "cache" if cached else "cache_off",
                self._run(
                    plan_calls(replace(way.scenario, hit_percent=cached), self.model.limits, self.request.agent_turns)
                ),
            )
        ]
        if self.batch is not None:
            found.append(saving("batch", self._run(way, card=self.batch)))
        if spent.higher_tier_at is not None:
            # Keeping the context short saves at least the difference in rates for the tokens that remain.
            details = ("input_tokens", self.card.thresholds[0]), ("from_turn", spent.higher_tier_at)
            found.append(saving("stay_under_tier", self._run(way, card=self.card.below_tiers()), *details))
        if spent.turns == turns > 1:
            found.append(saving("fewer_turns", self._run(way, turns=turns - 1), ("agent_turns", turns - 1)))
        if (off_peak := self.history.off_peak(self.moment)) is not None:
            start, card = off_peak
            found.append(saving("off_peak", self._run(way, card=card), ("from", f"{start:%H:%M}Z")))
        return sorted((one for one in found if one.units > 0), key=lambda one: (-one.units, one.change))

    def notes_on_fit(self) -> Iterator[Note]:
        runs, longest = self.runs, self.model.limits.max_output
        if runs.expected.overflow_at is not None:
            message = f"Only {runs.expected.turns} of {self.request.agent_turns} turns fit; the costs are theirs alone."
            yield Note("context_overflow", message)
        elif runs.high.overflow_at is not None:
            yield Note("high_overflows", f"In the high scenario turn {runs.high.overflow_at} no longer fits.")
        if longest is not None and self.ways.high.scenario.output >= longest:
            yield Note("answer_cut", f"Answers end at this model's {longest} output tokens.")

    def notes_on_tokens(self) -> Iterator[Note]:
        if self.prompt.widened:
            yield Note("non_ascii_text", "Over 20 % of the characters are not ASCII: the token bounds are widened.")
        if self.prompt.method in {"weak", "unmeasured"}:
            yield Note("token_count_weak", "How this provider counts tokens was seen too rarely for tight bounds.")
        if not self.model.default:
            yield Note(
                "outside_catalogue", "Outside the default catalogue: its output limit and reasoning are unknown."
            )
        elif self.request.reasoning == "high" and not self.model.reasons:
            yield Note("no_reasoning", "This model does not reason; reasoning is not counted.")

    def notes_on_price(self) -> Iterator[Note]:
        if self.request.agent_turns > 1 and self.request.cache == "auto" and not self.card.reads_cache:
            yield Note("no_cache_price", "No price for cached input is known: every turn is billed in full.")
        if self.history.depends_on_hour():
            at = f"{self.moment:%H:%M} UTC"
            yield Note("time_of_day_price", f"The price depends on the time of day; this is the one of {at}.")
        if self.batch is None:
            yield Note("no_batch_price", "No batch price is known.")
        elif self.card.reads_cache and not self.history.batch_covers_cache(self.moment):
            yield Note("batch_cache_at_standard_price", "In batch, cached input is billed at its standard price.")
        if self.model.deprecated:
            yield Note("deprecated", "The provider has deprecated this model.")


def _envelope(runs: Spread[Run]) -> Spread[int]:
    """Return the costs of *runs*, with low and high widened to include the expected run.

    A run with fewer tokens can cost more, because it is too short to be cached. A run with more tokens can cost less,
    because it fills the context window earlier.
    """
    units = runs.map(lambda one: one.units)
    return Spread(min(units.low, units.expected), units.expected, max(units.expected, units.high))
