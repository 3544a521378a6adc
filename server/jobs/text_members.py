"""The request members that change the text after recognition. All dialects use them."""

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions, regions
from pipeline.text.stage import MAX_HELD_WORDS
from pipeline.text.wording import units_of
from server.jobs.members import InvalidValue, Member, Members, Parser, boolean, one_of, subset, texts
from server.jobs.spoken import Spoken
from server.model import bounds


def _replacements(values: Sequence[object]) -> tuple[str, ...]:
    """Replacements, each as heard:wanted, in repeated fields or in a JSON array."""
    pairs = _distinct(values)
    for pair in pairs:
        heard, colon, wanted = pair.partition(":")
        if not colon or not units_of(heard):
            raise InvalidValue("invalid_value", f"must be heard:wanted, not {pair[:100]!r}")
        if max(len(heard.split()), len(wanted.split())) > MAX_HELD_WORDS:
            raise InvalidValue(
                "too_long", f"must have at most {MAX_HELD_WORDS} words on each side of the colon, not {pair[:100]!r}"
            )
    return pairs


def _terms(values: Sequence[object]) -> tuple[str, ...]:
    """Terms to look for: a repeated member or a JSON array. A term may have a comma."""
    found = _distinct(values)
    for term in found:
        if not units_of(term):
            raise InvalidValue("invalid_value", f"must be words or signs, not {term[:100]!r}")
    return found


def _region(values: Sequence[object]) -> str:
    """A region whose telephone numbers are known, by two letters. The list of regions is loaded at the first use."""
    return one_of(regions())(values)


def _distinct(values: Sequence[object]) -> tuple[str, ...]:
    """The texts of a member, each once, with single spaces."""
    found = tuple(dict.fromkeys(" ".join(text.split()) for text in texts(values)))
    if not all(text.isprintable() for text in found):
        raise InvalidValue("invalid_value", "must be text without control characters")
    if len(found) > bounds.MAX_TEXT_TERMS:
        raise InvalidValue("too_many", f"must be at most {bounds.MAX_TEXT_TERMS}, got {len(found)}")
    if sum(map(len, found)) > bounds.MAX_KEYWORDS_CHARS:
        raise InvalidValue("too_long", f"must have at most {bounds.MAX_KEYWORDS_CHARS} characters together")
    return found


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
    spoken: Spoken,
    *,
    names: Sequence[str],
    redact: Callable[[Sequence[object]], tuple[str, ...]] | None = None,
) -> TextOptions:
    """Return the text options of a request, and add their faults to those of *members*.

    *names* are names and terms that are likely to be said. *redact* replaces the parser of REDACT.
    """
    numerals = members.get(NUMERALS)
    if numerals and spoken.language is not None and spoken.language not in NUMERAL_LANGUAGES:
        there = f"numerals are there for {', '.join(NUMERAL_LANGUAGES)}, not for {spoken.language}"
        members.refuse("numerals", "conflict", there)
    hidden = members.get(REDACT, redact)
    region = members.get(PHONE_REGION)
    if region is not None and not numerals and "phone" not in hidden:
        members.refuse("phone_region", "missing_companion", "needs numerals or redact=phone")
    by_sound = members.get(SOUNDS_LIKE)
    if by_sound and not names:
        members.refuse("sounds_like", "missing_companion", "needs keywords, which it is to write")
    return TextOptions(
        numerals=numerals,
        redact=hidden,
        phone_region=region,
        profanity_filter=members.get(PROFANITY_FILTER),
        replace=members.get(REPLACE),
        sounds_like=tuple(names) if by_sound else (),
        paragraphs=members.get(PARAGRAPHS),
        search=members.get(SEARCH),
        script=spoken.script,
    )
