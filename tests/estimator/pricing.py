"""The default models, and their prices at a moment, for tests."""

from bisect import bisect_left
from datetime import UTC, datetime
from decimal import Decimal

from estimator.catalog import Catalog, PriceHistory
from estimator.turns import RateCard, Usage, usd

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

CLUSTERS = {
    "openai": (
        "gpt-6.2-astra gpt-6.2-sol gpt-6-astra gpt-6.1-sol gpt-6.1-terra gpt-6-luna gpt-5.4-mini gpt-5-mini gpt-4.1"
    ),
    "anthropic": (
        "claude-fable-5-2 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5 claude-sonnet-4-6 claude-haiku-4-5"
    ),
    "google": "gemini-4-argon gemini-3.1-pro-preview gemini-3.8-flash gemini-3.5-flash-lite gemini-2.5-flash",
    "mistral": "mistral-large-4 mistral-medium-3-5 mistral-small-2603 ministral-8b-2512 codestral-2508",
    "xai": "grok-4.7 grok-4.3 grok-build-0.1",
    "open": "deepseek-v4-pro deepseek-v4-flash kimi-k3.1-pro kimi-k2.6 GLM-5.3 GLM-5.3-Flash minimax-m3",
}
"""The default models of each provider, or of all open ones."""

DEFAULTS = [name for names in CLUSTERS.values() for name in names.split()]
PROVIDER = {
    **{name: cluster for cluster, names in CLUSTERS.items() for name in names.split()},
    **dict.fromkeys(CLUSTERS["xai"].split(), "x-ai"),
    "deepseek-v4-pro": "deepseek",
    "deepseek-v4-flash": "deepseek",
    "kimi-k3.1-pro": "moonshotai",
    "kimi-k2.6": "moonshotai",
    "GLM-5.3": "zai",
    "GLM-5.3-Flash": "zai",
    "minimax-m3": "minimax",
}


def card_of(catalog: Catalog, name: str, at: datetime = NOON) -> RateCard:
    """Return the prices of a model that has some."""
    model = catalog.find(name)
    assert model is not None, name
    assert model.prices is not None, name
    card = model.prices.at(at)
    assert card is not None, name
    return card


def history(catalog: Catalog, name: str) -> PriceHistory:
    """Return the prices of a model at any time."""
    model = catalog.find(name)
    assert model is not None, name
    assert model.prices is not None, name
    return model.prices


def call_cost(card: RateCard, usage: Usage) -> Decimal:
    """Return the cost of one call in USD: all of its tokens at the rates of the tier that its input falls into."""
    return usd(sum(card.bands[bisect_left(card.thresholds, usage.input)].bill(usage)))
