"""Tests of catalog.py: the default models, their names, and price files of operators."""

import copy
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.answer import Estimator
from estimator.catalog import BadPriceFeed, Catalog, catalog_from_feed, family_of
from estimator.tokens import FAMILIES
from estimator.turns import Usage
from tests.estimator.pricing import CLUSTERS, DEFAULTS, NOON, PROVIDER, call_cost, card_of

# --- the default catalogue

NEWER_THAN_THE_TABLE = {"gpt-6.2-astra", "gpt-6.2-sol"}  # priced by rows of ours until the table has them


def test_the_default_catalogue_is_35_models_in_six_clusters(catalog):
    clusters: dict[str, list[str]] = {}
    for model in catalog.defaults(NOON):
        clusters.setdefault(model.cluster, []).append(model.name)
    assert clusters == {cluster: names.split() for cluster, names in CLUSTERS.items()}
    assert sum(map(len, clusters.values())) == 35


@pytest.mark.parametrize("name", DEFAULTS)
def test_each_default_model_still_resolves_and_has_its_price(catalog, name):
    """If this fails, the price table has dropped or renamed a model, and its row must be changed or removed."""
    if name not in NEWER_THAN_THE_TABLE:
        provider, entry = get_snapshot().find_provider_model(name, None, PROVIDER[name], None)
        assert (provider.id, entry.id) == (PROVIDER[name], name)
    model = catalog.find(name)
    assert (model.name, model.provider, model.default) == (name, PROVIDER[name], True)
    assert card_of(catalog, name).bands[0].input > 0
    assert model.limits.context_window is not None
    assert model.family in FAMILIES
    assert model.url.startswith("https://")


def test_the_source_names_its_version_and_newest_price(catalog):
    assert (catalog.source.name, catalog.source.version) == ("genai-prices", genai_prices.__version__)
    assert catalog.source.newest(NOON) == date(2026, 11, 9)
    assert catalog.source.overlay == date(2026, 11, 28)
    assert catalog.source.newest(datetime(1999, 1, 1, tzinfo=UTC)) is None


# --- names


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("GPT-5-Mini", "gpt-5-mini"),
        ("  gpt-5-mini ", "gpt-5-mini"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("claude-sonnet-4.6", "claude-sonnet-4-6"),
        ("haiku-5-5", "claude-haiku-5-5"),
        ("claude-haiku-5-5-20261007", "claude-haiku-5-5"),
        ("xai/grok-4.7", "grok-4.7"),
        ("z-ai/glm-5.3", "GLM-5.3"),
        ("glm-5.3-flash", "GLM-5.3-Flash"),
        ("deepseek-ai/deepseek-v4-pro", "deepseek-v4-pro"),
        ("gpt-4o", "openai/gpt-4o"),
        ("gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("zhipuai/GLM-5.3", "zhipuai/GLM-5.3"),
        ("openrouter/openai/gpt-5", "openrouter/openai/gpt-5"),
    ],
)
def test_a_name_finds_the_model_it_means(catalog, asked, name):
    model = catalog.find(asked)
    assert model.name == name
    found = catalog.find(name)
    assert found.name == name, "asking for the name that it gave finds the same model"


@pytest.mark.parametrize("asked", ["nope", "gpt", "claude", "", "/", "openai/", "nowhere/gpt-5", "gpt-5-mini-nonsense"])
def test_what_is_no_model_is_not_found(catalog, asked):
    assert catalog.find(asked) is None


@settings(max_examples=200)
@given(st.text(max_size=40) | st.from_regex(r"(openai/|xai/|claude-|gpt-)[\w.@:-]{0,20}\d{8}"))
def test_any_name_is_found_or_not_and_gets_usable_suggestions(catalog, asked):
    model = catalog.find(asked)
    assert model is None or catalog.find(model.name) is not None
    assert all(catalog.find(name) for name in catalog.suggest(asked))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("gpt-6.2-sool", "gpt-6.2-sol"),
        ("gpt-5-mni", "gpt-5-mini"),
        ("gpt5mini", "gpt-5-mini"),
        ("claude-haiku-55", "claude-haiku-5-5"),
        ("deepseek-v4-flsh", "deepseek-v4-flash"),
        ("openai/gpt-5-mni", "openai/gpt-5-mini"),
    ],
)
def test_a_misspelt_name_gets_up_to_three_suggestions(catalog, asked, meant):
    found = catalog.suggest(asked)
    assert found[0] == meant
    assert len(found) <= 3
    assert all(catalog.find(name) for name in found)


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        ("gpt-4o-mini", "openai"),
        ("gpt-5.4", "openai"),
        ("openai/o3-mini", "openai"),
        ("gpt-oss-120b", "openai"),
        ("gpt-4-turbo", "openai-cl100k"),
        ("gpt-3.5-turbo", "openai-cl100k"),
        ("claude-3-5-haiku-20241022", "claude"),
        ("claude-opus-4-20250514", "claude"),
        ("claude-opus-4-6", "claude"),
        ("claude-haiku-4-5-20251001", "claude"),
        ("claude-opus-4-7", "claude-4.7"),
        ("anthropic/claude-opus-5", "claude-4.7"),
        ("gemini-2.0-flash", "gemini"),
        ("DeepSeek-V3", "deepseek"),
        ("codestral-latest", "mistral"),
        ("grok-3", "grok"),
        ("qwen3-max", "unmeasured"),
    ],
)
def test_the_family_of_a_model_outside_the_catalogue_is_read_off_its_name(model_id, family):
    assert family_of(model_id) == family


def test_the_default_rows_agree_with_the_names(catalog):
    defaults = catalog.defaults(NOON)
    assert {model.name: model.family for model in defaults} == {model.name: family_of(model.name) for model in defaults}


# --- announced ends, and models that are newer than the table


def test_a_model_leaves_the_defaults_on_the_day_it_ends_and_is_found_by_name_all_the_same(catalog):
    def default_names(moment):
        return {model.name for model in catalog.defaults(moment)}

    assert "gpt-5-mini" in default_names(datetime(2026, 12, 10, 23, 59, tzinfo=UTC))
    assert "gpt-5-mini" not in default_names(datetime(2026, 12, 11, tzinfo=UTC))
    retirement = catalog.find("gpt-5-mini").retirement
    assert (retirement.on, retirement.replaced_by) == (date(2026, 12, 11), "gpt-6.1-terra")
    in_2027 = catalog.defaults(datetime(2027, 6, 1, tzinfo=UTC))
    assert len(in_2027) >= 24
    assert len({model.cluster for model in in_2027}) == 6


def test_whatever_replaces_a_model_can_be_priced_and_has_no_end_itself(catalog):
    for name in ("gpt-5-mini", "gpt-4.1", "gemini-2.5-flash", "openai/gpt-4o", "google/gemini-2.5-pro"):
        replacement = catalog.find(catalog.find(name).retirement.replaced_by)
        assert replacement.prices is not None
        assert replacement.retirement is None


def test_a_model_that_the_table_lacks_has_the_prices_of_its_row(catalog):
    card = card_of(catalog, "gpt-6.2-astra")
    short, long = Usage(input=272_000, output=1_000_000), Usage(input=272_001, output=1_000_000)
    assert call_cost(card, short) == Decimal("42.176")
    assert call_cost(card, long) == Decimal("64.352016")
    assert catalog.find("gpt-6.2-sol").limits.context_window == 1_050_000


def test_hosted_transcription_is_listed_from_cheap_to_dear_while_it_answers(catalog):
    models = catalog.hosted_transcription(NOON)
    assert [one.usd_per_hour for one in models] == sorted(one.usd_per_hour for one in models)
    by_name = {one.name: one for one in models}
    assert by_name["openai/whisper-1"].usd_per_hour == Decimal("0.36")
    assert by_name["openai/whisper-1"].retirement.on == date(2027, 2, 26)
    assert "openai/gpt-4o-transcribe" not in by_name, "it is billed by the token"
    later = {one.name for one in catalog.hosted_transcription(datetime(2027, 2, 26, tzinfo=UTC))}
    assert later == by_name.keys() - {"openai/whisper-1"}


# --- the operator's price file


def refresh_with(overlay: str, feed: object) -> Catalog:
    return catalog_from_feed(overlay, json.dumps(feed).encode(), moment=NOON)


def entry(feed: list[dict[str, object]], provider: str, model: str) -> dict[str, object]:
    models = next(one["models"] for one in feed if one["id"] == provider)
    return next(one for one in models if one["id"] == model)


def test_a_feed_in_the_tables_own_format_gives_the_same_prices(catalog, overlay, feed):
    fresh = refresh_with(overlay, feed)
    for name in DEFAULTS:
        for moment in (NOON, datetime(2026, 12, 1, 2, tzinfo=UTC)):
            assert card_of(fresh, name, moment) == card_of(catalog, name, moment)
    assert fresh.source.version.startswith("feed ")


def test_a_new_price_in_the_feed_is_used(overlay, feed):
    prices = entry(feed, "openai", "gpt-5-mini")["prices"]
    prices["input_mtok"] = 0.2
    fresh = refresh_with(overlay, feed)
    assert call_cost(card_of(fresh, "gpt-5-mini"), Usage(input=1_000_000)) == Decimal("0.2")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_mtok": 0}, "gpt-5-mini has no price"),
        ({"input_mtok": None}, "gpt-5-mini has no price"),
        ({"input_mtok": -1}, "0 or more"),
        ({"input_mtok": "cheap"}, "data format"),
        ({"input_mtok": 1e-25}, "more decimals"),
        ({"cache_read_mtok": -0.1}, "0 or more"),
    ],
)
def test_a_feed_with_an_absurd_price_is_refused(overlay, feed, change, reason):
    entry(feed, "openai", "gpt-5-mini")["prices"].update(change)
    with pytest.raises(BadPriceFeed, match=reason):
        refresh_with(overlay, feed)


def test_a_feed_without_a_default_model_is_refused(overlay, feed):
    without = copy.deepcopy(feed)
    models = next(one for one in without if one["id"] == "mistral")["models"]
    models.remove(entry(without, "mistral", "codestral-2508"))
    with pytest.raises(BadPriceFeed, match="mistral/codestral-2508 has no price"):
        refresh_with(overlay, without)
    with pytest.raises(BadPriceFeed, match=r"zai/GLM-5\.3 has no price"):
        refresh_with(overlay, [one for one in feed if one["id"] != "zai"])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[NaN]", b"\xff", b"{}", b"[1]", b"[{}]", b'[{"id":"openai"}]', b"[" * 100_000, b"null"]
)
def test_a_file_that_is_no_feed_is_refused(overlay, content):
    with pytest.raises(BadPriceFeed, match=r"price file|no price"):
        catalog_from_feed(overlay, content, moment=NOON)


def test_a_refused_feed_leaves_the_prices_as_they_were(tmp_path, feed):
    estimator = Estimator()
    file = tmp_path / "prices.json"
    entry(feed, "openai", "gpt-5-mini")["prices"]["input_mtok"] = 0.2
    file.write_text(json.dumps(feed))
    estimator.refresh(file, now=NOON)
    taken = estimator.models(now=NOON)
    mini = next(model for model in taken["data"] if model["id"] == "gpt-5-mini")
    assert mini["prices"]["input_per_mtok_usd"] == "0.2"
    entry(feed, "openai", "gpt-5-mini")["prices"]["input_mtok"] = -1
    file.write_text(json.dumps(feed))
    with pytest.raises(BadPriceFeed):
        estimator.refresh(file, now=NOON)
    with pytest.raises(FileNotFoundError):
        estimator.refresh(tmp_path / "nothing", now=NOON)
    assert estimator.models(now=NOON) == taken
