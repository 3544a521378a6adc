"""The request members that say which languages are spoken. All dialects use them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.languages import NamedLanguage, language_named, unknown_language
from server.model.offers import Offer
from server.parsing.members import FORM_LIST, InvalidValue, Member, Members, Parser, string, texts

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
