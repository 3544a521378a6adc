"""The models that can be priced, and their prices at any time: the table of genai-prices and our rows in catalog.toml.

An unknown price is None and never 0. The network updates of genai-prices are never started. Importing this module takes
about a second, because genai-prices builds 2,330 entries. Import it inside the function that needs prices.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ClauseEquals,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
    _providers_from_raw,
)

from estimator.request import EstimateError
from estimator.turns import DEFAULT_CACHE_MINIMUM, ModelLimits, RateCard, Rates, units_per

OWN_PRICES = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")
"""The prices of a model that catalog.toml states itself."""


class BadPriceFeed(EstimateError):
    """The price file is invalid and is not used; the earlier prices stay in force."""

    code = "bad_price_feed"


class PriceHistory:
    """All prices of one model: past, present and announced. Every answer depends on the time that is asked for."""

    def __init__(self, entry: ModelInfo) -> None:
        self._entry = entry

    def at(self, moment: datetime) -> RateCard | None:
        """Return the standard rates, or None if the table has no price for input or output tokens; never a 0."""
        return rate_card(self._entry.get_prices(moment))

    def per_audio_hour(self, moment: datetime) -> Decimal | None:
        """Return USD per hour of audio, or None for a model that is billed by tokens or has no such price."""
        values = vars(self._entry.get_prices(moment))
        price = values.get("input_audio_hours") or values.get("audio_hours")
        return price if isinstance(price, Decimal) and price > 0 and not values.get("input_mtok") else None

    def next_change(self, moment: datetime) -> date | None:
        """Return the first announced day after *moment* on which the rates at that time of day differ, or None."""
        card = self.at(moment)
        days = sorted(start for start in self.start_dates() if start > moment.date())
        return next((day for day in days if self.at(datetime.combine(day, moment.timetz())) != card), None)

    def depends_on_hour(self) -> bool:
        return any(isinstance(constraint, TimeOfDateConstraint) for _, constraint in self._standard_prices())

    def start_dates(self) -> set[date]:
        """Return the days on which a standard price starts."""
        return {one.start_date for _, one in self._standard_prices() if isinstance(one, StartDateConstraint)}

    def check(self) -> None:
        """Raise ValueError if any price, past or future, cannot be used."""
        for price, _ in self._standard_prices():
            rate_card(price)

    def _standard_prices(self) -> list[tuple[ModelPrice, object]]:
        """Return every standard price with the days or hours that it is for, None if it is for all."""
        prices = self._entry.prices
        return [(prices, None)] if isinstance(prices, ModelPrice) else [(one.prices, one.constraint) for one in prices]


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
class Retirement:
    """The announced end of a model."""

    on: date  # the first day on which requests fail, in UTC
    replaced_by: str | None = None  # the model that its provider recommends


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
    retirement: Retirement | None = None  # None: no end is announced


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTranscription:
    """A hosted model that is billed by the hour of audio."""

    name: str  # provider/id
    provider: str
    usd_per_hour: Decimal
    retirement: Retirement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource:
    """Where the prices come from."""

    version: str
    starts: tuple[date, ...] = field(repr=False)  # days on which any price of the table starts, ascending
    overlay: date  # when our own rows were checked
    name: str = "genai-prices"

    def newest(self, moment: datetime) -> date | None:
        """Return the latest day up to *moment* on which any price of the table starts, or None."""
        return max((start for start in self.starts if start <= moment.date()), default=None)


class Catalog:
    """Every model that can be priced, and the default models in order. It is immutable."""

    def __init__(self, overlay: str, providers: Iterable[Provider], *, version: str) -> None:
        rows = tomllib.loads(overlay)
        self._providers = {provider.id: provider for provider in providers}
        self._entries = {
            **_own_entries(rows["prices"]),
            **{(one.id, entry.id.lower()): entry for one in self._providers.values() for entry in one.models},
        }
        self._facts: dict[str, dict[str, Any]] = rows["providers"]
        self._retirements = {
            name: Retirement(on=row["on"], replaced_by=row.get("replaced_by"))
            for name, row in rows["retirements"].items()
        }
        self._aliases = {alias: id_ for id_, facts in self._facts.items() for alias in facts.get("aliases", ())}
        self._rows = tuple(
            self._model(provider, self._entries.get((provider, row["id"].lower())), row)
            for provider, facts in self._facts.items()
            for row in facts["models"]
        )
        self._default_names = {name.lower(): model for model in self._rows for name in (model.name, *model.aliases)}
        self._default_entries = {(model.provider, model.name.lower()): model for model in self._rows}
        starts = {start for entry in self._entries.values() for start in PriceHistory(entry).start_dates()}
        self.source = PriceSource(version=version, starts=tuple(sorted(starts)), overlay=rows["checked"])

    def defaults(self, moment: datetime) -> tuple[PricedModel, ...]:
        """Return the default models that still answer at *moment*, in order."""
        return tuple(one for one in self._rows if one.retirement is None or one.retirement.on > moment.date())

    def find(self, requested: str) -> PricedModel | None:
        """Return the model that *requested* names, or None.

        A name is a default id or alias, an id of a provider in catalog.toml, or `provider/id`.
        """
        model_id = requested.strip().lower()
        if (model := self._default_names.get(model_id)) is not None:
            return model
        prefix, slash, rest = model_id.partition("/")
        provider = self._aliases.get(prefix, prefix)
        if slash and (provider in self._providers or provider in self._facts):
            return self._find_at(provider, rest)
        return next((model for provider in self._facts if (model := self._find_at(provider, model_id))), None)

    def suggest(self, requested: str) -> list[str]:
        """Return up to three names that *requested* may be a misspelling of, the likeliest first."""
        misspelt = requested.strip().lower()
        if "/" in misspelt:
            names = [f"{provider}/{entry.id}" for (provider, _), entry in self._entries.items()]
        else:
            listed = [entry.id for (provider, _), entry in self._entries.items() if provider in self._facts]
            names = [*(model.name for model in self._rows), *listed]
        spelt = {name.lower(): name for name in reversed(names)}
        return [spelt[name] for name in get_close_matches(misspelt, list(spelt), n=3)]

    def hosted_transcription(self, moment: datetime) -> list[HostedTranscription]:
        """Return the models that are billed by the hour of audio and answer at *moment*, the cheapest first."""
        found = []
        for (provider, _), entry in self._entries.items():
            name = f"{provider}/{entry.id}"
            retirement = self._retirements.get(name)
            per_hour = PriceHistory(entry).per_audio_hour(moment)
            if per_hour is not None and (retirement is None or retirement.on > moment.date()):
                found.append(
                    HostedTranscription(name=name, provider=provider, usd_per_hour=per_hour, retirement=retirement)
                )
        return sorted(found, key=lambda one: (one.usd_per_hour, one.name))

    def check(self, moment: datetime) -> None:
        """Raise BadPriceFeed unless every price can be used and every default model has one at *moment*."""
        for (provider, name), entry in self._entries.items():
            try:
                PriceHistory(entry).check()
            except ValueError as error:
                raise BadPriceFeed(f"{provider}/{name}: {error}") from error
        for model in self.defaults(moment):
            if model.prices is None or model.prices.at(moment) is None:
                raise BadPriceFeed(f"{model.provider}/{model.name} has no price for input and output any more")

    def _find_at(self, provider: str, model_id: str) -> PricedModel | None:
        entry = self._entries.get((provider, model_id))
        if entry is None and (listed := self._providers.get(provider)) is not None:
            entry = listed.find_model(model_id, all_providers=list(self._providers.values()))
        if entry is None:
            return None
        return self._default_entries.get((provider, entry.id.lower())) or self._model(provider, entry)

    def _model(self, provider: str, entry: ModelInfo | None, row: Mapping[str, Any] | None = None) -> PricedModel:
        """Return the model of an *entry* of the price table, or of a *row* of ours, which may have no entry."""
        facts, row, id_ = self._facts.get(provider, {}), row or {}, entry.id if entry else ""
        return PricedModel(
            name=row.get("id", f"{provider}/{id_}"),
            provider=provider,
            cluster=facts.get("cluster", "other"),
            family=row.get("family") or family_of(id_),
            limits=ModelLimits(
                context_window=row.get("context_window") or (entry.context_window if entry else None),
                max_input=row.get("max_input"),
                max_output=row.get("max_output"),
                cache_minimum=row.get("cache_minimum", DEFAULT_CACHE_MINIMUM),
            ),
            reasons=row.get("reasons", True if _REASONS.search(id_.lower()) else None),
            prices=PriceHistory(entry) if entry else None,
            aliases=tuple(row.get("aliases", ())),
            url=facts.get("url"),
            default=bool(row),
            deprecated=bool(entry and entry.deprecated),
            retirement=self._retirements.get(f"{provider}/{row.get('id', id_)}"),
        )


def bundled_catalog(overlay: str) -> Catalog:
    """Return the catalogue of the rows in *overlay*, with the prices of the installed genai-prices."""
    return Catalog(overlay, get_snapshot().providers, version=genai_prices.__version__)


def catalog_from_feed(overlay: str, feed: bytes, *, moment: datetime) -> Catalog:
    """Return the catalogue with the prices of *feed*, a JSON file in genai-prices' data format (README).

    Raises BadPriceFeed, with the reason, if *feed* cannot be read or fails check().
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
        version = f"feed {hashlib.sha256(feed).hexdigest()[:12]}"
        catalog = Catalog(overlay, _providers_from_raw(raw), version=version)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:  # pydantic's errors are ValueErrors
        reason = " ".join(str(error).split())[:300]
        raise BadPriceFeed(f"the price file is not in genai-prices' data format: {reason}") from error
    catalog.check(moment)
    return catalog


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a price")


def _own_entries(rows: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], ModelInfo]:
    """Return table entries of the models whose prices catalog.toml states: a base price, and one above the tier."""
    entries = {}
    for name, row in rows.items():
        provider, _, id_ = name.partition("/")
        tiered = {
            price: TieredPrices(base=Decimal(base), tiers=[Tier(start=row["tier_above"], price=Decimal(above))])
            for price, (base, above) in ((price, row[price]) for price in OWN_PRICES)
        }
        entries[provider, id_.lower()] = ModelInfo(
            id=id_, match=ClauseEquals(id_), context_window=row["context_window"], prices=ModelPrice(**tiered)
        )
    return entries


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


PER_MILLION, PER_THOUSAND = 1_000_000, 1000
