"""The arguments that say what is spoken and how it is written, for `scribewire transcribe` and `scribewire live`."""

import argparse

from pipeline.text.options import REDACTIONS
from server.config import ConfigError
from server.jobs.members import Members, keywords, members_of
from server.jobs.orders import MULTI
from server.jobs.text_members import TEXT_MEMBERS, text_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--language", help="what is spoken, such as en; left out, it is heard; multi: people change it")
    parser.add_argument("--keywords", metavar="LIST", help="comma list of names and terms that are likely to be said")

    parser.add_argument("--numerals", action="store_true", default=None, help="write numbers in figures")
    parser.add_argument(
        "--redact", metavar="LIST", help=f"hide these in the text: comma list of {', '.join(REDACTIONS)}"
    )
    parser.add_argument(
        "--profanity-filter", action="store_true", default=None, help="write swear words with asterisks"
    )
    parser.add_argument("--paragraphs", action="store_true", default=None, help="paragraphs in JSON and TXT")
    for name, metavar, meaning in (
        ("--replace", "HEARD:WANTED", "write this in place of that; may be repeated"),
        ("--search", "TERM", "find this in the text, for the JSON; may be repeated"),
    ):
        parser.add_argument(name, metavar=metavar, action="append", help=meaning)


def text_fields(given: argparse.Namespace) -> dict[str, object]:
    """The members of a request that say how the text is written, as far as they were given.

    Raises ConfigError that names the first wrong one.
    """
    fields = {name: value for name in TEXT_MEMBERS if (value := getattr(given, name)) is not None}
    members = Members({name: value if isinstance(value, list) else [value] for name, value in fields.items()})
    text_options(members, language=None if given.language == MULTI else given.language)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param.replace('_', '-')} {fault.message}, got {fields[fault.param]!r}")
    return fields


def keywords_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The names and terms that are likely to be said. Raises ConfigError for too many or too long ones."""
    members = members_of({} if given.keywords is None else {"keywords": given.keywords})
    found = members.take("keywords", keywords, ())
    for fault in members.errors:
        raise ConfigError(f"--keywords {fault.message}, got {len(given.keywords)} characters")
    return found
