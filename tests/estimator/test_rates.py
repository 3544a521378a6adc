"""Tests of rate cards in turns.py: money is exact, and calls are billed by their tier."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.turns import RateCard, Rates, Usage, units_per, usd, usd_text
from tests.estimator.pricing import call_cost

BASE = Rates(input=100, cached=10, written=125, output=500)
DOUBLE = Rates(input=200, cached=20, written=250, output=750)
TIERED = RateCard(bands=(BASE, DOUBLE), thresholds=(200_000,), reads_cache=True, bills_writes=True)


@given(st.integers(0, 10**40))
def test_money_survives_its_way_to_text_and_back_to_the_last_digit(units):
    text = usd_text(usd(units))
    assert "E" not in text
    assert Fraction(text) * 10**30 == units


def test_whole_amounts_have_neither_exponent_nor_trailing_zeros():
    assert usd_text(usd(100 * 10**30)) == "100"
    assert usd_text(usd(0)) == "0"


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "1E-25"])
def test_a_price_that_cannot_be_added_exactly_is_refused(price):
    with pytest.raises(ValueError, match="price"):
        units_per(Decimal(price), per=1_000_000)


def test_a_tier_begins_above_its_threshold_and_bills_the_whole_call():
    assert call_cost(TIERED, Usage(input=200_000)) == usd(200_000 * 100)
    assert call_cost(TIERED, Usage(input=200_001)) == usd(200_001 * 200)
