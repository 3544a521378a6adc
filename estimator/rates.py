"""What tokens cost: exact money, and one model's rate card at one moment.

Money is a whole number of UNITS, 10**-30 USD each, so every sum and product is exact; it becomes Decimal or text
only at the edge. A price table gives USD per million tokens, hence 24 decimals of a price fit.
"""

from bisect import bisect_left
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow

SCALE = 30
"""Decimal places of one UNIT of money."""

_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation, Overflow])  # rounding is an error, never an answer


def usd(units: int) -> Decimal:
    """The amount in USD, exactly."""
    return Decimal(units).scaleb(-SCALE, _EXACT)


def usd_text(amount: Decimal) -> str:
    """The amount as a plain decimal: no exponent, no trailing zeros, nothing rounded."""
    return format(amount.normalize(_EXACT), "f")


def units_per(price: Decimal, *, per: int) -> int:
    """The UNITS that one thing costs when *per* of them cost *price* USD; *per* is a power of ten.

    Raises ValueError for a price that is negative, not finite, or has more decimals than SCALE can hold.
    """
    if not price.is_finite() or price < 0:
        raise ValueError(f"a price must be a finite number of USD, 0 or more, got {price}")
    units = price.scaleb(SCALE, _EXACT)
    whole = int(units)
    if whole != units or whole % per:
        raise ValueError(f"the price {price} has more decimals than can be added exactly")
    return whole // per


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, counted as providers report them: *input* includes *cached* and *written*."""

    input: int
    cached: int = 0
    written: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """UNITS per token, and *request* per call, as long as no tier boundary is crossed."""

    input: int
    cached: int
    written: int
    output: int
    request: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCard:
    """One model's prices at one moment.

    A call whose input is longer than thresholds[i] is billed wholly at bands[i + 1]: tiers are cliffs, not slices.
    """

    bands: tuple[Rates, ...]
    thresholds: tuple[int, ...] = ()  # ascending; one fewer than bands
    reads_cache: bool = False  # a price for cached input is known
    bills_writes: bool = False  # writing the cache has a price of its own, and not one below plain input

    def band(self, input_tokens: int) -> Rates:
        """The rates of a call with so many input tokens."""
        return self.bands[bisect_left(self.thresholds, input_tokens)]

    def cost(self, usage: Usage) -> Decimal:
        """USD of one call."""
        rates = self.band(usage.input)
        plain = usage.input - usage.cached - usage.written
        return usd(
            plain * rates.input
            + usage.cached * rates.cached
            + usage.written * rates.written
            + usage.output * rates.output
            + rates.request
        )

    def below_tiers(self) -> "RateCard":
        """The same card as if no call were ever long enough for a higher tier."""
        return RateCard(bands=self.bands[:1], reads_cache=self.reads_cache, bills_writes=self.bills_writes)
