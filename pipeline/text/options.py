"""What clients and the operator set for the text after recognition, and the telephone numbers of the regions in it.

phonenumbers, the library of all regions, takes a moment to load, so it is loaded for the first job that names one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

LABELS: Mapping[str, str] = {
    "pci": "[CARD]",
    "ssn": "[SSN]",
    "iban": "[IBAN]",
    "email": "[EMAIL]",
    "phone": "[PHONE]",
    "numbers": "[NUMBER]",
}
"""What can be redacted, and what stands in its place."""

REDACTIONS = tuple(LABELS)
OF_FIGURES = frozenset(REDACTIONS) - {"email"}
"""The kinds that are made of figures."""

FEWEST_FIGURES, MOST_FIGURES = 7, 17
"""Shorter numbers, such as that of the police, need no redaction and no marks. There are no longer ones."""

MAX_CACHED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The options of the text stage, which rewrites decided words before any reader sees them."""

    numerals: bool = False  # numbers in figures
    redact: tuple[str, ...] = ()  # of REDACTIONS
    profanity_filter: bool = False
    replace: tuple[str, ...] = ()  # "recognised:wanted"; the first is compared without case and punctuation
    sounds_like: tuple[str, ...] = ()  # names that replace words that sound like them
    phone_region: str | None = None  # whose telephone numbers are said, as "US"; None: the operator's
    script: str | None = None  # of what is written in Chinese: "Hans", "Hant"; None: as the model writes it
    paragraphs: bool = False  # in documents
    search: tuple[str, ...] = ()  # terms to find in documents

    @property
    def changes_words(self) -> bool:
        """Whether words are changed, and not only documents."""
        return bool(
            self.numerals
            or self.redact
            or self.profanity_filter
            or self.replace
            or self.sounds_like
            or self.script is not None
        )


NO_CHANGES = TextOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """What the operator decides for the text of all clients."""

    swearing: frozenset[str] | None = None  # swear words, in lower case; None: the words of each language
    phone_region: str | None = None  # for requests that name none; None: they have none


USUAL_SETTINGS = TextSettings()


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
    import phonenumbers  # noqa: PLC0415  takes 25 ms, and most requests name no region

    return phonenumbers
