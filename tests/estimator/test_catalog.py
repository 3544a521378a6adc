"""Tests of catalog.py: names, prices at any time, the price table's pitfalls, and price files of operators."""

import copy
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.catalog import BadPriceFeed, Catalog, PriceHistory, catalog_from_feed, family_of, rate_card
from estimator.estimates import Estimator
from estimator.families import FAMILIES
from estimator.rates import RateCard, Usage

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BATCH_KNOWN = datetime(2026, 10, 14, tzinfo=UTC)

CLUSTERS = {
    "openai": "gpt-6-astra gpt-6.1-sol gpt-6.1-terra gpt-6-luna gpt-5.4-mini gpt-5-mini gpt-4.1",
    "anthropic": (
        "claude-fable-5-2 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5 claude-sonnet-4-6 claude-haiku-4-5"
    ),
    "google": "gemini-4-argon gemini-3.1-pro-preview gemini-3.8-flash gemini-3.5-flash-lite gemini-2.5-flash",
    "mistral": "mistral-large-4 mistral-medium-3-5 mistral-small-2603 ministral-8b-2512 codestral-2508",
    "xai": "grok-4.7 grok-4.3 grok-build-0.1",
    "open": "deepseek-v4-pro deepseek-v4-flash kimi-k3.1-pro kimi-k2.6 GLM-5.3 GLM-5.3-Flash minimax-m3",
}
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
    model = catalog.find(name)
    assert model is not None, name
    assert model.prices is not None, name
    card = model.prices.at(at)
    assert card is not None, name
    return card


def history(catalog: Catalog, name: str) -> PriceHistory:
    model = catalog.find(name)
    assert model is not None, name
    assert model.prices is not None, name
    return model.prices


# --- the default catalogue


def test_the_default_catalogue_is_the_33_models_in_six_clusters(catalog: Catalog) -> None:
    clusters: dict[str, list[str]] = {}
    for model in catalog.defaults:
        clusters.setdefault(model.cluster, []).append(model.name)
    assert clusters == {cluster: names.split() for cluster, names in CLUSTERS.items()}
    assert sum(map(len, clusters.values())) == 33


@pytest.mark.parametrize("name", DEFAULTS)
def test_each_default_model_still_resolves_and_has_its_price(catalog: Catalog, name: str) -> None:
    """If this fails, the price table has dropped or renamed a model, and its row must be changed or removed."""
    provider, entry = get_snapshot().find_provider_model(name, None, PROVIDER[name], None)
    assert (provider.id, entry.id) == (PROVIDER[name], name)
    model = catalog.find(name)
    assert model is not None
    assert (model.name, model.provider, model.default) == (name, PROVIDER[name], True)
    assert card_of(catalog, name).bands[0].input > 0
    assert model.limits.context_window is not None
    assert model.family in FAMILIES
    assert model.url is not None
    assert model.url.startswith("https://")


def test_openai_windows_keep_both_numbers(catalog: Catalog) -> None:
    sol = catalog.find("gpt-6.1-sol")
    assert sol is not None
    assert (sol.limits.context_window, sol.limits.max_input, sol.limits.max_output) == (1_050_000, 922_000, 128_000)


def test_the_source_names_its_version_and_newest_price(catalog: Catalog) -> None:
    assert (catalog.source.name, catalog.source.version) == ("genai-prices", genai_prices.__version__)
    assert catalog.source.newest(NOON) == date(2026, 11, 9)
    assert catalog.source.overlay == date(2026, 11, 20)
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
def test_a_name_finds_the_model_it_means(catalog: Catalog, asked: str, name: str) -> None:
    model = catalog.find(asked)
    assert model is not None
    assert model.name == name
    found = catalog.find(name)
    assert found is not None
    assert found.name == name, "asking for the name that it gave finds the same model"


def test_every_alias_is_unique_and_finds_its_row(catalog: Catalog) -> None:
    seen: set[str] = set()
    for model in catalog.defaults:
        for name in (model.name, *model.aliases):
            assert catalog.find(name) is model
            assert name.lower() not in seen
            seen.add(name.lower())


def test_every_model_of_the_table_is_found_by_its_full_name(catalog: Catalog) -> None:
    for provider in get_snapshot().providers:
        for entry in provider.models:
            model = catalog.find(f"{provider.id}/{entry.id}")
            assert model is not None
            assert model.provider == provider.id
            assert model.name.lower() in {entry.id.lower(), f"{provider.id}/{entry.id}".lower()}


@pytest.mark.parametrize("asked", ["nope", "gpt", "claude", "", "/", "openai/", "nowhere/gpt-5", "gpt-5-mini-nonsense"])
def test_what_is_no_model_is_not_found(catalog: Catalog, asked: str) -> None:
    assert catalog.find(asked) is None


@settings(max_examples=200)
@given(st.text(max_size=40) | st.from_regex(r"(openai/|xai/|claude-|gpt-)[\w.@:-]{0,20}\d{8}"))
def test_any_name_is_found_or_not_and_gets_usable_suggestions(catalog: Catalog, asked: str) -> None:
    model = catalog.find(asked)
    assert model is None or catalog.find(model.name) is not None
    assert all(catalog.find(name) for name in catalog.suggest(asked))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("gpt-5-mni", "gpt-5-mini"),
        ("gpt5mini", "gpt-5-mini"),
        ("claude-haiku-55", "claude-haiku-5-5"),
        ("deepseek-v4-flsh", "deepseek-v4-flash"),
        ("openai/gpt-5-mni", "openai/gpt-5-mini"),
    ],
)
def test_a_misspelt_name_gets_up_to_three_suggestions(catalog: Catalog, asked: str, meant: str) -> None:
    found = catalog.suggest(asked)
    assert found[0] == meant
    assert len(found) <= 3
    assert all(catalog.find(name) for name in found)


def test_nonsense_gets_no_suggestion(catalog: Catalog) -> None:
    assert catalog.suggest("qqqqqqqqqqqq") == []


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
def test_the_family_of_a_model_outside_the_catalogue_is_read_off_its_name(model_id: str, family: str) -> None:
    assert family_of(model_id) == family


def test_the_default_rows_agree_with_the_names(catalog: Catalog) -> None:
    assert {model.name: model.family for model in catalog.defaults} == {
        model.name: family_of(model.name) for model in catalog.defaults
    }


# --- prices published by others


def test_claude_sonnet_4_5_is_a_cliff_at_200_000(catalog: Catalog) -> None:
    """The price is in genai-prices' own tests."""
    card = card_of(catalog, "claude-sonnet-4-5")
    assert card.cost(Usage(input=200_000)) == Decimal("0.60")
    assert card.cost(Usage(input=200_001)) == Decimal("1.200006")
    assert card.cost(Usage(input=300_000, output=100_000)) == Decimal("4.05")


def test_o3_in_batch(catalog: Catalog) -> None:
    """The price is in genai-prices' README: one million tokens each way for five dollars."""
    card = history(catalog, "o3").batch_at(BATCH_KNOWN)
    assert card is not None
    assert card.cost(Usage(input=1_000_000, output=1_000_000)) == Decimal(5)


def test_fifteen_tokens_of_gpt_4o(catalog: Catalog) -> None:
    """The price is in tokencost's tests."""
    assert card_of(catalog, "gpt-4o").cost(Usage(input=15)) == Decimal("0.0000375")


def test_a_months_bill_of_claude_opus_4_7(catalog: Catalog) -> None:
    """The bill is in a ccusage thread: 148,807 plain, 5,147,194 written, 66,485,717 read, 899,339 out."""
    plain, written, read = 148_807, 5_147_194, 66_485_717
    usage = Usage(input=plain + written + read, cached=read, written=written, output=899_339)
    cost = card_of(catalog, "claude-opus-4-7").cost(usage)
    assert cost.quantize(Decimal("0.000001")) == Decimal("88.640331")


# --- against genai-prices itself

moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 6, 30)).map(lambda moment: moment.replace(tzinfo=UTC))  # noqa: DTZ001  made aware in the same line
sizes = st.one_of(
    st.integers(0, 3_000_000),
    st.sampled_from([0, 1, 99_999, 100_000, 100_001, 199_999, 200_000, 200_001, 272_000, 272_001, 512_000, 512_001]),
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    sent = draw(sizes)
    cached = sent * draw(st.integers(0, 100)) // 100
    written = (sent - cached) * draw(st.integers(0, 100)) // 100
    return Usage(input=sent, cached=cached, written=written, output=draw(st.integers(0, 200_000)))


def theirs_of(usage: Usage) -> genai_prices.Usage:
    return genai_prices.Usage(
        input_tokens=usage.input,
        cache_read_tokens=usage.cached,
        cache_write_tokens=usage.written,
        output_tokens=usage.output,
    )


@settings(max_examples=1000)
@given(name=st.sampled_from(DEFAULTS), moment=moments, batch=st.booleans(), usage=usages())
def test_own_arithmetic_is_calc_price_for_any_usage_at_any_time(
    catalog: Catalog, name: str, moment: datetime, *, batch: bool, usage: Usage
) -> None:
    theirs = genai_prices.calc_price(
        theirs_of(usage),
        name,
        provider_id=PROVIDER[name],
        genai_request_timestamp=moment,
        price_context={"processing": "batch"} if batch else None,
    )
    prices = history(catalog, name)
    card = (prices.batch_at(moment) if batch else None) or prices.at(
        moment
    )  # genai-prices would return the standard price instead
    assert card is not None
    assert card.cost(usage) == theirs.total_price


def test_own_arithmetic_is_calc_price_for_every_model_of_the_table(catalog: Catalog) -> None:
    """If a token price is missing, genai-prices fails or counts 0, and this catalogue has no price."""
    priced = unpriced = 0
    for provider in get_snapshot().providers:
        for entry in provider.models:
            model = catalog.find(f"{provider.id}/{entry.id}")
            assert model is not None
            assert model.prices is not None
            card = model.prices.at(NOON)
            price = entry.get_prices(NOON)
            if card is None:
                assert not (vars(price).get("input_mtok") and vars(price).get("output_mtok")), model.name
                unpriced += 1
                continue
            usage = Usage(input=250_000, cached=100_000, written=50_000, output=7_000)
            ours = card.cost(usage)
            theirs = entry.calc_price(theirs_of(usage), provider, genai_request_timestamp=NOON).total_price
            assert abs(ours - theirs) <= theirs * Decimal("1e-26"), model.name  # genai-prices rounds at 28 digits
            priced += 1
    assert priced > 2000
    assert unpriced > 100


# --- traps of the price table


def test_a_model_without_token_prices_has_no_card_though_calc_price_says_zero(catalog: Catalog) -> None:
    found = [
        (provider, entry)
        for provider in get_snapshot().providers
        for entry in provider.models
        if isinstance(entry.prices, ModelPrice) and not vars(entry.prices)
    ]
    assert found
    for provider, entry in found:
        usage = genai_prices.Usage(input_tokens=1000, output_tokens=1000)
        assert entry.calc_price(usage, provider, genai_request_timestamp=NOON).total_price == 0
        model = catalog.find(f"{provider.id}/{entry.id}")
        assert model is not None
        assert model.prices is not None
        assert model.prices.at(NOON) is None


def test_a_price_for_input_alone_is_no_price(catalog: Catalog) -> None:
    """An embedding model has no price for output, so an estimate would be too low."""
    assert history(catalog, "openai/text-embedding-3-small").at(NOON) is None


def test_a_price_of_zero_is_no_price() -> None:
    assert rate_card(ModelPrice(input_mtok=Decimal(0), output_mtok=Decimal(0))) is None


@pytest.mark.parametrize(("hour", "times"), [(0, 1), (1, 2), (3, 2), (4, 1), (6, 2), (9, 2), (10, 1), (23, 1)])
def test_deepseek_doubles_by_day(catalog: Catalog, hour: int, times: int) -> None:
    usage = Usage(input=1_000_000, cached=500_000, output=100_000)
    base = card_of(catalog, "deepseek-v4-pro", NOON).cost(usage)
    assert card_of(catalog, "deepseek-v4-pro", NOON.replace(hour=hour)).cost(usage) == times * base


def test_at_peak_the_next_cheaper_hour_is_named(catalog: Catalog) -> None:
    prices = history(catalog, "deepseek-v4-flash")
    for hour, start in ((2, 4), (7, 10)):
        found = prices.off_peak(NOON.replace(hour=hour))
        assert found is not None
        assert found == (NOON.replace(hour=start), prices.at(NOON))
    assert prices.off_peak(NOON) is None
    assert history(catalog, "gpt-5-mini").off_peak(NOON) is None


def test_an_announced_price_is_dated_and_used_from_its_day_on(catalog: Catalog) -> None:
    prices = history(catalog, "gemini-4-argon")
    change = date(2026, 12, 1)
    assert prices.next_change(NOON) == change
    eve, day = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    usage = Usage(input=1_000_000, output=1_000_000)
    before, after = prices.at(eve), prices.at(day)
    assert before is not None
    assert after is not None
    assert (before.cost(usage), after.cost(usage)) == (Decimal(12), Decimal(24))
    assert prices.next_change(day) is None
    assert history(catalog, "gpt-5-mini").next_change(NOON) is None


def test_a_change_counts_only_for_the_hour_that_was_asked_about(catalog: Catalog) -> None:
    """DeepSeek's off-peak price of August does not change the price of the peak hours."""
    prices = history(catalog, "deepseek-v4-pro")
    before = datetime(2026, 8, 1, 12, tzinfo=UTC)
    assert prices.next_change(before) == date(2026, 8, 17)
    assert prices.next_change(before.replace(hour=2)) is None


def test_a_missing_batch_price_is_told_apart_from_the_standard_one(catalog: Catalog) -> None:
    assert history(catalog, "grok-4.7").batch_at(NOON) is None
    assert history(catalog, "gpt-5-mini").batch_at(BATCH_KNOWN - timedelta(seconds=1)) is None
    assert history(catalog, "gpt-5-mini").batch_at(BATCH_KNOWN) is not None
    assert history(catalog, "gpt-4.1").batch_covers_cache(NOON) is False
    assert history(catalog, "gpt-5-mini").batch_covers_cache(NOON) is True


def test_a_host_that_borrows_a_models_price_does_not_borrow_its_batch_discount(catalog: Catalog) -> None:
    borrowed = catalog.find("azure/claude-fable-5")
    assert borrowed is not None
    assert (borrowed.name, borrowed.provider) == ("azure/claude-fable-5", "azure")
    assert borrowed.prices is not None
    assert borrowed.prices.at(NOON) == card_of(catalog, "anthropic/claude-fable-5")
    assert history(catalog, "anthropic/claude-fable-5").batch_at(NOON) is not None
    assert borrowed.prices.batch_at(NOON) is None


def test_a_write_price_below_plain_input_never_makes_writing_a_bargain(catalog: Catalog) -> None:
    """OpenRouter lists Gemini's storage fee as the price of a cache write."""
    card = card_of(catalog, "openrouter/google/gemini-2.5-flash")
    assert card.bands[0].written < card.bands[0].input
    assert card.bills_writes is False
    assert card_of(catalog, "claude-opus-5-5").bills_writes is True


# --- the operator's price file


def refreshed(catalog: Catalog, overlay: str, feed: object) -> Catalog:
    return catalog_from_feed(overlay, json.dumps(feed).encode(), before=catalog, moment=NOON)


def entry(feed: list[dict[str, object]], provider: str, model: str) -> dict[str, object]:
    models = next(one["models"] for one in feed if one["id"] == provider)
    return next(one for one in models if one["id"] == model)


def test_a_feed_in_the_tables_own_format_gives_the_same_prices(
    catalog: Catalog, overlay: str, feed: list[dict[str, object]]
) -> None:
    fresh = refreshed(catalog, overlay, feed)
    for name in DEFAULTS:
        for moment in (NOON, datetime(2026, 12, 1, 2, tzinfo=UTC)):
            assert card_of(fresh, name, moment) == card_of(catalog, name, moment)
    assert fresh.source.version.startswith("feed ")


def test_a_new_price_in_the_feed_is_used(catalog: Catalog, overlay: str, feed: list[dict[str, object]]) -> None:
    prices = entry(feed, "openai", "gpt-5-mini")["prices"]
    prices["input_mtok"] = 0.2
    fresh = refreshed(catalog, overlay, feed)
    assert card_of(fresh, "gpt-5-mini").cost(Usage(input=1_000_000)) == Decimal("0.2")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_mtok": 0}, "gpt-5-mini has no price"),
        ({"input_mtok": None}, "gpt-5-mini has no price"),
        ({"input_mtok": -1}, "0 or more"),
        ({"input_mtok": 250}, "more than 100 times"),
        ({"output_mtok": 0.0002}, "more than 100 times"),
        ({"input_mtok": "cheap"}, "data format"),
        ({"input_mtok": 1e-25}, "more decimals"),
        ({"cache_read_mtok": -0.1}, "0 or more"),
    ],
)
def test_a_feed_with_an_absurd_price_is_refused(
    catalog: Catalog, overlay: str, feed: list[dict[str, object]], change: dict[str, object], reason: str
) -> None:
    entry(feed, "openai", "gpt-5-mini")["prices"].update(change)
    with pytest.raises(BadPriceFeed, match=reason):
        refreshed(catalog, overlay, feed)


def test_a_feed_without_a_default_model_is_refused(
    catalog: Catalog, overlay: str, feed: list[dict[str, object]]
) -> None:
    without = copy.deepcopy(feed)
    models = next(one for one in without if one["id"] == "mistral")["models"]
    models.remove(entry(without, "mistral", "codestral-2508"))
    with pytest.raises(BadPriceFeed, match="mistral/codestral-2508 has no price"):
        refreshed(catalog, overlay, without)
    with pytest.raises(BadPriceFeed, match=r"zai/GLM-5\.3 has no price"):
        refreshed(catalog, overlay, [one for one in feed if one["id"] != "zai"])


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[NaN]", b"\xff", b"{}", b"[1]", b"[{}]", b'[{"id":"openai"}]', b"[" * 100_000, b"null"],
)
def test_a_file_that_is_no_feed_is_refused(catalog: Catalog, overlay: str, content: bytes) -> None:
    with pytest.raises(BadPriceFeed, match=r"price file|no price"):
        catalog_from_feed(overlay, content, before=catalog, moment=NOON)


def test_a_refused_feed_leaves_the_prices_as_they_were(tmp_path: Path, feed: list[dict[str, object]]) -> None:
    estimator = Estimator()
    file = tmp_path / "prices.json"
    entry(feed, "openai", "gpt-5-mini")["prices"]["input_mtok"] = 0.2
    file.write_text(json.dumps(feed))
    estimator.refresh(file, now=NOON)
    taken = estimator.models(now=NOON)
    assert taken["data"][5]["prices"]["input_per_mtok_usd"] == "0.2"
    entry(feed, "openai", "gpt-5-mini")["prices"]["input_mtok"] = -1
    file.write_text(json.dumps(feed))
    with pytest.raises(BadPriceFeed):
        estimator.refresh(file, now=NOON)
    with pytest.raises(FileNotFoundError):
        estimator.refresh(tmp_path / "nothing", now=NOON)
    assert estimator.models(now=NOON) == taken
