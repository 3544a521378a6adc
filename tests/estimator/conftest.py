"""Fixtures for the estimator: the real price table and the real encodings, loaded once."""

import dataclasses
import json
from datetime import date, time
from decimal import Decimal
from importlib import resources

import genai_prices.data_snapshot
import pytest
from genai_prices.types import ModelPrice, Provider

from estimator.answer import Estimator
from estimator.catalog import Catalog, bundled_catalog
from estimator.tokens import TokenCounter


@pytest.fixture(scope="session")
def overlay() -> str:
    return resources.files("estimator").joinpath("catalog.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def catalog(overlay: str) -> Catalog:
    return bundled_catalog(overlay)


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    return TokenCounter()


@pytest.fixture(scope="session")
def estimator() -> Estimator:
    return Estimator()


@pytest.fixture
def feed() -> list[dict[str, object]]:
    """Return the price table as an operator's file has it: genai-prices' JSON format, with every listed provider."""
    return [_json(provider) for provider in _providers()]


def _providers() -> list[Provider]:
    listed = {"openai", "anthropic", "google", "mistral", "x-ai", "deepseek", "moonshotai", "zai", "minimax"}
    return [one for one in genai_prices.data_snapshot.get_snapshot().providers if one.id in listed]


def _json(value: object) -> object:
    match value:
        case ModelPrice():
            return {key: _json(price) for key, price in vars(value).items() if price is not None}
        case date() | time():
            return value.isoformat()
        case Decimal():
            return json.loads(str(value))
        case list() | tuple():
            return [_json(one) for one in value]
        case dict():
            return {key: _json(one) for key, one in value.items()}
        case _ if dataclasses.is_dataclass(value):
            shown = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
            members = {name.rstrip("_"): getattr(value, name) for name in shown}
            return {name: _json(one) for name, one in members.items() if one is not None}
        case _:
            return value
