"""JSON Schemas of all requests and answers: the components of /openapi.json.

The black-box tests check every answer against them.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.documents.cues import USUAL_SHAPE
from pipeline.documents.schema import service_v1_schema
from pipeline.ingest.encodings import CHANNELS, RATES, SEPARATE_CHANNELS
from pipeline.recognition.engine import TASKS, TRANSCRIBE
from pipeline.text.options import REDACTIONS
from server.http.codes import CODES
from server.model import bounds
from server.model.jobs import JOB_CODES, State
from server.model.orders import LiveOptions


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, **more}


def _list_of(item: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return _object({"data": {"type": "array", "items": item}, **more})


def _between(least: float, most: float, default: float) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


def _embedded(schema: Any, *, at: str) -> Any:
    """A schema document as a part of another one: its inner references now lead to *at*."""
    match schema:
        case dict():
            kept = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
            return {name: _embedded(value, at=at) for name, value in kept.items()}
        case list():
            return [_embedded(item, at=at) for item in schema]
        case str() if schema.startswith("#/$defs/"):
            return at + schema.removeprefix("#")
        case _:
            return schema


TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
MAYBE_TEXT = {"type": ["string", "null"]}
NUMBER = {"type": "number"}
MAYBE_NUMBER = {"type": ["number", "null"]}
WHOLE = {"type": "integer", "minimum": 0}
MAYBE_WHOLE = {"type": ["integer", "null"], "minimum": 0}
SWITCH = {"type": "boolean"}
INSTANT = {"type": "string", "format": "date-time"}
MAYBE_INSTANT = {"type": ["string", "null"], "format": "date-time"}
URI = {"type": "string", "format": "uri", "maxLength": bounds.MAX_URL_CHARS}
CHANNEL_NAME = {"type": "string", "minLength": 1, "maxLength": bounds.MAX_CHANNEL_CHARS}
FORMAT_NAMES = {"type": "array", "items": {"enum": [*bounds.FORMATS]}}
ENVIRONMENT = {"enum": ["production", "sandbox"]}
RETENTION = {"enum": [None, *bounds.RETENTIONS]}
METADATA = {
    "type": "object",
    "maxProperties": bounds.MAX_METADATA_KEYS,
    "additionalProperties": {"type": "string", "maxLength": bounds.MAX_METADATA_CHARS},
}
KEYWORDS_MEAN = "Names and terms that are likely to be said. A form has a comma list, or the part repeated"
KEYWORDS = {
    "type": "array",
    "items": TEXT,
    "maxItems": bounds.MAX_KEYWORDS,
    "description": f"{KEYWORDS_MEAN}; {bounds.MAX_KEYWORDS_CHARS} characters together",
}
SPEAKER = {
    "channel": {**WHOLE, "description": "Where channels are separate: which one, from 0"},
    "speaker": {"type": "string", "description": "Who speaks, where that is known: S1, S2, ..."},
}
DIARIZE: Mapping[str, Any] = {
    "diarize": {"description": "Tell speakers apart by their voices, if the server can (GET /v1/models)", **SWITCH},
    "max_speakers": {
        "type": "integer",
        "minimum": bounds.MAX_SPEAKERS[0],
        "maximum": bounds.MAX_SPEAKERS[-1],
        "description": "With diarize: as many speakers at most, on all channels together",
    },
}
KNOWN_SPEAKERS: Mapping[str, Any] = {
    "known_speaker_names": {
        "type": "array",
        "maxItems": bounds.MAX_SPEAKERS[-1],
        "items": {"type": "string", "minLength": 1, "maxLength": bounds.MAX_SPEAKER_CHARS},
        "description": "With diarize: people who are called by their names",
    },
    "known_speaker_references": {
        "type": "array",
        "maxItems": bounds.MAX_SPEAKERS[-1],
        "items": {"type": "string"},
        "description": "A data URL for each name: 2 to 10 s of speech of this person alone, of at most 2 MB and 30 s",
    },
}
CHANNELS_MEMBER = {
    "enum": [*bounds.CHANNEL_MODES],
    "default": "mixed",
    "description": "separate: each channel has its own speakers, and counts as a recording of its own",
}
WARNING = _object({"code": TEXT}, {"param": TEXT, "message": TEXT})


def _number(limits: tuple[float, float], default: float) -> dict[str, Any]:
    return _between(*limits, default) | {"type": "number"}


SUBTITLES: Mapping[str, Any] = {
    "max_columns": {
        **_between(bounds.MAX_COLUMNS[0], bounds.MAX_COLUMNS[-1], USUAL_SHAPE.max_columns),
        "description": "Subtitles: the width of a line; full-width characters count two",
    },
    "max_lines": {
        **_between(bounds.MAX_LINES[0], bounds.MAX_LINES[-1], USUAL_SHAPE.max_lines),
        "description": "Subtitles: lines of a cue",
    },
    "max_cue_s": {
        **_number(bounds.MAX_CUE_S, USUAL_SHAPE.max_cue_s),
        "description": "Subtitles: the longest time that a cue is shown",
    },
    "columns_per_second": {
        **_number(bounds.COLUMNS_PER_SECOND, USUAL_SHAPE.columns_per_second),
        "description": "Subtitles: the reading speed; cues stay on in silence to reach it",
    },
}
TASK = {
    "enum": [*TASKS],
    "default": TRANSCRIBE,
    "description": "translate: English text, whatever is spoken, if the model was trained for it (GET /v1/models)",
}
_REPLACE_MEANS = "heard:wanted, for whole words whatever their case; the first colon separates"
_SEARCH_MEANS = "Words to find in the text, whatever their case"
_TERMS = {"type": "array", "items": TEXT, "maxItems": bounds.MAX_TEXT_TERMS}
TEXT_SWITCHES: Mapping[str, Any] = {
    "numerals": {**SWITCH, "default": False, "description": "Numbers in figures"},
    "profanity_filter": {**SWITCH, "default": False, "description": "Asterisks in swear words"},
    "paragraphs": {**SWITCH, "default": False, "description": "Paragraphs in JSON and TXT"},
}
TEXT_LISTS: Mapping[str, Any] = {
    "redact": {"type": "array", "items": {"enum": [*REDACTIONS]}, "description": "What is hidden in the text"},
    "replace": {**_TERMS, "description": _REPLACE_MEANS},
    "search": {**_TERMS, "description": _SEARCH_MEANS},
}
TEXT_OPTIONS = _object(
    {}, {**TEXT_SWITCHES, **TEXT_LISTS}, description="What was ordered to be done with the text; there if anything was"
)
PARAGRAPHS = {
    "type": "array",
    "items": _object(
        {
            "start": NUMBER,
            "end": NUMBER,
            "sentences": {"type": "array", "items": _object({"text": TEXT, "start": NUMBER, "end": NUMBER})},
        },
        SPEAKER,
    ),
}
HITS = {
    "type": "array",
    "items": _object(
        {
            "query": TEXT,
            "hits": {
                "type": "array",
                "items": _object({"start": NUMBER, "end": NUMBER, "confidence": NUMBER, "snippet": TEXT}),
            },
        }
    ),
}
_ORDER_MEMBERS: Mapping[str, Any] = {
    "language": {
        "type": "string",
        "description": "What is spoken: BCP 47 primary subtag. Left out: detected; multi: detected in each turn",
    },
    "model": {"type": "string", "description": "An id of GET /v1/models"},
    "prompt": {
        "type": "string",
        "maxLength": bounds.MAX_PROMPT_CHARS,
        "description": "Vocabulary that the speakers use",
    },
    "webhook_url": URI,
    "retention": {
        "enum": [*bounds.RETENTIONS],
        "description": "none: the results are handed over once, then erased. Left out: what the key or the plan says",
    },
    **SUBTITLES,
    **DIARIZE,
}
_FORM_LIST = {"type": "string", "description": "Comma list; the part may also be repeated"}
_FORM_TERMS = {"type": "string", "description": "The part may be repeated, or have a JSON array"}
_FORM_TEXT: Mapping[str, Any] = {
    **{
        name: {"enum": ["true", "false", "1", "0"], "default": "false", "description": member["description"]}
        for name, member in TEXT_SWITCHES.items()
    },
    "redact": {**_FORM_LIST, "examples": [",".join(REDACTIONS)]},
    "replace": {**_FORM_TERMS, "examples": ["cooper netties:Kubernetes"]},
    "search": {**_FORM_TERMS, "examples": ["cancel"]},
}
_FORM_ORDER: Mapping[str, Any] = {
    **_ORDER_MEMBERS,
    **_FORM_TEXT,
    "keywords": {**_FORM_LIST, "examples": ["Siobhan,metoprolol"], "description": KEYWORDS_MEAN},
    "output_formats": {**_FORM_LIST, "examples": ["json,srt,vtt"], "default": "json"},
    "word_timestamps": {"enum": ["true", "false", "1", "0"], "default": "false"},
    "diarize": {"enum": ["true", "false", "1", "0"], "default": "false"},
    **KNOWN_SPEAKERS,
    "webhook_events": {**_FORM_LIST, "examples": [",".join(bounds.WEBHOOK_EVENTS)]},
    "metadata": {"type": "string", "contentMediaType": "application/json", "contentSchema": METADATA},
    "task": TASK,
    "channels": CHANNELS_MEMBER,
    "wait": {**WHOLE, "description": "Seconds to hold the answer"},
    "sandbox_scenario": {"enum": [*bounds.SCENARIOS], "description": "Sandbox only: the outcome to play"},
}

_OPENAI_FILE: Mapping[str, Any] = {
    "file": {"type": "string", "format": "binary"},
    "model": {"type": "string", "examples": ["whisper-1"]},
}
_OPENAI_FORMATS = ("json", "verbose_json", "text", "srt", "vtt")
_OPENAI_MEMBERS: Mapping[str, Any] = {
    "prompt": TEXT,
    "keywords": {**_FORM_LIST, "examples": ["Siobhan,metoprolol"], "description": KEYWORDS_MEAN},
    "response_format": {"enum": [*_OPENAI_FORMATS], "default": "json"},
    "channels": CHANNELS_MEMBER,
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "description": "Accepted and not used"},
    "retention": {"enum": [*bounds.RETENTIONS]},
    **_FORM_TEXT,
    **SUBTITLES,
}

SCHEMAS: Mapping[str, Any] = {
    "Problem": _object(
        {
            "type": {"type": "string", "format": "uri"},
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "instance": TEXT,
            "code": {"enum": [*CODES]},
            "request_id": TEXT,
        },
        {
            "errors": {
                "type": "array",
                "items": _object({"param": TEXT, "pointer": TEXT, "code": TEXT, "message": TEXT}),
            },
            "limit": NUMBER,
            "used": NUMBER,
            "actual": NUMBER,
            "window": TEXT,
            "resets_at": INSTANT,
        },
    ),
    "Word": _object(
        {"word": TEXT, "start": NUMBER, "end": NUMBER, "probability": NUMBER},
        {
            "heard": {"type": "string", "description": "What was said, where numerals or replace wrote something else"},
            "redacted": {"const": True, "description": "The word is a label in place of what was said"},
            "language": {"type": "string", "description": "In which it was said, where language was multi"},
            **SPEAKER,
        },
    ),
    "Job": _object(
        {
            "job_id": {"type": "string", "pattern": "^job_[0-9A-Za-z]{26}$"},
            "object": {"const": "job"},
            "status": {"enum": [*State]},
            "environment": ENVIRONMENT,
            "created_at": INSTANT,
            "started_at": MAYBE_INSTANT,
            "finished_at": MAYBE_INSTANT,
            "expires_at": MAYBE_INSTANT,
            "cancel_requested_at": MAYBE_INSTANT,
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "stage": MAYBE_TEXT,
            "attempt": WHOLE,
            "source": _object(
                {"type": {"enum": ["upload", "url", "live"]}},
                {"filename": TEXT, "url": TEXT, "bytes": WHOLE, "format": TEXT},
            ),
            "output_formats": FORMAT_NAMES,
            "word_timestamps": SWITCH,
            "duration": MAYBE_NUMBER,
            "task": {"enum": [*TASKS]},
            "language": {**MAYBE_TEXT, "description": "What is spoken, also where the text is a translation"},
            "language_probability": MAYBE_NUMBER,
            "model": MAYBE_TEXT,
            "engine": MAYBE_TEXT,
            "formats": {
                "type": "object",
                "propertyNames": {"enum": [*bounds.FORMATS]},
                "additionalProperties": {"type": "string", "format": "uri"},
            },
            "error": {
                "anyOf": [
                    {"type": "null"},
                    _object(
                        {"code": {"enum": [*JOB_CODES]}, "message": TEXT, "retryable": SWITCH, "param": MAYBE_TEXT}
                    ),
                ]
            },
            "metadata": METADATA,
            "retention": RETENTION,
            "erased_at": {**MAYBE_INSTANT, "description": "When text, words and outputs were erased"},
            "events_url": {"type": "string", "format": "uri"},
        },
        {
            "warnings": {"type": "array", "items": WARNING, "description": "Not in lists"},
            "schema": {"const": "service_v1", "description": "Present once completed, when json was asked for"},
            "live": ref("LiveState"),
            "text": MAYBE_TEXT,
            "text_options": TEXT_OPTIONS,
            "paragraphs": {**PARAGRAPHS, "description": "Present once completed, when paragraphs was true"},
            "search": {**HITS, "description": "Present once completed, when search was given"},
            "speakers": {
                "type": "array",
                "items": _object({"speaker": TEXT, "seconds": NUMBER}),
                "description": "Who speaks for how long: present once completed, when diarize was true",
            },
            "outputs": {
                "type": "object",
                "propertyNames": {"enum": [*bounds.FORMATS]},
                "additionalProperties": TEXT,
                "description": "The output files themselves, in place of links, when retention is none",
            },
            "words": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Word"},
                "description": "Present once completed, when word_timestamps was true",
            },
        },
    ),
    "JobList": _object(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": ref("Job")},
            "has_more": SWITCH,
            "next_cursor": MAYBE_TEXT,
        }
    ),
    "TranscriptionForm": _object(
        {},
        {"file": {"type": "string", "format": "binary"}, "url": URI, "audio_url": URI, **_FORM_ORDER},
        description="Exactly one of file, url and audio_url",
    ),
    "TranscriptionUrlForm": _object(
        {}, {"url": URI, "audio_url": URI, **_FORM_ORDER}, description="Exactly one of url and audio_url"
    ),
    "TranscriptionRequest": _object(
        {},
        {
            "url": URI,
            "audio_url": URI,
            **_ORDER_MEMBERS,
            **TEXT_SWITCHES,
            **TEXT_LISTS,
            **KNOWN_SPEAKERS,
            "keywords": KEYWORDS,
            "output_formats": {**FORMAT_NAMES, "default": ["json"], "minItems": 1},
            "word_timestamps": {"type": "boolean", "default": False},
            "webhook_events": {"type": "array", "items": {"enum": [*bounds.WEBHOOK_EVENTS]}},
            "metadata": METADATA,
            "task": TASK,
            "channels": CHANNELS_MEMBER,
            "wait": WHOLE,
            "sandbox_scenario": {"enum": [*bounds.SCENARIOS]},
        },
        description="Exactly one of url and audio_url",
    ),
    "LiveRequest": _object(
        {},
        {
            "encoding": {"enum": [*bounds.ENCODINGS], "default": "pcm_s16le"},
            "task": {"const": TRANSCRIBE, "description": "Live sessions do not translate"},
            "sample_rate": {
                "type": "integer",
                "minimum": RATES[0],
                "maximum": RATES[-1],
                "description": f"Of raw audio; {LiveOptions().sample_rate} if left out, "
                f"and {bounds.TELEPHONE_RATE} for {' and '.join(bounds.TELEPHONE_ENCODINGS)}",
            },
            "channels": {
                "anyOf": [_between(CHANNELS[0], CHANNELS[-1], 1), {"const": "separate"}],
                "default": 1,
                "description": "How many channels raw audio has, to be heard together. separate: each channel has its "
                "own speakers, is heard by itself and counts as a session of its own",
            },
            "channel_count": {
                **_between(SEPARATE_CHANNELS[0], SEPARATE_CHANNELS[-1], SEPARATE_CHANNELS[0]),
                "description": "With channels=separate: how many channels the audio has",
            },
            "interim_results": {**SWITCH, "default": True},
            "endpointing_ms": _between(bounds.ENDPOINTING_MS[0], bounds.ENDPOINTING_MS[-1], 500),
            "max_utterance_s": _number(bounds.UTTERANCE_S, 15),
            "record": {**SWITCH, "default": False, "description": "Keep the audio as FLAC with the job"},
            "channel": {**CHANNEL_NAME, "description": "The name of the channel that shows the session"},
            **KNOWN_SPEAKERS,
            **_ORDER_MEMBERS,
            **TEXT_SWITCHES,
            **TEXT_LISTS,
            "keywords": KEYWORDS,
            "output_formats": {**FORMAT_NAMES, "default": ["json"], "minItems": 1},
            "word_timestamps": {"type": "boolean", "default": True},
            "webhook_events": {"type": "array", "items": {"enum": [*bounds.WEBHOOK_EVENTS]}},
            "metadata": METADATA,
        },
    ),
    "LiveState": _object(
        {
            "encoding": {"enum": [*bounds.ENCODINGS]},
            "interim_results": SWITCH,
            "endpointing_ms": WHOLE,
            "max_utterance_s": NUMBER,
            "record": SWITCH,
            "received_bytes": {**MAYBE_WHOLE, "description": "Where the next writer goes on"},
            "received_seconds": MAYBE_NUMBER,
            "settled_bytes": {**MAYBE_WHOLE, "description": "What even a restart of the server would not need again"},
            "lag_ms": {**MAYBE_WHOLE, "description": "From the last final word's sound to its decision"},
        },
        {
            "sample_rate": WHOLE,
            "channels": WHOLE,
            "separate": {"const": True, "description": "Each channel is heard by itself"},
            "channel": MAYBE_TEXT,
            "audio_url": {"type": "string", "format": "uri", "description": "The recording, once completed"},
            "ingest_ws": {"type": "string", "format": "uri", "description": "Only in the answer of POST /v1/live"},
            "ingest_http": {"type": "string", "format": "uri"},
            "events_url": {"type": "string", "format": "uri"},
            "expires_at": {**INSTANT, "description": "Until when ingest_ws opens"},
        },
    ),
    "ChannelRequest": _object({"name": CHANNEL_NAME}),
    "Channel": _object(
        {
            "object": {"const": "channel"},
            "channel_id": TEXT,
            "name": TEXT,
            "created_at": INSTANT,
            "job_id": {**MAYBE_TEXT, "description": "The newest live session that named the channel"},
            "page_url": URI,
            "events_url": URI,
            "vtt_url": URI,
        }
    ),
    "ChannelList": _list_of(ref("Channel"), object={"const": "list"}),
    "Received": _object(
        {
            "job_id": TEXT,
            "status": {"enum": [*State]},
            "received_bytes": MAYBE_WHOLE,
            "received_seconds": MAYBE_NUMBER,
            "settled_bytes": MAYBE_WHOLE,
            "lag_ms": MAYBE_WHOLE,
        }
    ),
    "KeyRequest": _object(
        {},
        {
            "name": {"type": ["string", "null"], "maxLength": 100},
            "environment": ENVIRONMENT,
            "retention": {"enum": [*bounds.RETENTIONS], "description": "Of jobs ordered with this key"},
        },
    ),
    "NewKey": _object(
        {
            "key_id": TEXT,
            "key": {"type": "string", "description": "Shown once"},
            "prefix": TEXT,
            "name": MAYBE_TEXT,
            "plan": TEXT,
            "environment": ENVIRONMENT,
            "retention": RETENTION,
            "account_id": TEXT,
            "created_at": INSTANT,
        },
        {"webhook_secret": {"type": "string", "description": "Shown once, with the account's first key"}},
    ),
    "Key": _object(
        {
            "key_id": TEXT,
            "prefix": TEXT,
            "last4": TEXT,
            "name": MAYBE_TEXT,
            "environment": ENVIRONMENT,
            "retention": RETENTION,
            "created_at": INSTANT,
            "last_used_at": MAYBE_INSTANT,
            "expires_at": MAYBE_INSTANT,
            "revoked_at": MAYBE_INSTANT,
        }
    ),
    "KeyList": _list_of(ref("Key"), object={"const": "list"}),
    "RotateRequest": _object({}, {"overlap_seconds": {"type": "integer", "minimum": 0, "maximum": 604_800}}),
    "Usage": _object(
        {
            "plan": TEXT,
            "limits": {"type": "object"},
            "usage": {
                "type": "array",
                "items": _object(
                    {
                        "name": TEXT,
                        "limit": MAYBE_WHOLE,
                        "used": WHOLE,
                        "remaining": MAYBE_WHOLE,
                        "resets_at": INSTANT,
                    }
                ),
            },
        }
    ),
    "TokenRequest": _object(
        {"job_id": TEXT},
        {
            "scope": {"enum": ["events", "ingest"], "default": "events"},
            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 600},
        },
    ),
    "Token": _object({"token": TEXT, "expires_at": INSTANT}),
    "WebhookSecret": _object({"created_at": INSTANT, "previous_expires_at": MAYBE_INSTANT}),
    "NewWebhookSecret": _object(
        {
            "webhook_secret": {"type": "string", "description": "Shown once"},
            "created_at": INSTANT,
            "previous_expires_at": MAYBE_INSTANT,
        }
    ),
    "WebhookUrl": _object({"url": URI}),
    "WebhookTest": _object(
        {"delivered": SWITCH, "status_code": MAYBE_WHOLE, "duration_ms": WHOLE, "error": MAYBE_TEXT, "webhook_id": TEXT}
    ),
    "Delivery": _object(
        {
            "delivery_id": TEXT,
            "webhook_id": TEXT,
            "event": {"enum": [*bounds.WEBHOOK_EVENTS]},
            "url": TEXT,
            "state": {"enum": ["pending", "delivered", "failed", "disabled"]},
            "attempts": {
                "type": "array",
                "items": _object(
                    {
                        "n": WHOLE,
                        "at": INSTANT,
                        "status_code": MAYBE_WHOLE,
                        "duration_ms": WHOLE,
                        "error": MAYBE_TEXT,
                        "next_attempt_at": MAYBE_INSTANT,
                    }
                ),
            },
        }
    ),
    "DeliveryList": _list_of(ref("Delivery"), object={"const": "list"}),
    "Notice": _object(
        {"type": {"enum": [*bounds.WEBHOOK_EVENTS]}, "timestamp": INSTANT, "data": ref("Job")},
        {"test": {"const": True}},
        description="The body of a webhook, and of a stream's terminal event",
    ),
    "EstimateRequest": _object(
        {"prompt": {"type": "string", "description": "Neither stored nor logged"}},
        {
            "models": {
                "type": ["array", "null"],
                "items": TEXT,
                "maxItems": 100,
                "description": "Ids or provider/id; left out or empty: the default catalogue",
            },
            "complexity": {"enum": ["low", "medium", "high", None], "default": "medium"},
            "agent_turns": {"type": ["integer", "null"], "minimum": 1, "maximum": 200, "default": 1},
            "cache": {"enum": ["auto", "off", None], "default": "auto"},
            "reasoning": {"enum": ["off", "auto", "high", None], "default": "auto"},
            "output_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 10_000_000},
            "system_tokens": {"type": ["integer", "null"], "minimum": 0, "maximum": 10_000_000},
            "priced_at": {"type": ["string", "null"], "format": "date-time"},
            "budget_usd": {"type": ["string", "null"], "pattern": "^[0-9]{1,12}([.][0-9]{1,12})?$"},
        },
    ),
    "Estimate": _object(
        {
            "object": {"const": "estimate"},
            "id": {"type": "string", "pattern": "^est_[0-9A-Z]{26}$"},
            "created_at": INSTANT,
            "priced_at": INSTANT,
            "currency": {"const": "USD"},
            "inputs": {"type": "object"},
            "price_source": {"type": "object"},
            "models": {
                "type": "array",
                "items": _object(
                    {
                        "requested_id": TEXT,
                        "status": {"enum": ["priced", "partial", "unpriced", "unknown_model"]},
                        "cost_usd": {"type": ["object", "null"], "description": "low, expected, high: decimal strings"},
                        "multiplied_usd": {"type": ["object", "null"]},
                    }
                ),
            },
            "cheapest": {"type": ["object", "null"]},
            "ranking": {"type": "array", "items": TEXT},
            "ranking_overlaps": {"type": "array"},
            "unknown_models": {"type": "array", "items": TEXT},
            "warnings": {"type": "array", "items": {"type": "object"}},
            "assumptions_version": TEXT,
            "assumptions": {"type": "array", "items": {"type": "object"}},
            "usage": _object({"remaining": MAYBE_WHOLE, "resets_at": INSTANT}),
        }
    ),
    "EstimateModelList": _list_of(
        {"type": "object", "required": ["id", "provider", "cluster"]},
        object={"const": "list"},
        price_source={"type": "object"},
        priced_at=INSTANT,
    ),
    "OpenAITranscriptionForm": _object(
        _OPENAI_FILE,
        {
            **_OPENAI_MEMBERS,
            "response_format": {"enum": [*_OPENAI_FORMATS, "diarized_json"], "default": "json"},
            "language": {"type": "string", "description": "Left out: detected"},
            "languages": {**_FORM_LIST, "description": "One is the language; of several it is detected"},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
            "chunking_strategy": {"type": "string", "description": "Accepted and not used"},
            "stream": {"type": "boolean", "default": False},
        },
    ),
    "OpenAITranslationForm": _object(
        _OPENAI_FILE,
        {**_OPENAI_MEMBERS, "language": {"type": "string", "description": "What is spoken; left out: detected"}},
    ),
    "OpenAIError": _object(
        {"error": _object({"message": TEXT, "type": TEXT, "param": MAYBE_TEXT, "code": {"enum": [*CODES]}})}
    ),
    "DeepgramUrl": _object({"url": URI}),
    "DeepgramError": _object({"err_code": TEXT, "err_msg": TEXT, "request_id": TEXT}),
    "DeepgramAnswer": _object(
        {
            "metadata": _object(
                {
                    "request_id": {"type": "string", "description": "The job's id"},
                    "sha256": {"type": "string", "description": "Of a file; empty for an address"},
                    "created": INSTANT,
                    "duration": MAYBE_NUMBER,
                    "channels": WHOLE,
                    "models": TEXTS,
                    "model_info": {"type": "object"},
                }
            ),
            "results": _object(
                {"channels": {"type": "array", "items": {"type": "object"}}}, {"utterances": {"type": "array"}}
            ),
        }
    ),
    "DeepgramAccepted": _object({"request_id": {"type": "string", "description": "The job's id"}}),
    "GrantRequest": _object({}, {"ttl_seconds": _between(bounds.GRANT_TTL_S[0], bounds.GRANT_TTL_S[-1], 30)}),
    "Grant": _object({"access_token": TEXT, "expires_in": WHOLE}),
    "ClientSecretRequest": _object(
        {},
        {
            "expires_after": _object({}, {"anchor": {"const": "created_at"}, "seconds": _between(10, 7200, 600)}),
            "session": {"type": "object", "description": "As in session.update; the configuration to begin with"},
        },
    ),
    "ClientSecret": _object({"value": TEXT, "expires_at": WHOLE, "session": {"type": "object"}}),
    "Model": _object(
        {
            "id": TEXT,
            "object": {"const": "model"},
            "created": WHOLE,
            "owned_by": TEXT,
            "languages": TEXTS,
            "speakers": {**SWITCH, "description": "Whether speakers can be told apart by their voices: `diarize`"},
            "translates": {**SWITCH, "description": "Whether it writes English where another language is spoken"},
        }
    ),
    "ModelList": _list_of(ref("Model"), object={"const": "list"}),
    "FormatList": _list_of(_object({"extension": TEXT, "mime": TEXT}), object={"const": "list"}),
    "Health": _object(
        {"status": TEXT},
        {
            "engine": MAYBE_TEXT,
            "model": MAYBE_TEXT,
            "languages": {**TEXTS, "description": "What the model hears"},
            "speakers": {**SWITCH, "description": "Whether speakers can be told apart by their voices"},
            "bundled": {**SWITCH, "description": "The small model that comes with the installation"},
            "warnings": {"type": "array", "items": WARNING},
        },
    ),
    "service_v1": _embedded(service_v1_schema(""), at="#/components/schemas/service_v1"),
}
