"""Builds the answer: the ranking, the overlaps, and the JSON that HTTP and the command line share."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import combinations
from typing import TYPE_CHECKING

from estimator.families import FAMILIES
from estimator.rates import RateCard, Rates, usd_text
from estimator.request import EstimateRequest
from estimator.row import PRICED, UNKNOWN, EstimateRow, Json, day_text, money, note
from estimator.turns import CACHE_HIT, Spread

if TYPE_CHECKING:
    from estimator.catalog import PricedModel, PriceSource  # importing them at run time takes a second

ASSUMPTIONS_VERSION = "1"
"""Changed whenever the same request and prices would give different numbers."""

ASSUMPTIONS = [
    note("envelope", "low and high are scenarios of how a run may go, an envelope, not percentiles or limits."),
    note(
        "whole_history", "Every turn sends the whole conversation again: each answer and each tool result adds to it."
    ),
    note(
        "output_by_complexity",
        "Answer and tool result lengths are guessed from complexity unless output_tokens is given.",
    ),
    note("reasoning", "A model that can reason is taken to do so: 100 + 1.5 x the answer's tokens, 0.3x low, 4x high."),
    note(
        "cache_hits",
        f"With cache auto the caller is taken to use prompt caching: {CACHE_HIT.low} / {CACHE_HIT.expected} / "
        f"{CACHE_HIT.high} % of the previous turn is read from it.",
    ),
    note("token_counts", "tokens.prompt.method says how the prompt was counted; only exact_text is a count."),
    note("list_prices", "Public list prices in USD at priced_at, without taxes, discounts, tools, images or storage."),
]


def document(
    request: EstimateRequest, rows: Sequence[EstimateRow], warnings: list[Json], source: "PriceSource", moment: datetime
) -> Json:
    """Return the answer at the prices of *moment*. Money and ratios are strings, times are RFC 3339 in UTC."""
    ranking = rank(rows)
    return {
        "priced_at": time_text(moment),
        "currency": "USD",
        "inputs": _inputs(request),
        "price_source": _source(source, moment),
        "models": [row.answer for row in rows],
        "cheapest": {"model": ranking[0][0], "cost_usd": money(ranking[0][1].expected)} if ranking else None,
        "ranking": [name for name, _ in ranking],
        "ranking_overlaps": [
            [cheaper, dearer] for (cheaper, a), (dearer, b) in combinations(ranking, 2) if a.high >= b.low
        ],
        "unknown_models": [row.requested for row in rows if row.status == UNKNOWN],
        "warnings": warnings,
        "assumptions_version": ASSUMPTIONS_VERSION,
        "assumptions": ASSUMPTIONS,
    }


def rank(rows: Sequence[EstimateRow]) -> list[tuple[str, Spread[int]]]:
    """Return names and costs of the models that have a price for all turns, the cheapest first, and write their ranks.

    Two models overlap if the cheaper one may cost as much as the other. Then their order is likely, but not certain.
    """
    priced = [(row.cost, row.name, row) for row in rows if row.status == PRICED and row.cost and row.name]
    priced.sort(key=lambda one: (one[0].expected, one[1]))
    for place, (cost, _, row) in enumerate(priced, 1):
        times = Decimal(cost.expected) / Decimal(priced[0][0].expected)  # never 0: a price of 0 counts as unknown
        row.answer["rank"] = place
        row.answer["times_cheapest"] = str(times.quantize(Decimal("0.1"), ROUND_HALF_EVEN))
    return [(name, cost) for cost, name, _ in priced]


def listing(models: Sequence["PricedModel"], source: "PriceSource", moment: datetime) -> Json:
    """Return the default catalogue with its prices at *moment*."""
    return {
        "object": "list",
        "price_source": _source(source, moment),
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


def _source(source: "PriceSource", moment: datetime) -> Json:
    return {
        "name": source.name,
        "version": source.version,
        "newest_price": day_text(source.newest(moment)),
        "overlay": day_text(source.overlay),
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
        "price_changes_on": day_text(prices.next_change(moment)) if prices else None,
        "price_depends_on_hour": prices.depends_on_hour() if prices else False,
        "source": {"name": source.name, "version": source.version, "url": model.url},
        "checked_on": day_text(source.overlay),
    }


def _card(card: RateCard) -> Json:
    """Return USD per million tokens, and for each tier the rates of a whole call with more input than that."""

    def rates(band: Rates) -> Json:
        return {
            "input_per_mtok_usd": money(band.input * 1_000_000),
            "cached_input_per_mtok_usd": money(band.cached * 1_000_000) if card.reads_cache else None,
            "cache_write_per_mtok_usd": money(band.written * 1_000_000) if card.bills_writes else None,
            "output_per_mtok_usd": money(band.output * 1_000_000),
        }

    tiers = zip(card.thresholds, card.bands[1:], strict=True)
    return {**rates(card.bands[0]), "tiers": [{"above_input_tokens": above, **rates(band)} for above, band in tiers]}
