"""The request members for known speakers: the names of people, and a recording of each one's voice as a data URL."""

import base64
import re
import unicodedata
from collections.abc import Mapping, Sequence

from server.jobs.members import InvalidValue, Member, Members, Parser, texts
from server.model import bounds

_HEAD = re.compile(r"\s*data:[^,]*;\s*base64\s*", re.ASCII | re.IGNORECASE)
_MAX_HEAD = 200  # characters; the time of a match grows with their square
_LINE_ENDS = b" \t\n\r"  # base64 tools put them after every 76 characters
_TAKEN = re.compile(r"[sS]\d+|[^\W\d_]")  # labels of speakers without a name
_JOINERS = {0x200C: None, 0x200D: None}  # invisible, and part of Persian and Sinhala names


def _few_texts(values: Sequence[object]) -> list[str]:
    items = texts(values)
    if len(items) > bounds.MAX_SPEAKERS[-1]:
        raise InvalidValue("too_many", f"must be at most {bounds.MAX_SPEAKERS[-1]}, got {len(items)}")
    return items


def _names(values: Sequence[object]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in _few_texts(values))
    if len({_normalised_name(name).casefold() for name in names}) < len(names):
        raise InvalidValue("repeated", "must differ from each other in more than capitals")
    return names


def _normalised_name(name: str) -> str:
    """Return a name as it looks, which spellings with other code points may share. Raises InvalidValue."""
    short = name if len(name) <= bounds.MAX_SPEAKER_CHARS else ""
    look = unicodedata.normalize("NFKC", short.translate(_JOINERS)).strip()
    if not look or not look.isprintable():
        raise InvalidValue("invalid_value", f"must have 1 to {bounds.MAX_SPEAKER_CHARS} characters, none of control")
    if _TAKEN.fullmatch(look):
        raise InvalidValue("invalid_value", f"{name!r} could be a speaker without a name")
    return look


def _recordings(values: Sequence[object]) -> tuple[bytes, ...]:
    recordings = []
    for text in _few_texts(values):
        end = text.find(",", 0, _MAX_HEAD)
        if end < 0 or _HEAD.fullmatch(text, 0, end) is None:
            raise InvalidValue("invalid_value", "must be data URLs in base64, as data:audio/wav;base64,...")
        try:
            data = text[end + 1 :].encode("ascii").translate(None, _LINE_ENDS).rstrip(b"=")
            recording = base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
        except ValueError:
            raise InvalidValue("invalid_value", "must be data URLs in base64") from None
        if len(recording) > bounds.MAX_REFERENCE_BYTES:
            raise InvalidValue("too_long", f"must have at most {bounds.MAX_REFERENCE_BYTES} bytes each")
        recordings.append(recording)
    return tuple(recordings)


NAMES = Member(
    "known_speaker_names",
    Parser(
        _names,
        {
            "type": "array",
            "maxItems": bounds.MAX_SPEAKERS[-1],
            "items": {"type": "string", "minLength": 1, "maxLength": bounds.MAX_SPEAKER_CHARS},
        },
    ),
    (),
    "With diarize: names of the people whose references follow",
)
REFERENCES = Member(
    "known_speaker_references",
    Parser(_recordings, {"type": "array", "maxItems": bounds.MAX_SPEAKERS[-1], "items": {"type": "string"}}),
    (),
    "A data URL for each name: 2 to 10 s of speech of this person alone, of at most 2 MB and 30 s",
)
KNOWN_SPEAKERS = frozenset({NAMES.name, REFERENCES.name})


def known_speakers(members: Members, *, diarize: bool, max_speakers: int | None) -> Mapping[str, bytes]:
    """Return the recording of each known person by name, from NAMES and REFERENCES. Adds faults to *members*."""
    names = members.get(NAMES)
    recordings = members.get(REFERENCES)
    given = names or recordings
    if given and not diarize:
        members.refuse(NAMES.name, "missing_companion", "needs diarize=true")
    elif given and not members.errors and len(names) != len(recordings):
        mismatch = f"must be as many as {REFERENCES.name}: {len(names)} and {len(recordings)} were given"
        members.refuse(NAMES.name, "invalid_value", mismatch)
    elif max_speakers is not None and max_speakers < len(names):
        members.refuse("max_speakers", "out_of_range", f"must be at least {len(names)}, one a name")
    return dict(zip(names, recordings, strict=False))
