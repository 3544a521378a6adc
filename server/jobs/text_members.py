"""The members of a request about the text after recognition. Every dialect uses them."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions
from pipeline.text.phones import regions
from pipeline.text.stage import MAX_HELD_WORDS
from server.jobs.members import InvalidValue, Member, Members, Parser, boolean, one_of, subset
from server.model import bounds
from server.model.errors import FieldError


def _replacements(values: Sequence[object]) -> tuple[str, ...]:
    """Replacements, each as heard:wanted, in repeated fields or in a JSON array."""
    pairs = _texts(values)
    for pair in pairs:
        heard, colon, _ = pair.partition(":")
        if not colon or not any(sign.isalnum() for sign in heard):
            raise InvalidValue("invalid_value", f"must be heard:wanted, not {pair[:100]!r}")
        if len(heard.split()) > MAX_HELD_WORDS:
            raise InvalidValue(
                "too_long", f"must have at most {MAX_HELD_WORDS} words before the colon, not {pair[:100]!r}"
            )
    return pairs


def _terms(values: Sequence[object]) -> tuple[str, ...]:
    """Terms to look for: repeated or a JSON array, so that a term may have a comma."""
    found = _texts(values)
    for term in found:
        if not any(sign.isalnum() for sign in term):
            raise InvalidValue("invalid_value", f"must be words, not {term[:100]!r}")
    return found


def _region(values: Sequence[object]) -> str:
    """A region whose telephone numbers are known, by two letters. Only who asks waits for the list of regions."""
    return one_of(regions())(values)


def _items(value: object) -> list[object]:
    """The items of a JSON array, which forms send as text; any other text is one item."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise InvalidValue("invalid_json", "must be text or a JSON array of texts") from None
    return value if isinstance(value, list) else [value]


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    items = [item for value in values for item in _items(value)]
    texts = tuple(dict.fromkeys(" ".join(item.split()) for item in items if isinstance(item, str)))
    if not all(isinstance(item, str) for item in items):
        raise InvalidValue("invalid_type", "must be a list of strings")
    if not all(text.isprintable() for text in texts):
        raise InvalidValue("invalid_value", "must be text without control characters")
    if len(texts) > bounds.MAX_TEXT_TERMS:
        raise InvalidValue("too_many", f"must be at most {bounds.MAX_TEXT_TERMS}, got {len(texts)}")
    if sum(map(len, texts)) > bounds.MAX_KEYWORDS_CHARS:
        raise InvalidValue("too_long", f"must have at most {bounds.MAX_KEYWORDS_CHARS} characters together")
    return texts


FORM_TERMS = {"type": "string", "description": "The part may be repeated, or have a JSON array"}
TERMS = {"type": "array", "items": {"type": "string"}, "maxItems": bounds.MAX_TEXT_TERMS}
REGION = {"type": "string", "pattern": "^[A-Za-z]{2}$"}

NUMERALS = Member("numerals", boolean, False, "Numbers in figures")
REDACT = Member("redact", subset(REDACTIONS), (), "What is hidden in the text")
PHONE_REGION = Member(
    "phone_region",
    Parser(_region, REGION),
    None,
    "Whose telephone numbers are said, for numerals and redact: two letters, such as US",
)
PROFANITY_FILTER = Member("profanity_filter", boolean, False, "Asterisks in swear words")
REPLACE = Member(
    "replace",
    Parser(_replacements, TERMS, FORM_TERMS),
    (),
    "heard:wanted, for whole words whatever their case; the first colon separates",
    example="cooper netties:Kubernetes",
)
SOUNDS_LIKE = Member("sounds_like", boolean, False, "Keywords in place of words that sound like them")
PARAGRAPHS = Member("paragraphs", boolean, False, "Paragraphs in JSON and TXT")
SEARCH = Member(
    "search", Parser(_terms, TERMS, FORM_TERMS), (), "Words to find in the text, whatever their case", example="cancel"
)
TEXT_MEMBERS: tuple[Member[Any], ...] = (
    NUMERALS, REDACT, PHONE_REGION, PROFANITY_FILTER, REPLACE, SOUNDS_LIKE, PARAGRAPHS, SEARCH
)  # fmt: skip


def text_options(
    members: Members,
    *,
    language: str | None,
    names: Sequence[str],
    redact: Callable[[Sequence[object]], tuple[str, ...]] | None = None,
) -> TextOptions:
    """Return the text options of a request. Faults are added to those of *members*.

    *redact* parses the member of that name, if it is not the usual parser. *names* are names and terms that are likely
    to be said.
    """
    numerals = members.get(NUMERALS)
    if numerals and language is not None and language not in NUMERAL_LANGUAGES:
        there = f"numerals are there for {', '.join(NUMERAL_LANGUAGES)}, not for {language}"
        members.errors.append(FieldError("numerals", "conflict", there))
    hidden = members.get(REDACT, redact)
    region = members.get(PHONE_REGION)
    if region is not None and not numerals and "phone" not in hidden:
        members.errors.append(FieldError("phone_region", "missing_companion", "needs numerals or redact=phone"))
    by_sound = members.get(SOUNDS_LIKE)
    if by_sound and not names:
        members.errors.append(FieldError("sounds_like", "missing_companion", "needs keywords, which it is to write"))
    return TextOptions(
        numerals=numerals,
        redact=hidden,
        phone_region=region,
        profanity_filter=members.get(PROFANITY_FILTER),
        replace=members.get(REPLACE),
        sounds_like=tuple(names) if by_sound else (),
        paragraphs=members.get(PARAGRAPHS),
        search=members.get(SEARCH),
    )
