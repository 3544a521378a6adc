"""Parses the members of a request. Form parts, urlencoded pairs and JSON members arrive as lists of values.

    NUMERALS = Member("numerals", boolean, False, "Numbers in figures")
    members = Members({"numerals": ["true"]})
    numerals = members.get(NUMERALS)
    members.check()  # raises a Refused that names every fault

A Member is declared once: its parser, its default and its description. json_properties() and form_properties() describe
members as JSON Schemas for /openapi.json.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import orjson

from server.model import bounds
from server.model.errors import FieldError, invalid

Fields: TypeAlias = Mapping[str, Sequence[object]]
"""Member name -> every value given for it: text from forms, any JSON value from JSON."""

_NUMBER = re.compile("[0-9]{1,9}([.][0-9]{1,9})?")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")


class InvalidValue(Exception):
    """A value cannot be used; *code* and message go into a FieldError."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


Schema: TypeAlias = Mapping[str, Any]
"""A JSON Schema."""

FORM_LIST: Schema = {"type": "string", "description": "Comma list; the part may also be repeated"}
FORM_SWITCH: Schema = {"enum": ["true", "false", "1", "0"]}


@dataclass(frozen=True, slots=True)
class Parser(Generic[T_co]):
    """Makes one value of all values that were given for a member, and has their schema. Raises InvalidValue."""

    parse: Callable[[Sequence[object]], T_co]
    schema: Schema
    form: Schema | None = None  # where a form has text in place of JSON

    def __call__(self, values: Sequence[object]) -> T_co:
        return self.parse(values)


@dataclass(frozen=True, slots=True)
class Member(Generic[T]):
    """A member of requests: how it is parsed and described, and its default."""

    name: str
    parse: Parser[T]
    default: T
    meaning: str = ""
    example: str = ""  # of a form

    @property
    def schema(self) -> Schema:
        """The schema of its value in JSON."""
        return self._describe(self.parse.schema, self.default)

    @property
    def form_schema(self) -> Schema:
        """The schema of its part in a form."""
        if self.parse.form is None:
            return self.schema
        lists = isinstance(self.default, tuple | Mapping)
        default = ",".join(self.default) if lists else str(self.default).lower()  # type: ignore[arg-type]
        examples = {"examples": [self.example]} if self.example else {}
        return self._describe({**self.parse.form, **examples}, default)

    def _describe(self, schema: Schema, default: object) -> Schema:
        said = [text for text in (self.meaning, schema.get("description")) if text]
        return {
            **schema,
            **({"description": ". ".join(said)} if said else {}),
            **({} if default in (None, "", (), {}) else {"default": default}),
        }


def json_properties(*members: Member[Any]) -> dict[str, Schema]:
    """Return the schemas of *members* in a JSON object, by name."""
    return {member.name: member.schema for member in members}


def form_properties(*members: Member[Any]) -> dict[str, Schema]:
    """Return the schemas of *members* in a form, by name."""
    return {member.name: member.form_schema for member in members}


@dataclass(slots=True)
class Members:
    """Takes members out of *fields* one by one and collects their faults."""

    fields: Fields
    nulls: bool = False  # True: null is a value, which every parser refuses; False: null means that it was left out
    errors: list[FieldError] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Whether the member was given."""
        return bool(self._values(name))

    def take(self, name: str, parse: Callable[[Sequence[object]], T], default: D) -> T | D:
        """The value of the member *name*, or *default* if it was left out or is faulty. check() reports faults."""
        if not self.has(name):
            return default
        try:
            return parse(self._values(name))
        except InvalidValue as wrong:
            self.refuse(name, wrong.code, str(wrong))
            return default

    def get(self, member: Member[T], parse: Callable[[Sequence[object]], T] | None = None) -> T:
        """The value of a declared member. *parse* is used in place of the declared parser."""
        return self.take(member.name, parse or member.parse, member.default)

    def shortened_prompt(self, member: Member[str]) -> tuple[Mapping[str, str], ...]:
        """A warning if not all of the text of a valid *member* is used."""
        given = "".join(map(str, self._values(member.name)))
        used = self.get(member) if given and not self.errors else given
        if used == given:
            return ()
        message = f"the last {len(used)} of {len(given)} characters are used"
        return ({"code": "prompt_shortened", "param": member.name, "message": message},)

    def need(self, name: str, parse: Callable[[Sequence[object]], str]) -> str:
        """The text of a member that must be given and not be empty. check() reports one that is missing."""
        text = self.take(name, parse, "")
        if not text and not self.errors:
            self.refuse(name, "missing", "is required")
        return text

    def _values(self, name: str) -> list[object]:
        return [value for value in self.fields.get(name, ()) if value is not None or self.nulls]

    def refuse(self, name: str, code: str, message: str) -> None:
        """Note a fault of the member *name*."""
        self.errors.append(FieldError(name, code, message))

    def check(self) -> None:
        """Raise a Refused that names every fault so far."""
        if self.errors:
            raise invalid(self.errors)


def members_of(body: Mapping[str, object]) -> Members:
    """The members of a JSON object. Its nulls are refused."""
    return Members({name: [value] for name, value in body.items()}, nulls=True)


# --- parsers: all values given for one member -> its value; they raise InvalidValue --------------------------------


def single(values: Sequence[object]) -> object:
    if len(values) > 1:
        raise InvalidValue("repeated", "may be given only once")
    return values[0]


def string(values: Sequence[object]) -> str:
    value = single(values)
    if not isinstance(value, str):
        raise InvalidValue("invalid_type", "must be a string")
    return value


def _plain(value: object) -> str:
    """A string or a whole number as text; empty for everything else, which may be nested too deeply for str()."""
    return str(value) if isinstance(value, str | int) else ""


def text_up_to(most: int, schema: Schema | None = None) -> Parser[str]:
    """A parser of text with at most *most* characters. *schema* is added to its schema."""

    def parse(values: Sequence[object]) -> str:
        text = string(values)
        if len(text) > most:
            raise InvalidValue("too_long", f"must have at most {most} characters, got {len(text)}")
        return text

    return Parser(parse, {"type": "string", "maxLength": most, **(schema or {})})


def _prompt(values: Sequence[object]) -> str:
    """The end of a prompt, from the beginning of a word: OpenAI's API takes prompts of any length and does the same."""
    text = string(values)
    if len(text) <= bounds.MAX_PROMPT_CHARS:
        return text
    end = text[-bounds.MAX_PROMPT_CHARS :]
    return end.partition(" ")[2] or end


prompt_text = Parser(_prompt, {"type": "string"})
url_text = text_up_to(bounds.MAX_URL_CHARS, {"format": "uri"})


def _boolean(values: Sequence[object]) -> bool:
    value = single(values)
    if isinstance(value, bool):
        return value
    try:
        return {"true": True, "1": True, "false": False, "0": False}[_plain(value).strip().lower()]
    except KeyError:
        raise InvalidValue("invalid_type", "must be true or false") from None


boolean = Parser(_boolean, {"type": "boolean"}, FORM_SWITCH)


def _whole_seconds(values: Sequence[object]) -> int:
    """A whole number of seconds, not negative, of at most nine digits."""
    value = _plain(single(values)).strip()
    if not (value.isascii() and value.isdecimal() and len(value) <= 9):  # noqa: PLR2004  nine digits: 31 years
        raise InvalidValue("invalid_type", "must be a whole number of seconds")
    return int(value)


whole_seconds = Parser(_whole_seconds, {"type": "integer", "minimum": 0})


def texts(values: Sequence[object]) -> list[str]:
    """The texts of a member that is repeated or has a JSON array, which forms send as text."""
    items: list[object] = []
    for value in map(_parse_array, values):
        items += value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise InvalidValue("invalid_type", "must be a list of strings")
    return [str(item) for item in items]


def _parse_array(value: object) -> object:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            raise InvalidValue("invalid_json", "begins with [, so it must be a JSON array of texts") from None
    return value


def whole_in(allowed: range) -> Parser[int]:
    def parse(values: Sequence[object]) -> int:
        value = single(values)
        if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
            raise InvalidValue("out_of_range", f"must be a whole number from {allowed[0]} to {allowed[-1]}")
        return value

    return Parser(parse, {"type": "integer", "minimum": allowed[0], "maximum": allowed[-1]})


def number_in(least: float, most: float) -> Parser[float]:
    def parse(values: Sequence[object]) -> float:
        value = single(values)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidValue("out_of_range", f"must be a number from {least:g} to {most:g}")
        return float(value)

    return Parser(parse, {"type": "number", "minimum": least, "maximum": most})


def from_text(parse: Parser[T]) -> Parser[T]:
    """*parse*, which also takes numbers as text, such as 17.5, because forms send text."""

    def read(values: Sequence[object]) -> T:
        value = single(values)
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            return parse([float(value) if "." in value else int(value)])
        return parse(values)

    return Parser(read, parse.schema)


def one_of(allowed: Sequence[str]) -> Parser[str]:
    def parse(values: Sequence[object]) -> str:
        value = string(values).strip().lower()
        for candidate in allowed:
            if candidate.lower() == value:
                return candidate
        raise InvalidValue("unknown_value", f"unknown value {value[:100]!r}; allowed: {', '.join(allowed)}")

    return Parser(parse, {"enum": [*allowed]})


def _keywords(values: Sequence[object]) -> tuple[str, ...]:
    """Names and terms. Each item of a JSON array or repeated member is one; other text is a list with commas."""
    items = [item for value in values for item in (value if isinstance(value, list) else [value])]
    if not all(isinstance(item, str) for item in items):
        raise InvalidValue("invalid_type", "must be a list of strings")
    whole = len(items) > 1 or isinstance(values[0], list)
    parts = map(str, items) if whole else str(items[0]).split(",")
    terms = tuple(dict.fromkeys(term for part in parts if (term := " ".join(part.split()))))
    if len(terms) > bounds.MAX_KEYWORDS:
        raise InvalidValue("too_many", f"must be at most {bounds.MAX_KEYWORDS}, got {len(terms)}")
    if sum(map(len, terms)) > bounds.MAX_KEYWORDS_CHARS:
        raise InvalidValue("too_long", f"must have at most {bounds.MAX_KEYWORDS_CHARS} characters together")
    return terms


keywords = Parser(_keywords, {"type": "array", "items": {"type": "string"}, "maxItems": bounds.MAX_KEYWORDS}, FORM_LIST)


def subset(allowed: Sequence[str]) -> Parser[tuple[str, ...]]:
    """Some of *allowed*: a list with commas, a repeated member or a JSON array; case-insensitive, without repeats."""

    def parse(values: Sequence[object]) -> tuple[str, ...]:
        given = [part.strip().lower() for item in texts(values) for part in item.split(",")]
        parts = dict.fromkeys(filter(None, given))
        for part in parts:
            if part not in allowed:
                raise InvalidValue("unknown_value", f"unknown value {part[:100]!r}; allowed: {', '.join(allowed)}")
        if not parts:
            raise InvalidValue("empty", f"must name at least one of {', '.join(allowed)}")
        return tuple(parts)

    form = {**FORM_LIST, "examples": [",".join(allowed)]}
    return Parser(parse, {"type": "array", "items": {"enum": [*allowed]}, "minItems": 1}, form)


_INDEX = re.compile(r"\[[0-9]{0,3}\]$")
_NEVER_EMPTY = frozenset({"redact", "retention", "webhook_url"})


def plain_fields(fields: Fields) -> Fields:
    """The fields without the ending [] or [0] that many clients add to the name of a member with several values.

    Empty values are left out, because forms of other programs have every field, filled in or not. Only what would be
    missed without a word, such as a redaction, must not be empty.
    """
    merged: dict[str, Sequence[object]] = {}
    for name, values in fields.items():
        bare = plain_name(name)
        kept = values if bare in _NEVER_EMPTY else [value for value in values if value != ""]
        if kept:
            merged[bare] = [*merged.get(bare, ()), *kept]
    return merged


def plain_name(name: str) -> str:
    """The name of a member without an ending [] or [0]."""
    return _INDEX.sub("", name)
