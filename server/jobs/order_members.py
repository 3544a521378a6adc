"""The members of requests for transcriptions and live sessions, each declared once.

orders.py parses requests with them. /openapi.json and the command line take their descriptions from here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pipeline.documents.cues import USUAL_SHAPE
from pipeline.documents.service_v1 import SCHEMA
from pipeline.ingest.input_formats import AUTO, CHANNELS, RATES, SEPARATE_CHANNELS, TRACK_MODES, TrackChoice
from pipeline.recognition.engine import TASKS, TRANSCRIBE
from server.jobs.known_speakers import NAMES, REFERENCES
from server.jobs.members import (
    FORM_LIST,
    InvalidValue,
    Member,
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
from server.jobs.spoken import LANGUAGE, LANGUAGES
from server.jobs.text_members import TEXT_MEMBERS
from server.model import bounds
from server.model.orders import CONTAINER, SEMANTIC, LiveOptions

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
    "translate: English text, whatever is spoken, if the model was trained for it (GET /v1/models)",
)
MODEL = Member(
    "model",
    Parser(string, TEXT),
    None,
    "An id of GET /v1/models: the model that hears everything; left out, each language has its own",
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
    "Languages into which what is said is translated, beside the original; GET /v1/models lists those that can be made",
    example="de,fr",
)
OUTPUT_FORMATS = Member("output_formats", subset(bounds.FORMATS), ("json",), "The files that are made")
WORD_TIMESTAMPS = Member("word_timestamps", boolean, False, "Times of words in JSON, and an event for each word")
WEBHOOK_URL = Member("webhook_url", url_text, None, "Called when the job has ended")
WEBHOOK_EVENTS = Member("webhook_events", subset(bounds.WEBHOOK_EVENTS), (), "Which calls come")
METADATA = Member(
    "metadata",
    Parser(_metadata, METADATA_SCHEMA, METADATA_FORM),
    {},
    "Your own texts by key, given back in the record; a JSON object, also in a form",
)
RETENTION = Member(
    "retention",
    one_of(bounds.RETENTIONS),
    None,
    "none: the results are handed over once, then erased. Left out: what the key or the plan says",
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
        "Subtitles: the width of a line; full-width characters count two. Left out: that of the language",
    ),
    Member("max_lines", from_text(whole_in(bounds.MAX_LINES)), USUAL_SHAPE.max_lines, "Subtitles: lines of a cue"),
    Member(
        "max_cue_s",
        from_text(number_in(*bounds.MAX_CUE_S)),
        USUAL_SHAPE.max_cue_s,
        "Subtitles: the longest time that a cue is shown",
    ),
    Member(
        "columns_per_second",
        from_text(number_in(*bounds.COLUMNS_PER_SECOND)),
        None,
        "Subtitles: the reading speed; cues stay on in silence to reach it. Left out: that of the language",
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
    "separate: each channel has its own speakers, and counts as a recording of its own",
)
TRACK = Member(
    "track",
    Parser(_track, TRACK_SCHEMA, TRACK_SCHEMA),
    AUTO,
    "Of several audio tracks in a container. auto: the usual one if somebody speaks on it, else the first with speech; "
    "mix: all together; separate: each is a channel; a number from 1: that one",
)
FILE_ENCODING = Member(
    "encoding",
    one_of(bounds.ENCODINGS),
    CONTAINER,
    "Of a file without a header, which holds raw samples: needs sample_rate",
)
FILE_RATE = Member("sample_rate", from_text(whole_in(RATES)), None, "Of raw samples, a second: needs encoding")
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
DOCUMENT_SCHEMA = Member("schema", one_of((SCHEMA,)), None, "That of the JSON output")
URL = Member("url", url_text, None, "Where the recording is, in place of a file")
AUDIO_URL = Member("audio_url", url_text, None, "Another name of url")
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
    "How many channels raw audio has, to be recognised together. separate: each channel has its own speakers, is "
    "recognised alone and counts as a session of its own",
)
INTERIM_RESULTS = Member("interim_results", boolean, _LIVE.interim_results, "Partials too, which may change")
LATENCY = Member(
    "latency",
    one_of(bounds.LATENCY_NAMES),
    _LIVE.latency,
    "How soon words are final: sooner with low, more surely right with accurate, within 4 s. Left out: the server's",
)
ENDPOINTING = Member(
    "endpointing",
    one_of(bounds.ENDPOINTING),
    _LIVE.endpointing,
    "What ends a turn: silence of endpointing_ms, or that the sentence sounds finished",
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
CHANNEL = Member("channel", channel_name, _LIVE.channel, "The name of the channel that shows the session")
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
