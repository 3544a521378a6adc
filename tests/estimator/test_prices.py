"""Tests of prices in catalog.py: against published ones and genai-prices, over time, and the price table's pitfalls."""

from datetime import UTC, date, datetime
from decimal import Decimal

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.catalog import rate_card
from estimator.turns import Usage
from tests.estimator.pricing import DEFAULTS, NOON, PROVIDER, call_cost, card_of, history

# --- against genai-prices itself

IN_TABLE = [name for name in DEFAULTS if not name.startswith("gpt-6.2")]  # those are priced by rows of ours

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
@given(name=st.sampled_from(IN_TABLE), moment=moments, usage=usages())
def test_own_arithmetic_is_calc_price_for_any_usage_at_any_time(catalog, name, moment, usage):
    theirs = genai_prices.calc_price(
        theirs_of(usage),
        name,
        provider_id=PROVIDER[name],
        genai_request_timestamp=moment,
    )
    assert call_cost(card_of(catalog, name, moment), usage) == theirs.total_price


def test_own_arithmetic_is_calc_price_for_every_model_of_the_table(catalog):
    """If a token price is missing, genai-prices fails or counts 0, and this catalogue has no price."""
    priced = unpriced = 0
    for provider in get_snapshot().providers:
        for entry in provider.models:
            model = catalog.find(f"{provider.id}/{entry.id}")
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


def test_a_price_of_zero_is_no_price():
    assert rate_card(ModelPrice(input_mtok=Decimal(0), output_mtok=Decimal(0))) is None


def test_a_change_counts_only_for_the_hour_that_was_asked_about(catalog):
    """DeepSeek's off-peak price of August does not change the price of the peak hours."""
    prices = history(catalog, "deepseek-v4-pro")
    before = datetime(2026, 8, 1, 12, tzinfo=UTC)
    assert prices.next_change(before) == date(2026, 8, 17)
    assert prices.next_change(before.replace(hour=2)) is None


def test_a_write_price_below_plain_input_never_makes_writing_a_bargain(catalog):
    """OpenRouter lists Gemini's storage fee as the price of a cache write."""
    card = card_of(catalog, "openrouter/google/gemini-2.5-flash")
    assert card.bands[0].written < card.bands[0].input
    assert card.bills_writes is False
    assert card_of(catalog, "claude-opus-5-5").bills_writes is True
