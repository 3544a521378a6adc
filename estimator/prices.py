"""The prices of one model over time, from genai-prices' table. An unknown price is None and never 0."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal

from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TieredPrices, TimeOfDateConstraint

from estimator.rates import RateCard, Rates, units_per

PER_MILLION, PER_THOUSAND = 1_000_000, 1000


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
