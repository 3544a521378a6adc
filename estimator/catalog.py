"""The models that can be priced, and their prices at any time: the table of genai-prices and our rows in catalog.toml.

The network updates of genai-prices are never started. Importing this module takes about a second, because genai-prices
builds 2,330 entries. Import it inside the function that needs prices.
"""

import hashlib
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ModelInfo,
    Provider,
    _providers_from_raw,  # the only reader of the feed's format; genai-prices is pinned below 0.3 for it
)

from estimator.prices import PriceHistory
from estimator.rates import Rates
from estimator.request import EstimateError
from estimator.turns import DEFAULT_CACHE_MINIMUM, ModelLimits

LARGEST_JUMP = 100
"""The largest factor by which a refresh may change a default model's price. A mistaken unit changes it by 1000."""


class BadPriceFeed(EstimateError):
    """The price file is invalid and is not used; the earlier prices stay in force."""

    code = "bad_price_feed"


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
            (provider.id, entry.id.lower()): entry for provider in self._providers.values() for entry in provider.models
        }
        self._facts: dict[str, dict[str, Any]] = rows["providers"]
        self._listed = [self._providers[id_] for id_ in self._facts if id_ in self._providers]
        self._aliases = {alias: id_ for id_, facts in self._facts.items() for alias in facts.get("aliases", ())}
        self.defaults = tuple(
            self._model(provider, self._entries.get((provider, row["id"].lower())), row)
            for provider, facts in self._facts.items()
            for row in facts["models"]
        )
        self._default_names = {name.lower(): model for model in self.defaults for name in (model.name, *model.aliases)}
        self._default_entries = {(model.provider, model.name.lower()): model for model in self.defaults}
        starts = {start for entry in self._entries.values() for start in PriceHistory(entry).start_dates()}
        self.source = PriceSource(version=version, starts=tuple(sorted(starts)), overlay=rows["checked"])

    def find(self, requested: str) -> PricedModel | None:
        """Return the model that *requested* names, or None.

        A name is a default id or alias, an id of a provider in catalog.toml, or `provider/id`.
        """
        model_id = requested.strip().lower()
        if (model := self._default_names.get(model_id)) is not None:
            return model
        prefix, slash, rest = model_id.partition("/")
        id_ = self._aliases.get(prefix, prefix)
        if slash and (id_ in self._providers or id_ in self._facts):
            return self._find_at(self._providers[id_], rest) if id_ in self._providers else None
        return next((model for provider in self._listed if (model := self._find_at(provider, model_id))), None)

    def suggest(self, requested: str) -> list[str]:
        """Return up to three names that *requested* may be a misspelling of, the likeliest first."""
        misspelt = requested.strip().lower()
        names = self._full_names if "/" in misspelt else self._short_names
        return names.find_similar(misspelt)

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
            if standing is not None and not _within_jump(standing.bands[0], card.bands[0]):
                raise BadPriceFeed(
                    f"{new.provider}/{new.name} would change its price by more than {LARGEST_JUMP} times"
                )

    def _find_at(self, provider: Provider, model_id: str) -> PricedModel | None:
        entry = self._entries.get((provider.id, model_id)) or provider.find_model(
            model_id, all_providers=list(self._providers.values())
        )
        if entry is None:
            return None
        return self._default_entries.get((provider.id, entry.id.lower())) or self._model(provider.id, entry)

    def _model(self, provider: str, entry: ModelInfo | None, row: Mapping[str, Any] | None = None) -> PricedModel:
        """Return the model of an *entry* of the price table, or of a *row* of ours, which may have no entry."""
        facts, row, id_ = self._facts.get(provider, {}), row or {}, entry.id if entry else ""
        own = (provider, id_.lower()) in self._entries  # and not borrowed from another provider
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
            prices=PriceHistory(entry, batch=own) if entry else None,
            aliases=tuple(row.get("aliases", ())),
            url=facts.get("url"),
            default=bool(row),
            deprecated=bool(entry and entry.deprecated),
        )

    @cached_property
    def _short_names(self) -> "_Names":
        listed = (entry.id for provider in self._listed for entry in provider.models)
        return _Names([*(model.name for model in self.defaults), *listed])

    @cached_property
    def _full_names(self) -> "_Names":
        return _Names(f"{provider.id}/{entry.id}" for provider in self._providers.values() for entry in provider.models)


def bundled_catalog(overlay: str) -> Catalog:
    """Return the catalogue of the rows in *overlay*, with the prices of the installed genai-prices."""
    return Catalog(overlay, get_snapshot().providers, version=genai_prices.__version__)


def catalog_from_feed(overlay: str, feed: bytes, *, before: Catalog, moment: datetime) -> Catalog:
    """Return the catalogue with the prices of *feed*, a JSON file in genai-prices' data format (README).

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
        version = f"feed {hashlib.sha256(feed).hexdigest()[:12]}"
        catalog = Catalog(overlay, _providers_from_raw(raw), version=version)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:  # pydantic's errors are ValueErrors
        reason = " ".join(str(error).split())[:300]
        raise BadPriceFeed(f"the price file is not in genai-prices' data format: {reason}") from error
    catalog.check_against(before, moment)
    return catalog


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a price")


def _within_jump(before: Rates, after: Rates) -> bool:
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

    _MOST, _CANDIDATES = 3, 8
    _LIKE_ENOUGH = 0.6

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(names))
        self._by_triple: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(self._names):
            for triple in _triples(name.lower()):
                self._by_triple[triple].append(index)

    def find_similar(self, misspelt: str) -> list[str]:
        shared = Counter(index for triple in _triples(misspelt) for index in self._by_triple.get(triple, ()))
        candidates = sorted(shared, key=lambda index: (-shared[index] / len(self._names[index]), index))
        scored = [
            (SequenceMatcher(None, misspelt, self._names[index].lower()).ratio(), -index)
            for index in candidates[: self._CANDIDATES]
        ]
        likely = sorted((pair for pair in scored if pair[0] >= self._LIKE_ENOUGH), reverse=True)
        return [self._names[-negative] for _, negative in likely[: self._MOST]]


def _triples(text: str) -> set[str]:
    padded = f"  {text} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}
