"""The models that can be priced, and their prices at any time: the table of genai-prices and our rows in catalog.toml.

The network updates of genai-prices are never started. Importing this module takes about a second, because genai-prices
builds 2,330 entries. Import it inside the function that needs prices.
"""

import hashlib
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
    _providers_from_raw,  # the only reader of the feed's format; genai-prices is pinned below 0.3 for it
)

from estimator.rates import RateCard, Rates, units_per
from estimator.request import EstimateError
from estimator.turns import DEFAULT_CACHE_MINIMUM, ModelLimits

BATCH = {"processing": "batch"}
PER_MILLION, PER_THOUSAND = 1_000_000, 1000
LARGEST_JUMP = 100
"""The largest factor by which a refresh may change a default model's price. A mistaken unit changes it by 1000."""


class BadPriceFeed(EstimateError):
    """The price file is invalid and is not used; the earlier prices stay in force."""

    code = "bad_price_feed"


class PriceHistory:
    """All prices of one model: past, present and announced. Every answer depends on the time that is asked for."""

    def __init__(self, entry: ModelInfo, *, batch: bool = True) -> None:
        self._entry = entry
        self._batch = batch  # variants count only at the entry's own provider
        self._cards: dict[int, RateCard | None] = {}  # by id of the entry's own ModelPrice, which lives as long

    def at(self, moment: datetime) -> RateCard | None:
        """Return the standard rates, or None if the table has no price for input or output tokens; never a 0."""
        price = self._entry.get_prices(moment)
        if id(price) not in self._cards:
            self._cards[id(price)] = rate_card(price)
        return self._cards[id(price)]

    def batch_at(self, moment: datetime) -> RateCard | None:
        """Return the rates of the provider's batch API, or None if the table has none.

        genai-prices itself would return the standard rates in that case.
        """
        if not any(price.get("input_mtok") or price.get("output_mtok") for price in self._batch_prices(moment)):
            return None
        return rate_card(self._entry.get_prices(moment, BATCH))

    def batch_covers_cache(self, moment: datetime) -> bool:
        """Return whether the batch API also discounts reading the cache."""
        return any(price.get("cache_read_mtok") for price in self._batch_prices(moment))

    def next_change(self, moment: datetime) -> date | None:
        """Return the first announced day after *moment* on which the rates at that time of day differ, or None."""
        card = self.at(moment)
        days = sorted({start for start in self.starts() if start > moment.date()})
        return next((day for day in days if self.at(datetime.combine(day, moment.timetz())) != card), None)

    def off_peak(self, moment: datetime) -> tuple[datetime, RateCard] | None:
        """Return the time of day when input is cheapest, with its rate card, or None if *moment* is no dearer."""
        now = self.at(moment)
        if now is None:
            return None
        ends = (
            datetime.combine(moment.date(), hours.end_time, hours.end_time.tzinfo or UTC) for hours in self._hours()
        )
        moments = sorted(end if end > moment else end + timedelta(days=1) for end in ends)
        cards = [(end, card) for end in moments if (card := self.at(end)) is not None]
        cheapest = min(cards, key=lambda one: one[1].bands[0].input, default=None)
        return cheapest if cheapest is not None and cheapest[1].bands[0].input < now.bands[0].input else None

    def depends_on_hour(self) -> bool:
        return any(True for _ in self._hours())

    def starts(self) -> Iterator[date]:
        """Yield the days on which a standard price starts."""
        for _, constraint in self._conditional():
            if isinstance(constraint, StartDateConstraint):
                yield constraint.start_date

    def check(self) -> None:
        """Raise ValueError if any price, past or future, cannot be used."""
        for price, _ in self._conditional():
            rate_card(price)
        for variant in self._entry.price_variants or ():
            rate_card(variant.prices)

    def _hours(self) -> Iterator[TimeOfDateConstraint]:
        for _, constraint in self._conditional():
            if isinstance(constraint, TimeOfDateConstraint):
                yield constraint

    def _conditional(self) -> list[tuple[ModelPrice, object]]:
        prices = self._entry.prices
        return [(prices, None)] if isinstance(prices, ModelPrice) else [(one.prices, one.constraint) for one in prices]

    def _batch_prices(self, moment: datetime) -> list[dict[str, object]]:
        return [
            vars(variant.prices)
            for variant in (self._entry.price_variants or () if self._batch else ())
            if variant.when == BATCH and (variant.constraint is None or variant.constraint.active(moment))
        ]


def rate_card(price: ModelPrice) -> RateCard | None:
    """Return the text prices of one table entry, or None unless input and output both cost more than 0.

    Raises ValueError for a price that is negative, infinite, or has too many decimals.
    """
    values = vars(price)
    reads, writes = values.get("cache_read_mtok"), values.get("cache_write_mtok")
    thresholds = sorted(
        {tier.start for value in values.values() if isinstance(value, TieredPrices) for tier in value.tiers}
    )
    bands = tuple(_band(values, tokens) for tokens in (0, *(start + 1 for start in thresholds)))
    if not all(band.input and band.output for band in bands):
        return None
    # Some hosts list a storage fee as a write price below plain input: input is then the safer rate.
    bills_writes = writes is not None and all(band.written >= band.input for band in bands)
    return RateCard(bands=bands, thresholds=tuple(thresholds), reads_cache=reads is not None, bills_writes=bills_writes)


def _band(values: Mapping[str, object], tokens: int) -> Rates:
    """Return the rates of a call with *tokens* of input. A part without a price of its own is billed as plain input."""

    def units(key: str, *, per: int = PER_MILLION) -> int | None:
        value = values.get(key)
        if isinstance(value, TieredPrices):
            value = next((tier.price for tier in reversed(value.tiers) if tokens > tier.start), value.base)
        return units_per(value, per=per) if isinstance(value, Decimal) else None

    plain = units("input_mtok") or 0
    read, write = units("cache_read_mtok"), units("cache_write_mtok")
    return Rates(
        input=plain,
        cached=plain if read is None else read,
        written=plain if write is None else write,
        output=units("output_mtok") or 0,
        request=units("requests_kcount", per=PER_THOUSAND) or 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedModel:
    """One model of one provider."""

    name: str  # as answers name it; asking for this name finds the same model
    provider: str
    cluster: str  # one of the six of the default catalogue, or "other"
    family: str  # a key of FAMILIES
    limits: ModelLimits
    reasons: bool | None  # None: unknown
    prices: PriceHistory | None  # None: the price table has no such entry
    aliases: tuple[str, ...] = ()
    url: str | None = None  # the provider's price page
    default: bool = False
    deprecated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource:
    """Where the prices come from."""

    name: str
    version: str
    starts: tuple[date, ...] = field(repr=False)  # days on which any price of the table starts, ascending
    overlay: date  # when our own rows were checked

    def newest(self, moment: datetime) -> date | None:
        """Return the latest day up to *moment* on which any price of the table starts, or None."""
        return max((start for start in self.starts if start <= moment.date()), default=None)


class Catalog:
    """Every model that can be priced, and the default models in order. It is immutable."""

    def __init__(self, overlay: str, providers: Iterable[Provider], *, version: str) -> None:
        rows = tomllib.loads(overlay)
        self._providers = {provider.id: provider for provider in providers}
        self._listed: dict[str, dict[str, Any]] = rows["providers"]
        self._provider_names = {
            name: provider for provider, facts in self._listed.items() for name in (provider, *facts.get("aliases", ()))
        } | {provider: provider for provider in self._providers}
        self._entries = {
            (provider.id, entry.id.lower()): entry for provider in self._providers.values() for entry in provider.models
        }
        self.defaults = tuple(
            self._from_row(provider, row) for provider, facts in self._listed.items() for row in facts["models"]
        )
        self._default_names = {name.lower(): model for model in self.defaults for name in (model.name, *model.aliases)}
        self._default_entries = {(model.provider, model.name.lower()): model for model in self.defaults}
        starts = {start for entry in self._entries.values() for start in PriceHistory(entry).starts()}
        self.source = PriceSource(
            name="genai-prices", version=version, starts=tuple(sorted(starts)), overlay=rows["checked"]
        )

    def find(self, requested: str) -> PricedModel | None:
        """Return the model that *requested* names, or None.

        A name is a default id or alias, an id of a provider in catalog.toml, or `provider/id`.
        """
        asked = requested.strip().lower()
        if (model := self._default_names.get(asked)) is not None:
            return model
        prefix, slash, rest = asked.partition("/")
        if slash and (provider := self._provider_names.get(prefix)) is not None:
            return self._at_provider(self._providers[provider], rest) if provider in self._providers else None
        for provider in self._listed:
            if provider in self._providers and (model := self._at_provider(self._providers[provider], asked)):
                return model
        return None

    def suggest(self, requested: str, limit: int = 3) -> list[str]:
        """Return up to *limit* names that *requested* may be a misspelling of, the likeliest first."""
        asked = requested.strip().lower()
        names = self._full_names if "/" in asked else self._short_names
        return names.like(asked, limit)

    def check_against(self, before: "Catalog", moment: datetime) -> None:
        """Raise BadPriceFeed unless every price can be used and every default model has a plausible price at *moment*.

        A price of 0 counts as a mistake, and so does one that differs from *before* by more than LARGEST_JUMP.
        """
        for (provider, name), entry in self._entries.items():
            try:
                PriceHistory(entry).check()
            except ValueError as error:
                raise BadPriceFeed(f"{provider}/{name}: {error}") from error
        for old, new in zip(before.defaults, self.defaults, strict=True):
            card = new.prices.at(moment) if new.prices else None
            if card is None:
                raise BadPriceFeed(f"{new.provider}/{new.name} has no price for input and output any more")
            standing = old.prices.at(moment) if old.prices else None
            if standing is not None and not _comparable(standing.bands[0], card.bands[0]):
                raise BadPriceFeed(
                    f"{new.provider}/{new.name} would change its price by more than {LARGEST_JUMP} times"
                )

    def _from_row(self, provider: str, row: Mapping[str, Any]) -> PricedModel:
        entry = self._entries.get((provider, row["id"].lower()))
        window = row.get("context_window") or (entry.context_window if entry else None)
        return PricedModel(
            name=row["id"],
            provider=provider,
            cluster=self._listed[provider]["cluster"],
            family=row["family"],
            limits=ModelLimits(
                context_window=window,
                max_input=row.get("max_input"),
                max_output=row.get("max_output"),
                cache_minimum=row.get("cache_minimum", DEFAULT_CACHE_MINIMUM),
            ),
            reasons=row["reasons"],
            prices=PriceHistory(entry) if entry else None,
            aliases=tuple(row.get("aliases", ())),
            url=self._listed[provider]["url"],
            default=True,
            deprecated=bool(entry and entry.deprecated),
        )

    def _at_provider(self, provider: Provider, asked: str) -> PricedModel | None:
        entry = self._entries.get((provider.id, asked)) or provider.find_model(
            asked, all_providers=list(self._providers.values())
        )
        if entry is None:
            return None
        if (model := self._default_entries.get((provider.id, entry.id.lower()))) is not None:
            return model
        listed = self._listed.get(provider.id, {})
        return PricedModel(
            name=f"{provider.id}/{entry.id}",
            provider=provider.id,
            cluster=listed.get("cluster", "other"),
            family=family_of(entry.id),
            limits=ModelLimits(context_window=entry.context_window),
            reasons=True if _REASONS.search(entry.id.lower()) else None,
            prices=PriceHistory(entry, batch=(provider.id, entry.id.lower()) in self._entries),
            url=listed.get("url"),
            deprecated=bool(entry.deprecated),
        )

    @cached_property
    def _short_names(self) -> "_Names":
        listed = (entry.id for id_ in self._listed if id_ in self._providers for entry in self._providers[id_].models)
        return _Names([*(model.name for model in self.defaults), *listed])

    @cached_property
    def _full_names(self) -> "_Names":
        return _Names(f"{provider.id}/{entry.id}" for provider in self._providers.values() for entry in provider.models)


def bundled_catalog(overlay: str) -> Catalog:
    """Return the catalogue of the rows in *overlay*, with the prices of the installed genai-prices."""
    return Catalog(overlay, get_snapshot().providers, version=genai_prices.__version__)


def catalog_from_feed(overlay: str, feed: bytes, *, before: Catalog, moment: datetime) -> Catalog:
    """Return the catalogue with the prices of *feed*, a JSON file in genai-prices' data format (its prices/data.json).

    Raises BadPriceFeed, with the reason, if *feed* cannot be read or fails check_against(before).
    """
    try:
        raw = json.loads(feed, parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadPriceFeed(f"the price file is not JSON: {error}") from error
    if not isinstance(raw, list) or not all(isinstance(provider, dict) for provider in raw):
        raise BadPriceFeed("the price file must be a list of providers")
    for provider in raw:
        provider.pop("extractors", None)  # they parse answers of providers, which an estimate never has
    try:
        providers = _providers_from_raw(raw)
        version = f"feed {hashlib.sha256(feed).hexdigest()[:12]}"
        catalog = Catalog(overlay, providers, version=version)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:  # pydantic's errors are ValueErrors
        raise BadPriceFeed(f"the price file is not in genai-prices' data format: {_first_line(error)}") from error
    catalog.check_against(before, moment)
    return catalog


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a price")


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _comparable(before: Rates, after: Rates) -> bool:
    return all(
        new * LARGEST_JUMP >= old and old * LARGEST_JUMP >= new
        for old, new in ((before.input, after.input), (before.output, after.output))
    )


_CLAUDE = re.compile(r"claude[a-z-]*?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FAMILY_MARKS = (
    ("openai", re.compile(r"gpt-?(4o|4\.[15]|[5-9]|oss|audio|realtime)|chatgpt-4o|codex|(^|/)o[1-9]\b")),
    ("openai-cl100k", re.compile(r"gpt-?(3\.?5|4)|text-embedding-(3|ada)")),
    ("gemini", re.compile(r"gemini|gemma")),
    ("deepseek", re.compile(r"deepseek")),
    ("mistral", re.compile(r"(mi|code|dev|magi|mini)stral|[mp]ixtral|voxtral")),
    ("grok", re.compile(r"grok")),
)
_REASONS = re.compile(r"(^|/)o[1-9]\b|gpt-[5-9]|gpt-oss|reason|think|deepseek-r\d|magistral|qwq|grok-[4-9]")


def family_of(model_id: str) -> str:
    """Return the tokenizer family that a model's id implies, or "unmeasured"."""
    name = model_id.lower()
    if "claude" in name:
        version = _CLAUDE.search(name)
        newer = version is not None and (int(version[1]), int(version[2] or 0)) >= (4, 7)
        return "claude-4.7" if newer else "claude"
    return next((family for family, mark in _FAMILY_MARKS if mark.search(name)), "unmeasured")


class _Names:
    """Finds similar names by the letter triples that they share; a hundred misspellings take milliseconds."""

    _CANDIDATES = 8
    _LIKE_ENOUGH = 0.6

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(names))
        self._having: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(self._names):
            for triple in _triples(name.lower()):
                self._having[triple].append(index)

    def like(self, asked: str, limit: int) -> list[str]:
        shared = Counter(index for triple in _triples(asked) for index in self._having.get(triple, ()))
        candidates = sorted(shared, key=lambda index: (-shared[index] / len(self._names[index]), index))
        scored = [
            (SequenceMatcher(None, asked, self._names[index].lower()).ratio(), -index)
            for index in candidates[: self._CANDIDATES]
        ]
        likely = sorted((pair for pair in scored if pair[0] >= self._LIKE_ENOUGH), reverse=True)
        return [self._names[-negative] for _, negative in likely[:limit]]


def _triples(text: str) -> set[str]:
    padded = f"  {text} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}
