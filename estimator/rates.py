"""Exact money, and the rate card of one model at one moment.

Money is a whole number of UNITS of 10**-30 USD, so every sum and product is exact. It becomes Decimal or text only in
answers. Price tables give USD per million tokens, so prices may have 24 decimals.
"""

from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import NamedTuple

SCALE = 30
"""Decimal places of one UNIT of money."""

_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation, Overflow])  # rounding is an error, never an answer


def usd(units: int) -> Decimal:
    """Return the amount in USD, exactly."""
    return Decimal(units).scaleb(-SCALE, _EXACT)


def usd_text(amount: Decimal) -> str:
    """Return the amount as a plain decimal: no exponent, no trailing zeros, no rounding."""
    return format(amount.normalize(_EXACT), "f")


def units_per(price: Decimal, *, per: int) -> int:
    """Return the UNITS that one token or call costs if *per* of them cost *price* USD; *per* is a power of ten.

    Raises ValueError for a price that is negative, not finite, or has more decimals than SCALE can hold.
    """
    if not price.is_finite() or price < 0:
        raise ValueError(f"a price must be a finite number of USD, 0 or more, got {price}")
    units = price.scaleb(SCALE, _EXACT)
    whole = int(units)
    if whole != units or whole % per:
        raise ValueError(f"the price {price} has more decimals than can be added exactly")
    return whole // per


class Usage(NamedTuple):
    """Tokens of one or more calls, counted as providers report them: *input* includes *cached* and *written*."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0


class Split(NamedTuple):
    """A cost in UNITS, split by what it pays for."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """UNITS per token, and *request* UNITS per call, within one tier."""

    input: int
    cached: int
    written: int
    output: int
    request: int = 0

    def bill(self, usage: Usage, *, calls: int = 1) -> Split:
        """Return what *calls* calls with *usage* in all cost at these rates."""
        return Split(
            input=(usage.input - usage.cached - usage.written) * self.input,
            cached=usage.cached * self.cached,
            cache_write=usage.written * self.written,
            output=usage.output * self.output,
            requests=calls * self.request,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCard:
    """One model's prices at one moment.

    A call whose input is longer than thresholds[i] is billed at bands[i + 1] for all of its tokens.
    """

    bands: tuple[Rates, ...]
    thresholds: tuple[int, ...] = ()  # ascending; one fewer than bands
    reads_cache: bool = False  # a price for cached input is known
    bills_writes: bool = False  # writing the cache has its own price, not below plain input

    def below_tiers(self) -> "RateCard":
        """Return the same card without its higher tiers."""
        return replace(self, bands=self.bands[:1], thresholds=())
