"""The arguments that say what is spoken, for `scribewire transcribe` and `scribewire live`."""

import argparse

from server.config import ConfigError
from server.jobs.members import keywords, members_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--language", help="what is spoken, such as en; left out, it is heard")
    parser.add_argument("--keywords", metavar="LIST", help="comma list of names and terms that are likely to be said")


def keywords_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The names and terms that are likely to be said. Raises ConfigError for too many or too long ones."""
    members = members_of({} if given.keywords is None else {"keywords": given.keywords})
    found = members.take("keywords", keywords, ())
    for fault in members.errors:
        raise ConfigError(f"--keywords {fault.message}, got {len(given.keywords)} characters")
    return found
