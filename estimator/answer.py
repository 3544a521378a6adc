"""Turns a request into the whole answer: rows of models, ranking, overlaps, hosted transcription, assumptions.

The answer consists of JSON values: money and ratios are strings, times are RFC 3339 in UTC. HTTP and the command line
share it.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, ROUND_UP, Decimal
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from estimator.request import EstimateRequest, Fault, UnknownModels
from estimator.tokens import FAMILIES, PromptTokens, TextCount, TokenCounter, prompt_tokens
from estimator.turns import CACHE_HIT, RateCard, Rates, Run, Spread, plan_calls, scenarios, usd, usd_text

if TYPE_CHECKING:  # importing them at run time takes a second
    from estimator.catalog import Catalog, HostedTranscription, PricedModel, PriceSource, Retirement

Json = dict[str, object]

PRICED, PARTIAL, UNPRICED, UNKNOWN = "priced", "partial", "unpriced", "unknown_model"

ASSUMPTIONS_VERSION = "2"
"""Changed whenever the same request and prices would give different numbers."""


def note(code: str, message: str, param: str | None = None) -> Json:
    """Return a note for the reader. Clients switch on *code*; *param* is the member that it is about."""
    return {"code": code, "message": message, **({"param": param} if param else {})}


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


# --- one row


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
    card = model.prices.at(moment) if model.prices else None
    if model.prices is None or card is None:
        answer = _row_json(requested, UNPRICED, model) | {
            "tokens": _tokens(prompt),
            "notes": [note("unpriced", "The price table has no price for its input and output tokens.")],
        }
        problem = f"{requested!a} has no known price for input and output tokens"
        return EstimateRow(requested=requested, name=model.name, status=UNPRICED, answer=answer, problem=problem)
    turns = request.agent_turns
    ways = scenarios(request, prompt, FAMILIES[model.family], model.limits, reasons=model.reasons)
    calls = ways.map(lambda way: plan_calls(way, model.limits, turns))
    expected = calls.expected.price(card, turns)
    low, high = (one.price(card, turns, most=expected.turns) for one in (calls.low, calls.high))
    runs = Spread(low, expected, high)
    answer = _row_json(requested, PRICED if expected.overflow_at is None else PARTIAL, model) | {
        "tokens": _tokens(prompt)
        | {
            "input": runs.map(lambda run: run.usage.input)._asdict(),
            "cached_input": runs.map(lambda run: run.usage.cached)._asdict(),
            "cache_write": runs.map(lambda run: run.usage.written)._asdict(),
            "output": runs.map(lambda run: run.usage.output)._asdict(),
            "reasoning": runs.map(lambda run: run.reasoning)._asdict(),
        },
        "turns_priced": expected.turns,
        "context_overflow": expected.overflow_at is not None,
        "overflow_at_turn": expected.overflow_at,
        "higher_tier_at_turn": expected.higher_tier_at,
        "price_changes_on": day_text(model.prices.next_change(moment)),
        "notes": [
            *_notes_on_fit(runs, turns, model.limits.max_output, calls.high.scenario.output),
            *_notes_on_tokens(prompt, model, request),
            *_notes_on_price(card, model, request, moment),
        ],
    }
    if not expected.turns:  # not even the first call fits
        return EstimateRow(requested=requested, name=model.name, status=PARTIAL, answer=answer)

    fewer = calls.expected.price(card, turns - 1) if expected.turns == turns > 1 else None
    below = calls.expected.price(card.below_tiers(), turns) if expected.higher_tier_at is not None else None
    off = request.cache == "off"
    other_way = replace(calls.expected.scenario, hit_percent=CACHE_HIT.expected if off else 0)
    other_cache = plan_calls(other_way, model.limits, turns).price(card, turns)
    savings: list[tuple[str, Run | None, Json]] = [
        ("cache" if off else "cache_off", other_cache, {}),
        # Keeping the context short saves at least the difference in rates for the tokens that remain.
        (
            "stay_under_tier",
            below,
            {"input_tokens": next(iter(card.thresholds), None), "from_turn": expected.higher_tier_at},
        ),
        ("fewer_turns", fewer, {"agent_turns": turns - 1}),
    ]
    cheaper = [(change, run.units, more) for change, run, more in savings if run and run.units < expected.units]
    cheaper.sort(key=lambda one: (one[1], one[0]))
    cost = envelope(runs)
    once = envelope(calls.map(lambda one: one.price(card, 1)))
    split = {part: money(units) for part, units in expected.split._asdict().items()}
    if not expected.split.requests:
        del split["requests"]
    answer |= {
        "cost_usd": cost.map(money)._asdict(),
        "multiplied_usd": once.map(lambda units: money(turns * units))._asdict(),
        "cost_split_usd": split,
        "cheaper_by": [
            {"change": change, "saves_usd": money(expected.units - units), **more} for change, units, more in cheaper
        ],
    }
    return EstimateRow(requested=requested, name=model.name, status=str(answer["status"]), answer=answer, cost=cost)


def envelope(runs: Spread[Run]) -> Spread[int]:
    """Return the costs of *runs* in UNITS, with low and high widened so that they include the expected cost.

    A run with fewer tokens can cost more, because it is too short to be cached. A run with more tokens can cost less,
    because it fills the context window earlier.
    """
    low, expected, high = (run.units for run in runs)
    return Spread(min(low, expected), expected, max(expected, high))


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
        "context_window": model.limits.context_window if model else None,
        "max_input_tokens": model.limits.max_input if model else None,
        "max_output_tokens": model.limits.max_output if model else None,
        "turns_priced": None,
        "context_overflow": False,
        "overflow_at_turn": None,
        "higher_tier_at_turn": None,
        "price_changes_on": None,
        **_end_of(model.retirement if model else None),
        "rank": None,
        "times_cheapest": None,
        "cheaper_by": [],
        "notes": [],
    }


def _end_of(retirement: "Retirement | None") -> Json:
    if retirement is None:
        return {"retires_on": None, "replaced_by": None}
    return {"retires_on": day_text(retirement.on), "replaced_by": retirement.replaced_by}


def _tokens(prompt: PromptTokens) -> Json:
    bounds = {"low": prompt.low, "expected": prompt.expected, "high": prompt.high}
    return {"prompt": {**bounds, "method": prompt.method, "encoding": prompt.encoding}}


def _notes_on_fit(runs: Spread[Run], turns: int, longest: int | None, high_output: int) -> Iterator[Json]:
    if runs.expected.overflow_at is not None:
        message = f"Only {runs.expected.turns} of {turns} turns fit; the costs are theirs alone."
        yield note("context_overflow", message)
    elif runs.high.overflow_at is not None:
        yield note("high_overflows", f"In the high scenario turn {runs.high.overflow_at} no longer fits.")
    if longest is not None and high_output >= longest:
        yield note("answer_cut", f"Answers end at this model's {longest} output tokens.")


def _notes_on_tokens(prompt: PromptTokens, model: "PricedModel", request: EstimateRequest) -> Iterator[Json]:
    if prompt.widened:
        yield note("non_ascii_text", "Over 20 % of the characters are not ASCII: the token bounds are widened.")
    if prompt.method in {"weak", "unmeasured"}:
        yield note("token_count_weak", "How this provider counts tokens was seen too rarely for tight bounds.")
    if not model.default:
        yield note("outside_catalogue", "Outside the default catalogue: its output limit and reasoning are unknown.")
    elif request.reasoning == "high" and not model.reasons:
        yield note("no_reasoning", "This model does not reason; reasoning is not counted.")


def _notes_on_price(card: RateCard, model: "PricedModel", request: EstimateRequest, moment: datetime) -> Iterator[Json]:
    if request.agent_turns > 1 and request.cache == "auto" and not card.reads_cache:
        yield note("no_cache_price", "No price for cached input is known: every turn is billed in full.")
    if model.prices is not None and model.prices.depends_on_hour():
        at = f"{moment:%H:%M} UTC"
        yield note("time_of_day_price", f"The price depends on the time of day; this is the one of {at}.")
    if (end := model.retirement) is not None:
        instead = f" Use {end.replaced_by} instead." if end.replaced_by else ""
        gone = end.on <= moment.date()
        yield note(
            "retired" if gone else "retires",
            f"Its provider {'shut it down' if gone else 'shuts it down'} on {end.on}.{instead}",
        )
    elif model.deprecated:
        yield note("deprecated", "The provider has deprecated this model.")


# --- the whole answer


def document(
    request: EstimateRequest,
    rows: Sequence[EstimateRow],
    *,
    warnings: list[Json],
    source: "PriceSource",
    hosted: "Sequence[HostedTranscription]",
    moment: datetime,
) -> Json:
    """Return the answer at the prices of *moment*. *hosted*: what transcription costs elsewhere, by the hour."""
    ranking = rank(rows)
    return {
        "priced_at": time_text(moment),
        "currency": "USD",
        "inputs": {
            "prompt_chars": len(request.prompt),
            "prompt_sha256": hashlib.sha256(request.prompt.encode()).hexdigest(),
            "complexity": request.complexity,
            "agent_turns": request.agent_turns,
            "cache": request.cache,
            "reasoning": request.reasoning,
            "output_tokens": request.output_tokens,
            "system_tokens": request.system_tokens,
            "audio_seconds": None if request.audio_seconds is None else float(request.audio_seconds),
        },
        "price_source": _source(source, moment),
        "models": [row.answer for row in rows],
        "cheapest": {"model": ranking[0][0], "cost_usd": money(ranking[0][1].expected)} if ranking else None,
        "ranking": [name for name, _ in ranking],
        "ranking_overlaps": [
            [cheaper, dearer] for (cheaper, a), (dearer, b) in combinations(ranking, 2) if a.high >= b.low
        ],
        "hosted_transcription": None if request.audio_seconds is None else _hosted(hosted, request.audio_seconds),
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


def _hosted(models: "Sequence[HostedTranscription]", seconds: Decimal) -> list[Json]:
    """Return what each hosted model takes for *seconds* of audio, rounded up to 10^-9 USD. Here it costs nothing."""
    return [
        {
            "model": one.name,
            "provider": one.provider,
            "usd_per_hour": usd_text(one.usd_per_hour),
            "cost_usd": usd_text((one.usd_per_hour * seconds / 3600).quantize(Decimal("1e-9"), ROUND_UP)),
            **_end_of(one.retirement),
        }
        for one in models
    ]


def listing(models: "Sequence[PricedModel]", source: "PriceSource", moment: datetime) -> Json:
    """Return the default catalogue with its prices at *moment*."""
    return {
        "object": "list",
        "price_source": _source(source, moment),
        "priced_at": time_text(moment),
        "data": [_model(model, source, moment) for model in models],
    }


def _source(source: "PriceSource", moment: datetime) -> Json:
    return {
        "name": source.name,
        "version": source.version,
        "newest_price": day_text(source.newest(moment)),
        "overlay": day_text(source.overlay),
    }


def _model(model: "PricedModel", source: "PriceSource", moment: datetime) -> Json:
    prices = model.prices
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
        "price_changes_on": day_text(prices.next_change(moment)) if prices else None,
        "price_depends_on_hour": prices.depends_on_hour() if prices else False,
        **_end_of(model.retirement),
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


# --- values


def money(units: int) -> str:
    return usd_text(usd(units))


def day_text(day: date | None) -> str | None:
    return day.isoformat() if day else None


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, as in ULIDs


def estimate_id(moment: datetime, entropy: bytes) -> str:
    """Return `est_` and a ULID, which sorts by *moment* and is unique by 10 bytes of *entropy*."""
    value = int(moment.timestamp() * 1000) << 80 | int.from_bytes(entropy[:10])
    return "est_" + "".join(_BASE32[value >> shift & 31] for shift in range(125, -1, -5))


MOST_GUESSED = 10
"""The most unknown names of a request for which the nearest ones are looked for: each takes up to 30 ms."""


class Estimator:
    """Makes estimates with the prices and encodings that it has loaded. All methods are thread-safe, and they block.

    The constructor loads nothing. The first estimate, or warm(), loads the price table and an encoding, which takes
    about a second. The environment is not read; settings come as arguments.
    """

    def __init__(self, *, ranks_dir: Path | None = None, cache_dir: Path | None = None, bundled: bool = True) -> None:
        """*ranks_dir*, *cache_dir* and *bundled* say where TokenCounter looks for rank files."""
        self._counter = TokenCounter(ranks_dir=ranks_dir, cache_dir=cache_dir, bundled=bundled)
        self._catalog: Catalog | None = None
        self._loading = threading.Lock()

    def warm(self) -> None:
        """Load everything that the first estimate would load. Raises BadRankFile."""
        self._prices()
        for family in FAMILIES.values():
            self._counter.count("", family.encoding)

    def estimate(self, request: EstimateRequest, *, now: datetime, estimate_id: str) -> Json:
        """Return the answer to *request*, as JSON values. Raises UnknownModels, BadRankFile."""
        catalog, moment = self._prices(), request.priced_at or now
        warnings = [
            note("unknown_parameter", f"{name} is not known and was ignored.", name) for name in request.unknown_members
        ]
        if not request.prompt:
            warnings.append(note("empty_prompt", "The prompt is empty: only framing is sent.", "prompt"))
        counts: dict[str, TextCount] = {}
        rows: dict[str, EstimateRow] = {}
        for asked in request.models or [model.name for model in catalog.defaults(moment)]:
            guessing = sum(row.status == UNKNOWN for row in rows.values()) < MOST_GUESSED
            row = self._row(asked, request, catalog, counts, moment, guessing=guessing)
            first = rows.setdefault(row.name or f"?{asked.strip().lower()}", row)
            if first is not row:
                message = f"{asked!a} names the same model as {first.requested!a}: one row for both."
                warnings.append(note("duplicate_model", message, "models"))
        if all(row.problem for row in rows.values()):
            raise UnknownModels(
                Fault("models", f"/models/{index}", row.status, f"models: {row.problem}")
                for index, row in enumerate(rows.values())
            )
        if not all(count.exact for count in counts.values()):
            message = "No rank file on this machine: tokens are guessed from characters."
            warnings.append(note("heuristic_tokens", message))
        return {
            "object": "estimate",
            "id": estimate_id,
            "created_at": time_text(now),
            **document(
                request,
                list(rows.values()),
                warnings=warnings,
                source=catalog.source,
                hosted=catalog.hosted_transcription(moment) if request.audio_seconds else (),
                moment=moment,
            ),
        }

    def _row(
        self,
        asked: str,
        request: EstimateRequest,
        catalog: "Catalog",
        counts: dict[str, TextCount],
        moment: datetime,
        *,
        guessing: bool,
    ) -> EstimateRow:
        """Return the row of the model *asked* for. *counts* has the prompt's tokens by encoding, and is added to.

        *guessing*: whether to look for the nearest names if no model is called so.
        """
        model = catalog.find(asked)
        if model is None:
            return unknown_row(asked, catalog.suggest(asked) if guessing else [])
        encoding = FAMILIES[model.family].encoding
        if encoding not in counts:
            counts[encoding] = self._counter.count(request.prompt, encoding)
        return price_row(asked, model, request, counts[encoding], moment)

    def models(self, *, now: datetime) -> Json:
        """Return the default catalogue, as JSON values."""
        catalog = self._prices()
        return listing(catalog.defaults(now), catalog.source, now)

    def refresh(self, feed: Path, *, now: datetime) -> None:
        """Use the prices of the file *feed* from the next estimate on.

        Raises BadPriceFeed or OSError; the prices then stay as they were.
        """
        from estimator.catalog import catalog_from_feed  # noqa: PLC0415  costs a second to import

        self._catalog = catalog_from_feed(_overlay(), feed.read_bytes(), moment=now)

    def _prices(self) -> "Catalog":
        with self._loading:
            if self._catalog is None:
                from estimator.catalog import bundled_catalog  # noqa: PLC0415  costs a second to import

                self._catalog = bundled_catalog(_overlay())
            return self._catalog


def _overlay() -> str:
    return resources.files("estimator").joinpath("catalog.toml").read_text(encoding="utf-8")
