"""Tests of prices.py: against published ones and genai-prices, over time, and the price table's pitfalls."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.catalog import Catalog
from estimator.prices import rate_card
from estimator.rates import Usage
from tests.estimator.pricing import DEFAULTS, NOON, PROVIDER, call_cost, card_of, history

BATCH_KNOWN = datetime(2026, 10, 14, tzinfo=UTC)


# --- prices published by others


def test_claude_sonnet_4_5_is_a_cliff_at_200_000(catalog: Catalog) -> None:
    """The price is in genai-prices' own tests."""
    card = card_of(catalog, "claude-sonnet-4-5")
    assert call_cost(card, Usage(input=200_000)) == Decimal("0.60")
    assert call_cost(card, Usage(input=200_001)) == Decimal("1.200006")
    assert call_cost(card, Usage(input=300_000, output=100_000)) == Decimal("4.05")


def test_o3_in_batch(catalog: Catalog) -> None:
    """The price is in genai-prices' README: one million tokens each way for five dollars."""
    card = history(catalog, "o3").batch_at(BATCH_KNOWN)
    assert card is not None
    assert call_cost(card, Usage(input=1_000_000, output=1_000_000)) == Decimal(5)


def test_fifteen_tokens_of_gpt_4o(catalog: Catalog) -> None:
    """The price is in tokencost's tests."""
    assert call_cost(card_of(catalog, "gpt-4o"), Usage(input=15)) == Decimal("0.0000375")


def test_a_months_bill_of_claude_opus_4_7(catalog: Catalog) -> None:
    """The bill is in a ccusage thread: 148,807 plain, 5,147,194 written, 66,485,717 read, 899,339 out."""
    plain, written, read = 148_807, 5_147_194, 66_485_717
    usage = Usage(input=plain + written + read, cached=read, written=written, output=899_339)
    cost = call_cost(card_of(catalog, "claude-opus-4-7"), usage)
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
    assert call_cost(card, usage) == theirs.total_price


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
            ours = call_cost(card, usage)
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
    base = call_cost(card_of(catalog, "deepseek-v4-pro", NOON), usage)
    assert call_cost(card_of(catalog, "deepseek-v4-pro", NOON.replace(hour=hour)), usage) == times * base


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
    assert (call_cost(before, usage), call_cost(after, usage)) == (Decimal(12), Decimal(24))
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
