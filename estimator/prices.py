"""The prices of one model over time, from genai-prices' table. An unknown price is None and never 0."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TieredPrices, TimeOfDateConstraint

from estimator.rates import RateCard, Rates, units_per

BATCH = {"processing": "batch"}
PER_MILLION, PER_THOUSAND = 1_000_000, 1000


class PriceHistory:
    """All prices of one model: past, present and announced. Every answer depends on the time that is asked for."""

    def __init__(self, entry: ModelInfo, *, batch: bool = True) -> None:
        self._entry = entry
        self._batch = batch  # variants count only at the entry's own provider
        self._cards: dict[int, RateCard | None] = {}  # by id of the entry's own ModelPrice, which lives as long

    def at(self, moment: datetime) -> RateCard | None:
        """Return the standard rates, or None if the table has no price for input or output tokens; never a 0."""
        price = self._entry.get_prices(moment)
        if id(price) not in self._cards:
            self._cards[id(price)] = rate_card(price)
        return self._cards[id(price)]

    def batch_at(self, moment: datetime) -> RateCard | None:
        """Return the rates of the provider's batch API, or None if the table has none.

        genai-prices itself would return the standard rates in that case.
        """
        if not any(price.get("input_mtok") or price.get("output_mtok") for price in self._batch_prices(moment)):
            return None
        return rate_card(self._entry.get_prices(moment, BATCH))

    def batch_covers_cache(self, moment: datetime) -> bool:
        """Return whether the batch API also discounts reading the cache."""
        return any(price.get("cache_read_mtok") for price in self._batch_prices(moment))

    def next_change(self, moment: datetime) -> date | None:
        """Return the first announced day after *moment* on which the rates at that time of day differ, or None."""
        card = self.at(moment)
        days = sorted(start for start in self.start_dates() if start > moment.date())
        return next((day for day in days if self.at(datetime.combine(day, moment.timetz())) != card), None)

    def off_peak(self, moment: datetime) -> tuple[datetime, RateCard] | None:
        """Return the time of day when input is cheapest, with its rate card, or None if *moment* is as cheap."""
        now = self.at(moment)
        if now is None:
            return None
        times = [hours.end_time for hours in self._hours()]
        ends = [datetime.combine(moment.date(), time, time.tzinfo or UTC) for time in times]
        moments = sorted(end if end > moment else end + timedelta(days=1) for end in ends)
        cards = [(end, card) for end in moments if (card := self.at(end)) is not None]
        cheapest = min(cards, key=lambda one: one[1].bands[0].input, default=None)
        return cheapest if cheapest is not None and cheapest[1].bands[0].input < now.bands[0].input else None

    def depends_on_hour(self) -> bool:
        return bool(self._hours())

    def start_dates(self) -> set[date]:
        """Return the days on which a standard price starts."""
        return {one.start_date for _, one in self._standard_prices() if isinstance(one, StartDateConstraint)}

    def check(self) -> None:
        """Raise ValueError if any price, past or future, cannot be used."""
        for price, _ in self._standard_prices():
            rate_card(price)
        for variant in self._entry.price_variants or ():
            rate_card(variant.prices)

    def _hours(self) -> list[TimeOfDateConstraint]:
        return [one for _, one in self._standard_prices() if isinstance(one, TimeOfDateConstraint)]

    def _standard_prices(self) -> list[tuple[ModelPrice, object]]:
        """Return every standard price with the days or hours that it is for, None if it is for all."""
        prices = self._entry.prices
        return [(prices, None)] if isinstance(prices, ModelPrice) else [(one.prices, one.constraint) for one in prices]

    def _batch_prices(self, moment: datetime) -> list[dict[str, object]]:
        return [
            vars(variant.prices)
            for variant in (self._entry.price_variants or () if self._batch else ())
            if variant.when == BATCH and (variant.constraint is None or variant.constraint.active(moment))
        ]


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
