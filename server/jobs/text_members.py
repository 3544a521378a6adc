"""The members that say what is done with the text after recognition. Every door has them."""

from collections.abc import Callable, Sequence

import orjson

from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions
from pipeline.text.phones import regions
from server.jobs.members import Members, Wrong, boolean, one_of, subset
from server.model import bounds
from server.model.errors import FieldError

TEXT_MEMBERS = (
    "numerals",
    "redact",
    "phone_region",
    "profanity_filter",
    "replace",
    "sounds_like",
    "paragraphs",
    "search",
)


def text_options(
    members: Members,
    *,
    language: str | None,
    names: Sequence[str],
    redact: Callable[[Sequence[object]], tuple[str, ...]] = subset(REDACTIONS),  # noqa: B008  it is a constant
) -> TextOptions:
    """Parse the members, and *redact* by this parser. Faults are among those of *members*.

    *names* are the names and terms that are likely to be said.
    """
    numerals = members.take("numerals", boolean, False)
    if numerals and language is not None and language not in NUMERAL_LANGUAGES:
        there = f"numerals are there for {', '.join(NUMERAL_LANGUAGES)}, not for {language}"
        members.errors.append(FieldError("numerals", "conflict", there))
    hidden = members.take("redact", redact, ())
    region = members.take("phone_region", _region, None)
    if region is not None and not numerals and "phone" not in hidden:
        members.errors.append(FieldError("phone_region", "missing_companion", "needs numerals or redact=phone"))
    by_sound = members.take("sounds_like", boolean, False)
    if by_sound and not names:
        members.errors.append(FieldError("sounds_like", "missing_companion", "needs keywords, which it is to write"))
    return TextOptions(
        numerals=numerals,
        redact=hidden,
        phone_region=region,
        profanity_filter=members.take("profanity_filter", boolean, False),
        replace=members.take("replace", replacements, ()),
        sounds_like=tuple(names) if by_sound else (),
        paragraphs=members.take("paragraphs", boolean, False),
        search=members.take("search", terms, ()),
    )


def replacements(values: Sequence[object]) -> tuple[str, ...]:
    """What is to be written in place of what: heard:wanted, repeated or a JSON array."""
    pairs = _texts(values)
    for pair in pairs:
        heard, colon, _ = pair.partition(":")
        if not colon or not any(sign.isalnum() for sign in heard):
            raise Wrong("invalid_value", f"must be heard:wanted, not {pair[:100]!r}")
    return pairs


def terms(values: Sequence[object]) -> tuple[str, ...]:
    """Terms to look for: repeated or a JSON array, so that a term may have a comma."""
    found = _texts(values)
    for term in found:
        if not any(sign.isalnum() for sign in term):
            raise Wrong("invalid_value", f"must be words, not {term[:100]!r}")
    return found


def _region(values: Sequence[object]) -> str:
    """A region whose telephone numbers are known, by two letters."""
    return one_of(regions())(values)


def _items(value: object) -> list[object]:
    """The items of a JSON array, which forms send as text; anything else by itself."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise Wrong("invalid_json", "must be text or a JSON array of texts") from None
    return value if isinstance(value, list) else [value]


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    items = [item for value in values for item in _items(value)]
    texts = tuple(dict.fromkeys(" ".join(item.split()) for item in items if isinstance(item, str)))
    if not all(isinstance(item, str) for item in items):
        raise Wrong("invalid_type", "must be a list of strings")
    if not all(text.isprintable() for text in texts):
        raise Wrong("invalid_value", "must be text without control characters")
    if len(texts) > bounds.MAX_TEXT_TERMS:
        raise Wrong("too_many", f"must be at most {bounds.MAX_TEXT_TERMS}, got {len(texts)}")
    if sum(map(len, texts)) > bounds.MAX_KEYWORDS_CHARS:
        raise Wrong("too_long", f"must have at most {bounds.MAX_KEYWORDS_CHARS} characters together")
    return texts
