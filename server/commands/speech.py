"""The arguments of `transcribe` and `live` about the speech, its speakers and its text."""

import argparse
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.text.options import REDACTIONS
from server.config import ConfigError
from server.jobs.known_speakers import NAMES, REFERENCES, known_speakers
from server.jobs.members import Members, members_of
from server.jobs.order_members import KEYWORDS, MULTI
from server.jobs.text_members import TEXT_MEMBERS, text_options
from server.model.bounds import MAX_SPEAKERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", help="spoken language, such as en (default: detected once); multi: detected in each turn"
    )
    parser.add_argument("--keywords", metavar="LIST", help="comma list of names and terms that are likely to be said")

    parser.add_argument("--numerals", action="store_true", default=None, help="write numbers in figures")
    parser.add_argument(
        "--redact", metavar="LIST", help=f"hide these in the text: comma list of {', '.join(REDACTIONS)}"
    )
    parser.add_argument(
        "--profanity-filter", action="store_true", default=None, help="write swear words with asterisks"
    )
    parser.add_argument(
        "--sounds-like",
        action="store_true",
        default=None,
        help="write --keywords in place of words that sound like them",
    )
    parser.add_argument(
        "--phone-region",
        metavar="XX",
        help="telephone numbers are those of this region, such as US, for numerals and redact",
    )
    parser.add_argument("--paragraphs", action="store_true", default=None, help="paragraphs in JSON and TXT")
    for name, metavar, meaning in (
        ("--replace", "HEARD:WANTED", "write this in place of that; may be repeated"),
        ("--search", "TERM", "find this in the text, for the JSON; may be repeated"),
    ):
        parser.add_argument(name, metavar=metavar, action="append", help=meaning)
    _add_speaker_arguments(parser)


def _add_speaker_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--diarize", action="store_true", help="label speakers by their voices")
    parser.add_argument(
        "--max-speakers", type=int, metavar="N", help="with --diarize: the most speakers, 1 to 10 (default: 10)"
    )
    parser.add_argument(
        "--known-speaker",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="with --diarize: a person, and a recording with 2 to 10 s of speech of this person alone; may be repeated",
    )


def text_fields(given: argparse.Namespace, names: Sequence[str]) -> dict[str, object]:
    """The members of a request that say how the text is written, without those that the command line did not name.

    *names* are those that keywords_of() returns. Raises ConfigError that names the first wrong one.
    """
    fields = {member.name: value for member in TEXT_MEMBERS if (value := getattr(given, member.name)) is not None}
    members = Members({name: value if isinstance(value, list) else [value] for name, value in fields.items()})
    text_options(members, language=None if given.language == MULTI else given.language, names=names)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param.replace('_', '-')} {fault.message}, got {fields[fault.param]!r}")
    return fields


def keywords_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The names and terms that are likely to be said. Raises ConfigError for too many or too long ones."""
    members = members_of({} if given.keywords is None else {KEYWORDS.name: given.keywords})
    found = members.get(KEYWORDS)
    for fault in members.errors:
        raise ConfigError(f"--keywords {fault.message}, got {len(given.keywords)} characters")
    return found


def known_speakers_of(given: argparse.Namespace) -> dict[str, bytes]:
    """The recordings of known people, by name. Raises ConfigError for what a server would refuse, too."""
    if given.max_speakers not in (None, *MAX_SPEAKERS):
        raise ConfigError(f"--max-speakers must be from 1 to {MAX_SPEAKERS[-1]}, got {given.max_speakers}")
    found: dict[str, bytes] = {}
    for one in given.known_speaker:
        name, equals, file = one.partition("=")
        if not equals or not Path(file).is_file():
            raise ConfigError(f"--known-speaker must be NAME=FILE with an existing file, got {one!r}")
        found[name] = Path(file).read_bytes()
    urls = [_data_url(recording) for recording in found.values()]
    members = Members({NAMES.name: [[*found]], REFERENCES.name: [urls]} if found else {})
    people = known_speakers(members, diarize=given.diarize, max_speakers=given.max_speakers)
    for fault in members.errors:
        raise ConfigError(f"--known-speaker {fault.message}")
    return dict(people)


def speaker_fields(given: argparse.Namespace, recordings: Mapping[str, bytes]) -> dict[str, object]:
    """The members of a request about its speakers, with the recordings of known people."""
    fields: dict[str, object] = {"diarize": True} if given.diarize else {}
    if given.max_speakers is not None:
        fields["max_speakers"] = given.max_speakers
    if recordings:
        fields[NAMES.name] = [*recordings]
        fields[REFERENCES.name] = [_data_url(recording) for recording in recordings.values()]
    return fields


def _data_url(recording: bytes) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(recording).decode()}"
