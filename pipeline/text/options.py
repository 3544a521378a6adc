"""The options of a client and the settings of the operator for rewriting the text after recognition."""

from collections.abc import Mapping
from dataclasses import dataclass

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
    phone_region: str | None = None  # for orders that name none; None: they have none


USUAL_SETTINGS = TextSettings()
