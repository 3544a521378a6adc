"""Options of `transcribe` and `live` that are members of requests, made of the same declarations as the API's."""

import argparse
import base64
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.languages import language_codes
from server.config import ConfigError
from server.model.errors import Refused
from server.model.offers import ANY_MODEL, ANY_TARGET, Offer
from server.parsing import declared
from server.parsing.declared import KNOWN_SPEAKERS, NAMES, REFERENCES
from server.parsing.members import Member, boolean
from server.parsing.orders import ParsedRequest
from server.parsing.text import LANGUAGE, LANGUAGES, PHONE_REGION, REDACT, REPLACE, SEARCH

Given: TypeAlias = dict[str, Any]
"""The members of a request that the command line names, as in JSON."""

ELSEWHERE = KNOWN_SPEAKERS | {
    member.name
    for member in (
        declared.URL, declared.AUDIO_URL, declared.OUTPUT_FORMATS, declared.WEBHOOK_URL, declared.WEBHOOK_EVENTS,
        declared.METADATA, declared.WAIT, declared.SCENARIO, declared.DOCUMENT_SCHEMA, declared.WORD_TIMESTAMPS,
    )
}  # fmt: skip
"""Members that are no options of their own name."""

METAVARS = {
    LANGUAGE.name: "LANGUAGE",
    LANGUAGES.name: "LIST",
    declared.KEYWORDS.name: "LIST",
    declared.MODEL.name: "NAME",
    declared.PROMPT.name: "TEXT",
    declared.CHANNEL.name: "NAME",
    declared.TRACK.name: "TRACK",
    REDACT.name: "LIST",
    PHONE_REGION.name: "XX",
    REPLACE.name: "HEARD:WANTED",
    SEARCH.name: "TERM",
}
REPEATED = frozenset({REPLACE.name, SEARCH.name})
ANYTHING = Offer(
    engine="any",
    model="any",
    languages=language_codes(),
    translates=True,
    translates_to=(ANY_TARGET,),
    speakers=True,
    aliases=(ANY_MODEL,),
)
"""What a server may offer at most: options that nobody can carry out are refused before any work."""

_NUMBER = re.compile("[0-9]{1,9}([.][0-9]{1,9})?")


def add_options(parser: argparse.ArgumentParser, members: Collection[Member[Any]]) -> None:
    """Add an option for each of the *members* that is none of ELSEWHERE, and --known-speaker."""
    for member in members:
        if member.name not in ELSEWHERE:
            _add_option(parser, member)
    parser.add_argument(
        "--known-speaker",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="with --diarize: a person, and a recording with 2 to 10 s of speech of this person alone; may be repeated",
    )


def _add_option(parser: argparse.ArgumentParser, member: Member[Any]) -> None:
    schema, meaning = member.parse.schema, member.meaning[:1].lower() + member.meaning[1:]
    kind: dict[str, Any] = {"metavar": METAVARS.get(member.name, "N" if "minimum" in schema else "VALUE")}
    if member.parse is boolean:
        kind = {"action": argparse.BooleanOptionalAction} if member.default else {"action": "store_true"}
    elif "enum" in schema:
        kind = {"choices": schema["enum"]}
    elif "enum" in schema.get("items", {}):
        meaning += f": comma list of {', '.join(schema['items']['enum'])}"
    elif member.name in REPEATED:
        kind["action"] = "append"
        meaning += "; may be repeated"
    if member.default not in (None, "", (), [], False, True):
        meaning += f" (default: {member.default})"
    parser.add_argument(_option(member.name), help=meaning.replace("%", "%%"), default=None, **kind)


def members_given(given: argparse.Namespace, members: Collection[Member[Any]]) -> Given:
    """The members that the command line names. Raises ConfigError for a --known-speaker that is no file."""
    fields: Given = {}
    for member in members:
        if member.name not in ELSEWHERE and (value := getattr(given, member.name)) is not None:
            fields[member.name] = _typed(value, member)
    for one in given.known_speaker:
        name, equals, file = one.partition("=")
        if not equals or not Path(file).is_file():
            raise ConfigError(f"--known-speaker must be NAME=FILE with an existing file, got {one!r}")
        fields.setdefault(NAMES.name, []).append(name)
        recording = base64.b64encode(Path(file).read_bytes()).decode()
        fields.setdefault(REFERENCES.name, []).append(f"data:application/octet-stream;base64,{recording}")
    return fields


def _typed(value: Any, member: Member[Any]) -> Any:
    """The *value* as JSON has it. What is no number stays a text, which the member's parser refuses."""
    takes = member.parse.schema.get("type")
    if takes not in ("integer", "number") or not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return value
    return float(value) if "." in value else int(value)


def parse_with(
    parse: Callable[..., ParsedRequest], fields: Given, *, offer: Offer = ANYTHING, **more: Any
) -> ParsedRequest:
    """What parse_order() or parse_live_order() makes of the *fields*. Raises ConfigError that names the options."""
    try:
        return parse({name: [value] for name, value in fields.items()}, offer=offer, **more)
    except Refused as error:
        faults = [f"{_option_of(fault.param)}{_said(fault.message, fields.get(fault.param))}" for fault in error.errors]
        raise ConfigError("; ".join(faults) or error.detail) from None


def _said(message: str, value: object) -> str:
    """A fault as it follows the name of its option."""
    if not message.startswith("must"):
        return f" {message}" if message.startswith("needs") else f": {message}"
    return f" {message}{_got(value)}"


def _got(value: object) -> str:
    return f", got {value!r}" if isinstance(value, str | int | float) and len(str(value)) <= 100 else ""  # noqa: PLR2004  fits into a line


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option_of(param: str) -> str:
    return "--known-speaker" if param in KNOWN_SPEAKERS else _option(param)


def without(fields: Mapping[str, Any], *names: str) -> Given:
    return {name: value for name, value in fields.items() if name not in names}


def comma_list(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """The names in a comma list, each once. Raises ConfigError for one that is not *allowed*."""
    names = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or not {*allowed} >= {*names}:
        raise ConfigError(f"{option} must be a comma list of {', '.join(allowed)}, got {text!r}")
    return names
