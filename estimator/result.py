"""Builds the answer: the ranking, the overlaps, and the JSON that HTTP and the command line share."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import combinations
from typing import TYPE_CHECKING

from estimator.families import FAMILIES, PromptTokens
from estimator.rates import RateCard, Rates, usd, usd_text
from estimator.request import EstimateRequest, Fault, UnknownModels
from estimator.row import PARTIAL, PRICED, UNKNOWN, Costs, Note, Row, Saving
from estimator.turns import CACHE_HIT, Run, Spread

if TYPE_CHECKING:
    from estimator.catalog import PricedModel, PriceSource  # importing them at run time takes a second

Json = dict[str, object]

ASSUMPTIONS_VERSION = "1"
"""Changed whenever the same request and prices would give different numbers."""

ASSUMPTIONS = (
    Note("envelope", "low and high are scenarios of how a run may go, an envelope, not percentiles or limits."),
    Note(
        "whole_history", "Every turn sends the whole conversation again: each answer and each tool result adds to it."
    ),
    Note(
        "output_by_complexity",
        "Answer and tool result lengths are guessed from complexity unless output_tokens is given.",
    ),
    Note("reasoning", "A model that can reason is taken to do so: 100 + 1.5 x the answer's tokens, 0.3x low, 4x high."),
    Note(
        "cache_hits",
        f"With cache auto the caller is taken to use prompt caching: {CACHE_HIT.low} / {CACHE_HIT.expected} / "
        f"{CACHE_HIT.high} % of the previous turn is read from it.",
    ),
    Note("token_counts", "tokens.prompt.method says how the prompt was counted; only exact_text is a count."),
    Note("list_prices", "Public list prices in USD at priced_at, without taxes, discounts, tools, images or storage."),
)


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with a price for all turns, by their expected cost, then by name."""
    return sorted((row for row in rows if row.status == PRICED), key=lambda row: (_costs(row).run.expected, _name(row)))


def overlaps(ranking: Sequence[Row]) -> list[list[str]]:
    """Return the pairs of models whose envelopes overlap, the cheaper one first. Their order is likely, not certain."""
    return [
        [_name(cheaper), _name(dearer)]
        for cheaper, dearer in combinations(ranking, 2)
        if _costs(cheaper).run.high >= _costs(dearer).run.low
    ]


def check_priced(rows: Sequence[Row]) -> None:
    """Raise UnknownModels, with a reason for each row, unless at least one row has a known price."""
    if any(row.status in {PRICED, PARTIAL} for row in rows):
        return
    raise UnknownModels(
        [Fault("models", f"/models/{index}", row.status, f"models: {_why(row)}") for index, row in enumerate(rows)]
    )


def _why(row: Row) -> str:
    asked = ascii(row.requested)
    if row.status != UNKNOWN:
        return f"{asked} has no known price for input and output tokens"
    return f"{asked} is unknown" + (f"; did you mean {' or '.join(row.did_you_mean)}?" if row.did_you_mean else "")


def document(
    request: EstimateRequest,
    rows: Sequence[Row],
    warnings: Sequence[Note],
    source: "PriceSource",
    *,
    estimate_id: str,
    created_at: datetime,
    priced_at: datetime,
) -> Json:
    """Return the answer as JSON values. Money and ratios are strings, times are RFC 3339 in UTC."""
    ranking = ranked(rows)
    rank = {id(row): place for place, row in enumerate(ranking, 1)}
    cheapest = ranking[0] if ranking else None
    return {
        "object": "estimate",
        "id": estimate_id,
        "created_at": time_text(created_at),
        "priced_at": time_text(priced_at),
        "currency": "USD",
        "inputs": _inputs(request),
        "price_source": source_json(source, priced_at),
        "models": [_row(row, rank.get(id(row)), cheapest) for row in rows],
        "cheapest": {"model": _name(cheapest), "cost_usd": _usd(_costs(cheapest).run.expected)} if cheapest else None,
        "ranking": [_name(row) for row in ranking],
        "ranking_overlaps": overlaps(ranking),
        "unknown_models": [row.requested for row in rows if row.status == UNKNOWN],
        "warnings": [_note(warning) for warning in warnings],
        "assumptions_version": ASSUMPTIONS_VERSION,
        "assumptions": [_note(assumption) for assumption in ASSUMPTIONS],
    }


def listing(models: Sequence["PricedModel"], source: "PriceSource", moment: datetime) -> Json:
    """Return the default catalogue with its prices at *moment*."""
    return {
        "object": "list",
        "price_source": source_json(source, moment),
        "priced_at": time_text(moment),
        "data": [_model(model, source, moment) for model in models],
    }


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, as in ULIDs


def estimate_id(moment: datetime, entropy: bytes) -> str:
    """Return `est_` and a ULID, which sorts by *moment* and is unique by 10 bytes of *entropy*."""
    value = int(moment.timestamp() * 1000) << 80 | int.from_bytes(entropy[:10])
    return "est_" + "".join(_BASE32[value >> shift & 31] for shift in range(125, -1, -5))


def source_json(source: "PriceSource", moment: datetime) -> Json:
    return {
        "name": source.name,
        "version": source.version,
        "newest_price": _day(source.newest(moment)),
        "overlay": _day(source.overlay),
    }


def _inputs(request: EstimateRequest) -> Json:
    return {
        "prompt_chars": len(request.prompt),
        "prompt_sha256": hashlib.sha256(request.prompt.encode()).hexdigest(),
        "complexity": request.complexity,
        "agent_turns": request.agent_turns,
        "cache": request.cache,
        "reasoning": request.reasoning,
        "output_tokens": request.output_tokens,
        "system_tokens": request.system_tokens,
        "budget_usd": usd_text(request.budget_usd) if request.budget_usd is not None else None,
    }


def _row(row: Row, rank: int | None, cheapest: Row | None) -> Json:
    model, runs, costs = row.model, row.runs, row.costs
    answer: Json = {
        "requested_id": row.requested,
        "model": model.name if model else None,
        "provider": model.provider if model else None,
        "cluster": model.cluster if model else None,
        "status": row.status,
        "tokens": _tokens(row.prompt, runs) if row.prompt else None,
        "cost_usd": _spread(costs.run.map(_usd)) if costs else None,
        "multiplied_usd": _spread(costs.multiplied.map(_usd)) if costs else None,
        "cost_split_usd": _split(runs.expected) if runs and costs else None,
        "batch_cost_usd": _usd(costs.batch) if costs and costs.batch is not None else None,
        "context_window": model.limits.context_window if model else None,
        "max_input_tokens": model.limits.max_input if model else None,
        "max_output_tokens": model.limits.max_output if model else None,
        "turns_priced": runs.expected.turns if runs else None,
        "context_overflow": runs is not None and runs.expected.overflow_at is not None,
        "overflow_at_turn": runs.expected.overflow_at if runs else None,
        "higher_tier_at_turn": runs.expected.higher_tier_at if runs else None,
        "price_changes_on": _day(row.price_changes_on),
        "turns_within_budget": _spread(row.turns_within_budget) if row.turns_within_budget else None,
        "rank": rank,
        "times_cheapest": _times(row, cheapest) if rank and cheapest else None,
        "cheaper_by": [_saving(saving) for saving in row.savings],
        "notes": [_note(note) for note in row.notes],
    }
    if row.status == UNKNOWN:
        answer["did_you_mean"] = list(row.did_you_mean)
    return answer


def _tokens(prompt: PromptTokens, runs: Spread[Run] | None) -> Json:
    tokens: Json = {
        "prompt": {
            "low": prompt.low,
            "expected": prompt.expected,
            "high": prompt.high,
            "method": prompt.method,
            "encoding": prompt.encoding,
        }
    }
    if runs is not None:
        tokens |= {
            "input": _spread(runs.map(lambda run: run.usage.input)),
            "cached_input": _spread(runs.map(lambda run: run.usage.cached)),
            "cache_write": _spread(runs.map(lambda run: run.usage.written)),
            "output": _spread(runs.map(lambda run: run.usage.output)),
            "reasoning": _spread(runs.map(lambda run: run.reasoning)),
        }
    return tokens


def _split(run: Run) -> Json:
    split = run.split
    parts: Json = {
        "input": _usd(split.input),
        "cached": _usd(split.cached),
        "cache_write": _usd(split.cache_write),
        "output": _usd(split.output),
    }
    return parts | ({"requests": _usd(split.requests)} if split.requests else {})


def _model(model: "PricedModel", source: "PriceSource", moment: datetime) -> Json:
    prices = model.prices
    batch = prices.batch_at(moment) if prices else None
    return {
        "id": model.name,
        "aliases": list(model.aliases),
        "provider": model.provider,
        "cluster": model.cluster,
        "context_window": model.limits.context_window,
        "max_input_tokens": model.limits.max_input,
        "max_output_tokens": model.limits.max_output,
        "cache_minimum_tokens": model.limits.cache_minimum,
        "reasoning": model.reasons,
        "token_count": FAMILIES[model.family].method,
        "prices": _card(card) if prices and (card := prices.at(moment)) else None,
        "batch_prices": _card(batch) if batch else None,
        "price_changes_on": _day(prices.next_change(moment)) if prices else None,
        "price_depends_on_hour": prices.depends_on_hour() if prices else False,
        "source": {"name": source.name, "version": source.version, "url": model.url},
        "checked_on": _day(source.overlay),
    }


def _card(card: RateCard) -> Json:
    """Return USD per million tokens, and for each tier the rates of a whole call with more input than that."""

    def rates(band: Rates) -> Json:
        return {
            "input_per_mtok_usd": _usd(band.input * 1_000_000),
            "cached_input_per_mtok_usd": _usd(band.cached * 1_000_000) if card.reads_cache else None,
            "cache_write_per_mtok_usd": _usd(band.written * 1_000_000) if card.bills_writes else None,
            "output_per_mtok_usd": _usd(band.output * 1_000_000),
        }

    tiers = zip(card.thresholds, card.bands[1:], strict=True)
    return {**rates(card.bands[0]), "tiers": [{"above_input_tokens": above, **rates(band)} for above, band in tiers]}


def _times(row: Row, cheapest: Row) -> str:
    ratio = Decimal(_costs(row).run.expected) / Decimal(
        _costs(cheapest).run.expected
    )  # never 0: a price of 0 counts as unknown
    return str(ratio.quantize(Decimal("0.1"), ROUND_HALF_EVEN))


def _costs(row: Row) -> Costs:
    assert row.costs is not None, "a fully priced row has costs"
    return row.costs


def _name(row: Row) -> str:
    assert row.model is not None, "a priced row has a model"
    return row.model.name


def _usd(units: int) -> str:
    return usd_text(usd(units))


def _day(day: date | None) -> str | None:
    return day.isoformat() if day else None


def _spread(spread: Spread[int] | Spread[str]) -> Json:
    return {"low": spread.low, "expected": spread.expected, "high": spread.high}


def _saving(saving: Saving) -> Json:
    return {"change": saving.change, "saves_usd": _usd(saving.units), **dict(saving.details)}


def _note(note: Note) -> Json:
    answer: Json = {"code": note.code, "message": note.message}
    return answer | ({"param": note.param} if note.param else {})
