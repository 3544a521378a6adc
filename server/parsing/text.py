"""The members of requests that say which languages are spoken and what is done with the text. All dialects use them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.languages import NamedLanguage, language_named, unknown_language
from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import REDACTIONS, TextOptions, regions
from pipeline.text.phrase_replacement import units_of
from pipeline.text.stage import MAX_HELD_WORDS
from server.model import bounds
from server.model.offers import Offer
from server.parsing.members import (
    FORM_LIST,
    InvalidValue,
    Member,
    Members,
    Parser,
    boolean,
    one_of,
    string,
    subset,
    texts,
)

ANY = ("auto", "multi", "none", "null", "undefined")
"""Names that stand for any language: the one that is spoken is found for each utterance, as without a name.

The last three are what programs write for a value that they do not have.
"""

LANGUAGE = Member(
    "language",
    Parser(string, {"type": "string"}),
    None,
    "The language of all that is said: a tag, a code of ISO 639 or a name. Left out, auto or multi: found for "
    "each utterance",
    example="en",
)
LANGUAGES = Member(
    "languages",
    Parser(texts, {"type": "array", "items": {"type": "string"}}, FORM_LIST),
    [],
    "Those that may be found, and no others. One alone is the language",
    example="en,fr",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What an order says about the languages of its audio."""

    language: str | None = None  # of all that is said; None: found for each utterance
    languages: tuple[str, ...] = ()  # those that may be found; empty: all
    script: str | None = None  # of Chinese text, if the names settle it


def spoken_languages(members: Members, offer: Offer, *, several: Sequence[str] = (LANGUAGES.name,)) -> Spoken:
    """Return what *members* say about languages, and add their faults to those of *members*.

    *several* names the members that list languages. If the server knows one language only, that is the language.
    """
    one = members.take(LANGUAGE.name, _one(offer), None)
    allowed = [language for name in several for language in members.take(name, _list(offer), ())]
    if one is not None and allowed and one.code not in {language.code for language in allowed}:
        members.refuse(LANGUAGE.name, "conflict", f"must be one of the languages that are listed, not {one.code!r}")
    named = allowed if one is None else [one]
    scripts = {language.script for language in named if language.script is not None}
    codes = tuple(dict.fromkeys(language.code for language in named)) or tuple(offer.languages)[:2]
    return Spoken(
        language=codes[0] if len(codes) == 1 else None,
        languages=codes if named and len(codes) > 1 else (),
        script=scripts.pop() if len(scripts) == 1 else None,
    )


def _one(offer: Offer) -> Callable[[Sequence[object]], NamedLanguage | None]:
    return lambda values: _read_name(string(values), offer)


def _list(offer: Offer) -> Callable[[Sequence[object]], Sequence[NamedLanguage]]:
    """A parser of languages with commas between them, in repeated members or in a JSON array."""

    def parse(values: Sequence[object]) -> Sequence[NamedLanguage]:
        given = [name for item in texts(values) for name in item.split(",") if name.strip()]
        found = [_read_name(name, offer) for name in given]
        return [language for language in found if language is not None] if None not in found else ()

    return parse


def _read_name(text: str, offer: Offer) -> NamedLanguage | None:
    """The language that *text* names; None for ANY, or if it is empty. Raises InvalidValue."""
    said = text.strip()
    if not said or said.lower() in ANY:
        return None
    language = language_named(said)
    if language is None:
        raise InvalidValue("unknown_value", unknown_language(said))
    if language.code not in offer.languages:
        raise InvalidValue("unknown_value", offer.refusal(said, language.code))
    return language


# --- what is done with the text ------------------------------------------------------------------------------------


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
    "Region of the telephone numbers, for numerals and redact: two letters, such as US",
)
PROFANITY_FILTER = Member("profanity_filter", boolean, False, "Asterisks in swear words")
REPLACE = Member(
    "replace",
    Parser(_replacements, TERMS, FORM_TERMS),
    (),
    "heard:wanted, for whole words in any case; the first colon separates",
    example="cooper netties:Kubernetes",
)
SOUNDS_LIKE = Member("sounds_like", boolean, False, "Keywords instead of words that sound like them")
PARAGRAPHS = Member("paragraphs", boolean, False, "Paragraphs in JSON and TXT")
SEARCH = Member(
    "search", Parser(_terms, TERMS, FORM_TERMS), (), "Words to find in the text, in any case", example="cancel"
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
