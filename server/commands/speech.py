"""The arguments that `transcribe` and `live` share, about the speech and the server."""

import argparse
import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pipeline.language_names import language_named
from server.config import Config, ConfigError
from server.jobs.known_speakers import NAMES, REFERENCES, known_speakers
from server.jobs.members import Member, Members, boolean, members_of
from server.jobs.order_members import DIARIZE, KEYWORDS
from server.jobs.spoken import LANGUAGE, LANGUAGES, Spoken, spoken_languages
from server.jobs.text_members import PHONE_REGION, REDACT, REPLACE, SEARCH, TEXT_MEMBERS, text_options
from server.model.bounds import MAX_SPEAKERS
from server.model.offers import Offer

METAVARS = {
    LANGUAGE.name: "LANGUAGE",
    LANGUAGES.name: "LIST",
    KEYWORDS.name: "LIST",
    REDACT.name: "LIST",
    PHONE_REGION.name: "XX",
    REPLACE.name: "HEARD:WANTED",
    SEARCH.name: "TERM",
}
REPEATED = frozenset({REPLACE.name, SEARCH.name})


def add_arguments(parser: argparse.ArgumentParser, *, server: str | None, meaning: str) -> None:
    """Add the arguments about the speech, --server with the default *server*, and --key."""
    parser.add_argument("--server", metavar="URL", default=server, help=meaning)
    parser.add_argument("--key", help="API key (default: the operator key of the data folder)")
    members: tuple[Member[Any], ...] = (LANGUAGE, LANGUAGES, KEYWORDS, *TEXT_MEMBERS)
    for member in members:
        add_member(parser, member)
    _add_speaker_arguments(parser)


def add_member(parser: argparse.ArgumentParser, member: Member[Any]) -> None:
    """Add the option for a *member* of requests, with the member's description."""
    schema, meaning = member.parse.schema, member.meaning[0].lower() + member.meaning[1:]
    kind: dict[str, Any] = {"metavar": METAVARS.get(member.name)}
    if member.parse is boolean:
        kind = {"action": "store_true", "default": None}
    elif "enum" in schema:
        kind = {"choices": schema["enum"]}
        meaning += f" (default: {member.default})" if member.default else ""
    elif "enum" in schema.get("items", {}):
        meaning += f": comma list of {', '.join(schema['items']['enum'])}"
    elif member.name in REPEATED:
        kind["action"] = "append"
        meaning += "; may be repeated"
    parser.add_argument(f"--{member.name.replace('_', '-')}", help=meaning, **kind)


def _add_speaker_arguments(parser: argparse.ArgumentParser) -> None:
    add_member(parser, DIARIZE)
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
    """The members of a request about its text that the command line names. *names* come from keywords_of().

    Raises ConfigError for the first wrong one.
    """
    fields = {member.name: value for member in TEXT_MEMBERS if (value := getattr(given, member.name)) is not None}
    members = Members({name: value if isinstance(value, list) else [value] for name, value in fields.items()})
    named = language_named(given.language or "")
    text_options(members, Spoken(language=None if named is None else named.code), names=names)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param.replace('_', '-')} {fault.message}, got {fields[fault.param]!r}")
    return fields


def spoken_fields(given: argparse.Namespace) -> dict[str, object]:
    """The members of a request about its languages."""
    return {name: value for name in (LANGUAGE.name, LANGUAGES.name) if (value := getattr(given, name)) is not None}


def spoken_here(given: argparse.Namespace, offer: Offer) -> Spoken:
    """The languages that the command line names. Raises ConfigError for one that no model here hears."""
    members = members_of(spoken_fields(given))
    spoken = spoken_languages(members, offer)
    for fault in members.errors:
        raise ConfigError(f"--{fault.param} cannot be used: {fault.message}")
    return spoken


def keywords_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The names and terms that are likely to be said. Raises ConfigError for too many or too long ones."""
    members = members_of({} if given.keywords is None else {KEYWORDS.name: given.keywords})
    found = members.get(KEYWORDS)
    for fault in members.errors:
        raise ConfigError(f"--keywords {fault.message}, got {len(given.keywords)} characters")
    return found


def known_speakers_of(given: argparse.Namespace) -> dict[str, bytes]:
    """Read the recordings of known people, by name. Raises ConfigError, also for what a server would refuse."""
    if given.max_speakers not in (None, *MAX_SPEAKERS):
        raise ConfigError(f"--max-speakers must be from 1 to {MAX_SPEAKERS[-1]}, got {given.max_speakers}")
    for option, value in (("--known-speaker", given.known_speaker), ("--max-speakers", given.max_speakers)):
        if value and not given.diarize:
            raise ConfigError(f"{option} needs --diarize")
    fields: dict[str, list[object]] = {}
    for one in given.known_speaker:
        name, equals, file = one.partition("=")
        if not equals or not Path(file).is_file():
            raise ConfigError(f"--known-speaker must be NAME=FILE with an existing file, got {one!r}")
        fields.setdefault(NAMES.name, []).append(name)
        fields.setdefault(REFERENCES.name, []).append(_data_url(Path(file).read_bytes()))
    members = Members(fields)
    people = known_speakers(members, diarize=bool(given.diarize), max_speakers=given.max_speakers)
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


def key_of(given: argparse.Namespace, config: Config) -> str:
    if given.key is not None:
        return str(given.key)
    path = config.data_dir / "operator-key"
    if not path.is_file():
        raise ConfigError("--key must be given where there is no operator key in the data folder, got none")
    return path.read_text().strip()


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Turn errors of the server, or its absence, into one sentence and exit status 1. A wrong option is ConfigError."""
    import httpx  # noqa: PLC0415  takes 0.2 s, and who transcribes a file here reaches nobody

    from server.client import ServiceError  # noqa: PLC0415  as above

    try:
        yield
    except ServiceError as error:
        if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ConfigError(str(error)) from None
        raise SystemExit(f"scribewire: {error}") from None
    except (OSError, httpx.TransportError) as error:
        raise SystemExit(f"scribewire: {address} cannot be reached: {error}") from None
