"""Telephone numbers of a region: which figures can be one, and how people there write it. Pure.

The library of all regions takes a moment to load, so it is loaded for the first job that names a region.
"""

from functools import lru_cache
from types import ModuleType
from typing import Any

FEWEST_FIGURES, MOST_FIGURES = 7, 17
"""Shorter numbers, such as that of the police, need no redaction and no marks. There are no longer ones."""

MAX_CACHED = 4096


def regions() -> list[str]:
    """Return the known regions, by their two letters of ISO 3166-1, such as "US"."""
    return sorted(_library().SUPPORTED_REGIONS)


@lru_cache(MAX_CACHED)
def may_be_phone(figures: str, region: str) -> bool:
    """Return whether *figures*, dialled in *region*, have the length of a telephone number, in use or not."""
    number = _number(figures, region)
    if number is None:
        return False
    library = _library()
    return bool(library.is_possible_number_with_reason(number) == library.ValidationResult.IS_POSSIBLE)


@lru_cache(MAX_CACHED)
def format_phone(figures: str, region: str, *, plus: bool = False) -> str | None:
    """Return a telephone number as it is written in *region*; None if the figures cannot be a number in use.

    With *plus* the figures begin with the code of a country, so they mean the same in every region.
    """
    number = _number(f"+{figures}" if plus else figures, region)
    library = _library()
    if number is None or not library.is_valid_number(number):
        return None
    home = not plus and number.country_code == library.country_code_for_region(region)
    shape = library.PhoneNumberFormat.NATIONAL if home else library.PhoneNumberFormat.INTERNATIONAL
    return str(library.format_number(number, shape))


def _number(text: str, region: str) -> Any:
    """Return the PhoneNumber that *text* is, or None."""
    if not FEWEST_FIGURES <= len(text) <= MOST_FIGURES:
        return None
    library = _library()
    try:
        return library.parse(text, region)
    except library.NumberParseException:
        return None


def _library() -> ModuleType:
    import phonenumbers  # noqa: PLC0415  takes 25 ms, and most orders name no region

    return phonenumbers
