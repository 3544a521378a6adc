"""The members of requests for transcriptions and live sessions, each declared once.

orders.py parses requests with them. /openapi.json and the command line take their descriptions from here.
"""

import base64
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pipeline.documents.cues import USUAL_SHAPE
from pipeline.documents.service_v1 import SCHEMA
from pipeline.ingest.input_formats import AUTO, CHANNELS, RATES, SEPARATE_CHANNELS, TRACK_MODES, TrackChoice
from pipeline.recognition.engine import TASKS, TRANSCRIBE
from server.model import bounds
from server.model.orders import CONTAINER, SEMANTIC, LiveOptions
from server.parsing.members import (
    FORM_LIST,
    InvalidValue,
    Member,
    Members,
    Parser,
    boolean,
    form_properties,
    from_text,
    json_properties,
    keywords,
    number_in,
    one_of,
    prompt_text,
    single,
    string,
    subset,
    text_up_to,
    texts,
    url_text,
    whole_in,
    whole_seconds,
)
from server.parsing.text import LANGUAGE, LANGUAGES, TEXT_MEMBERS

# --- known speakers: their names, and a recording of each one's voice as a data URL ---------------------------------

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


# --- the other members ---------------------------------------------------------------------------------------------

MIXED, SEPARATE = bounds.CHANNEL_MODES
_LIVE = LiveOptions()


def parse_channel_name(values: Sequence[object]) -> str:
    """The name of a channel, which people read and type."""
    name = text_up_to(bounds.MAX_CHANNEL_CHARS)(values).strip()
    if not name.isprintable() or not name:
        raise InvalidValue("invalid_value", "must be text without control characters")
    return name


def _mixed_channels(values: Sequence[object]) -> int:
    """The number of channels, for audio whose channels are mixed into one."""
    if isinstance(single(values), str):
        raise InvalidValue("unknown_value", f'must be {CHANNELS[0]}, {CHANNELS[-1]} or "{SEPARATE}"')
    return whole_in(CHANNELS)(values)


def _track(values: Sequence[object]) -> TrackChoice:
    """The number of an audio track, or one of TRACK_MODES."""
    value = single(values)
    if isinstance(value, str) and value.strip().lower() in TRACK_MODES:
        return value.strip().lower()
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        value = int(value.strip()[:9])
    if not isinstance(value, int) or isinstance(value, bool) or value not in bounds.TRACK_NUMBERS:
        raise InvalidValue(
            "unknown_value", f"must be {', '.join(TRACK_MODES)} or a number from 1 to {bounds.TRACK_NUMBERS[-1]}"
        )
    return value


def _metadata(values: Sequence[object]) -> Mapping[str, str]:
    value = single(values)
    if isinstance(value, str):  # forms send it as JSON text
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise InvalidValue("invalid_json", "must be a JSON object") from None
    if not isinstance(value, dict):
        raise InvalidValue("invalid_type", "must be a JSON object")
    if len(value) > bounds.MAX_METADATA_KEYS:
        raise InvalidValue("too_many", f"must have at most {bounds.MAX_METADATA_KEYS} keys")
    for key, text in value.items():
        if not isinstance(text, str):
            raise InvalidValue("invalid_type", f"{key[:40]!r} must be a string")
        if len(key) > bounds.MAX_METADATA_CHARS or len(text) > bounds.MAX_METADATA_CHARS:
            raise InvalidValue("too_long", f"keys and values must have at most {bounds.MAX_METADATA_CHARS} characters")
    return value


TEXT = {"type": "string"}
METADATA_SCHEMA = {
    "type": "object",
    "maxProperties": bounds.MAX_METADATA_KEYS,
    "additionalProperties": {"type": "string", "maxLength": bounds.MAX_METADATA_CHARS},
}
METADATA_FORM = {"type": "string", "contentMediaType": "application/json", "contentSchema": METADATA_SCHEMA}
MIXED_CHANNELS = {"anyOf": [{"type": "integer", "minimum": CHANNELS[0], "maximum": CHANNELS[-1]}, {"const": SEPARATE}]}
_TRACK_NUMBER = {"type": "integer", "minimum": 1, "maximum": bounds.TRACK_NUMBERS[-1]}
TRACK_SCHEMA = {"anyOf": [{"enum": [*TRACK_MODES]}, _TRACK_NUMBER]}
channel_name = Parser(parse_channel_name, {"type": "string", "minLength": 1, "maxLength": bounds.MAX_CHANNEL_CHARS})

TASK = Member(
    "task",
    one_of(TASKS),
    TRANSCRIBE,
    "translate: English text, whatever the language, if the model can (GET /v1/models)",
)
MODEL = Member(
    "model",
    Parser(string, TEXT),
    None,
    "An id of GET /v1/models, for everything; by default each language has its own",
)
PROMPT = Member(
    "prompt",
    prompt_text,
    "",
    f"Vocabulary that the speakers use, or what was said before; its last {bounds.MAX_PROMPT_CHARS} characters count",
)
KEYWORDS = Member(
    "keywords",
    keywords,
    (),
    f"Names and terms that are likely to be said; {bounds.MAX_KEYWORDS_CHARS} characters together",
    example="Siobhan,metoprolol",
)
TRANSLATE_TO = Member(
    "translate_to",
    Parser(
        lambda values: tuple(texts(values)),
        {"type": "array", "items": {"type": "string"}, "maxItems": bounds.MAX_TARGETS},
        FORM_LIST,
    ),
    (),
    "Languages to translate into, beside the original; GET /v1/models lists the possible ones",
    example="de,fr",
)
OUTPUT_FORMATS = Member("output_formats", subset(bounds.FORMATS), ("json",), "The files that are made")
WORD_TIMESTAMPS = Member("word_timestamps", boolean, False, "Times of words in JSON, and an event for each word")
WEBHOOK_URL = Member("webhook_url", url_text, None, "Called when the job has ended")
WEBHOOK_EVENTS = Member("webhook_events", subset(bounds.WEBHOOK_EVENTS), (), "Which events call it")
METADATA = Member(
    "metadata",
    Parser(_metadata, METADATA_SCHEMA, METADATA_FORM),
    {},
    "Your own texts by key, returned in the record; in a form too it is a JSON object",
)
RETENTION = Member(
    "retention",
    one_of(bounds.RETENTIONS),
    None,
    "none: the results are delivered once, then erased. The default is the key's or the plan's",
)
DIARIZE = Member("diarize", boolean, False, "Label speakers by their voices, if the server can (GET /v1/models)")
MAX_SPEAKERS = Member(
    "max_speakers",
    from_text(whole_in(bounds.MAX_SPEAKERS)),
    None,
    "With diarize: the most speakers, on all channels together",
)
SUBTITLE_MEMBERS: tuple[Member[Any], ...] = (
    Member(
        "max_columns",
        from_text(whole_in(bounds.MAX_COLUMNS)),
        None,
        "Subtitles: width of a line; full-width characters count two. The default is the language's",
    ),
    Member("max_lines", from_text(whole_in(bounds.MAX_LINES)), USUAL_SHAPE.max_lines, "Subtitles: lines of a cue"),
    Member(
        "max_cue_s",
        from_text(number_in(*bounds.MAX_CUE_S)),
        USUAL_SHAPE.max_cue_s,
        "Subtitles: longest time of a cue, in seconds",
    ),
    Member(
        "columns_per_second",
        from_text(number_in(*bounds.COLUMNS_PER_SECOND)),
        None,
        "Subtitles: reading speed; cues stay on in silence to reach it. The default is the language's",
    ),
)
"""One for each field of SubtitleShape."""

COMMON: tuple[Member[Any], ...] = (
    LANGUAGE, LANGUAGES, TASK, TRANSLATE_TO, MODEL, PROMPT, KEYWORDS, OUTPUT_FORMATS, WEBHOOK_URL, WEBHOOK_EVENTS,
    METADATA, RETENTION, DIARIZE, MAX_SPEAKERS, *SUBTITLE_MEMBERS, *TEXT_MEMBERS, NAMES, REFERENCES,
)  # fmt: skip
"""What files and live sessions share."""

CHANNEL_MODE = Member(
    "channels",
    one_of(bounds.CHANNEL_MODES),
    MIXED,
    "separate: each channel is transcribed alone, and counts as a recording",
)
TRACK = Member(
    "track",
    Parser(_track, TRACK_SCHEMA, TRACK_SCHEMA),
    AUTO,
    "Which audio track. auto: the usual one if somebody speaks on it, else the first with speech; mix: all together; "
    "separate: each is a channel; a number from 1: that one",
)
FILE_ENCODING = Member(
    "encoding",
    one_of(bounds.ENCODINGS),
    CONTAINER,
    "What a file of raw samples holds: needs sample_rate",
)
FILE_RATE = Member("sample_rate", from_text(whole_in(RATES)), None, "Of raw samples, in Hz: needs encoding")
FILE_CHANNELS = Member(
    "channel_count",
    from_text(whole_in(range(CHANNELS[0], SEPARATE_CHANNELS[-1] + 1))),
    None,
    f"Of raw samples: how many channels are interleaved; 1 if left out, {SEPARATE_CHANNELS[0]} with channels=separate",
)
RAW_MEMBERS: tuple[Member[Any], ...] = (FILE_ENCODING, FILE_RATE, FILE_CHANNELS)
FILE_RECORD = Member("record", boolean, False, "Keep the audio with the job, as GET /v1/jobs/{job_id}/audio")
WAIT = Member("wait", whole_seconds, None, "Seconds to hold the answer")
SCENARIO = Member("sandbox_scenario", one_of(bounds.SCENARIOS), None, "Sandbox only: the outcome to play")
DOCUMENT_SCHEMA = Member("schema", one_of((SCHEMA,)), None, "Of the JSON output")
URL = Member("url", url_text, None, "Address of the recording, instead of a file")
AUDIO_URL = Member("audio_url", url_text, None, "The same as url")
FILE_MEMBERS: tuple[Member[Any], ...] = (
    URL, AUDIO_URL, *COMMON, WORD_TIMESTAMPS, CHANNEL_MODE, TRACK, *RAW_MEMBERS, FILE_RECORD, WAIT, SCENARIO,
    DOCUMENT_SCHEMA,
)  # fmt: skip

ENCODING = Member("encoding", one_of(bounds.ENCODINGS), _LIVE.encoding, "What the audio frames hold")
SAMPLE_RATE = Member(
    "sample_rate",
    whole_in(RATES),
    None,
    f"Of raw audio; {_LIVE.sample_rate} if left out, and {bounds.TELEPHONE_RATE} for "
    + " and ".join(bounds.TELEPHONE_ENCODINGS),
)
CHANNEL_COUNT = Member(
    "channel_count",
    whole_in(SEPARATE_CHANNELS),
    None,
    "With channels=separate or track=separate: how many channels or tracks the audio has; "
    f"{SEPARATE_CHANNELS[0]} if left out",
)
AUDIO_CHANNELS = Member(
    "channels",
    Parser(_mixed_channels, MIXED_CHANNELS),
    _LIVE.channels,
    "Channels of raw audio, to be mixed. separate: each channel is transcribed alone, and counts as a session",
)
INTERIM_RESULTS = Member("interim_results", boolean, _LIVE.interim_results, "Partials too, which may change")
LATENCY = Member(
    "latency",
    one_of(bounds.LATENCY_NAMES),
    _LIVE.latency,
    "How soon words are final: low is sooner, accurate more often right, within 4 s. The default is the server's",
)
ENDPOINTING = Member(
    "endpointing",
    one_of(bounds.ENDPOINTING),
    _LIVE.endpointing,
    "What ends a turn: silence of endpointing_ms, or a sentence that sounds finished",
)
EAGERNESS = Member(
    "eagerness",
    one_of(bounds.EAGERNESS_NAMES),
    _LIVE.eagerness,
    f"With endpointing={SEMANTIC}: how soon a turn counts as over",
)
ENDPOINTING_MS = Member(
    "endpointing_ms", whole_in(bounds.ENDPOINTING_MS), _LIVE.endpointing_ms, "The silence that ends a turn, in ms"
)
MAX_UTTERANCE_S = Member(
    "max_utterance_s", number_in(*bounds.UTTERANCE_S), _LIVE.max_utterance_s, "The longest turn, in seconds"
)
RECORD = Member("record", boolean, _LIVE.record, "Keep the audio as FLAC with the job")
CHANNEL = Member("channel", channel_name, _LIVE.channel, "Name of the caption channel that shows the session")
LIVE_WORD_TIMESTAMPS = Member("word_timestamps", boolean, True, "Times of words in JSON; events always have them")
LIVE_OPTIONS: tuple[Member[Any], ...] = (
    INTERIM_RESULTS, LATENCY, ENDPOINTING, EAGERNESS, ENDPOINTING_MS, MAX_UTTERANCE_S, RECORD, CHANNEL
)  # fmt: skip
"""Members that are fields of LiveOptions under the same name."""
LIVE_MEMBERS: tuple[Member[Any], ...] = (
    ENCODING, SAMPLE_RATE, AUDIO_CHANNELS, CHANNEL_COUNT, TRACK, *LIVE_OPTIONS, *COMMON, LIVE_WORD_TIMESTAMPS,
)  # fmt: skip


def _request(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "required": [], "properties": properties, **more}


_FILE = {"file": {"type": "string", "format": "binary"}}
SCHEMAS: dict[str, Any] = {
    "TranscriptionForm": _request(
        {**_FILE, **form_properties(*FILE_MEMBERS)}, description="Exactly one of file, url and audio_url"
    ),
    "TranscriptionUrlForm": _request(form_properties(*FILE_MEMBERS), description="Exactly one of url and audio_url"),
    "TranscriptionRequest": _request(json_properties(*FILE_MEMBERS), description="Exactly one of url and audio_url"),
    "LiveRequest": _request(json_properties(*LIVE_MEMBERS)),
    "TextOptions": _request(
        json_properties(*TEXT_MEMBERS), description="The options of the text that were ordered, if any"
    ),
}
"""Components of /openapi.json."""
