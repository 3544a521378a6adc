"""JSON Schemas that several requests and answers have in common: kinds of values, and the members of an order."""

from collections.abc import Mapping
from typing import Any

from pipeline.documents.cues import USUAL_SHAPE
from pipeline.recognition.engine import TASKS, TRANSCRIBE
from pipeline.text.options import REDACTIONS
from server.model import bounds


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, **more}


def list_of(item: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """The schema of a list of *item* and of further *members*."""
    return object_of({"data": {"type": "array", "items": item}, **members})


def integer_in(least: float, most: float, default: float) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


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
WARNING = object_of({"code": TEXT}, {"param": TEXT, "message": TEXT})


def number_in(limits: tuple[float, float], default: float) -> dict[str, Any]:
    return integer_in(*limits, default) | {"type": "number"}


SUBTITLES: Mapping[str, Any] = {
    "max_columns": {
        **integer_in(bounds.MAX_COLUMNS[0], bounds.MAX_COLUMNS[-1], USUAL_SHAPE.max_columns),
        "description": "Subtitles: the width of a line; full-width characters count two",
    },
    "max_lines": {
        **integer_in(bounds.MAX_LINES[0], bounds.MAX_LINES[-1], USUAL_SHAPE.max_lines),
        "description": "Subtitles: lines of a cue",
    },
    "max_cue_s": {
        **number_in(bounds.MAX_CUE_S, USUAL_SHAPE.max_cue_s),
        "description": "Subtitles: the longest time that a cue is shown",
    },
    "columns_per_second": {
        **number_in(bounds.COLUMNS_PER_SECOND, USUAL_SHAPE.columns_per_second),
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
TERMS = {"type": "array", "items": TEXT, "maxItems": bounds.MAX_TEXT_TERMS}
TEXT_SWITCHES: Mapping[str, Any] = {
    "numerals": {**SWITCH, "default": False, "description": "Numbers in figures"},
    "profanity_filter": {**SWITCH, "default": False, "description": "Asterisks in swear words"},
    "sounds_like": {**SWITCH, "default": False, "description": "Keywords in place of words that sound like them"},
    "paragraphs": {**SWITCH, "default": False, "description": "Paragraphs in JSON and TXT"},
}
PHONE_REGION = {
    "type": "string",
    "pattern": "^[A-Za-z]{2}$",
    "description": "Whose telephone numbers are said, for numerals and redact: two letters, such as US",
}
TEXT_VALUES: Mapping[str, Any] = {
    "redact": {"type": "array", "items": {"enum": [*REDACTIONS]}, "description": "What is hidden in the text"},
    "replace": {**TERMS, "description": _REPLACE_MEANS},
    "search": {**TERMS, "description": _SEARCH_MEANS},
    "phone_region": PHONE_REGION,
}
TEXT_OPTIONS = object_of(
    {}, {**TEXT_SWITCHES, **TEXT_VALUES}, description="What was ordered to be done with the text; there if anything was"
)
PARAGRAPHS = {
    "type": "array",
    "items": object_of(
        {
            "start": NUMBER,
            "end": NUMBER,
            "sentences": {"type": "array", "items": object_of({"text": TEXT, "start": NUMBER, "end": NUMBER})},
        },
        SPEAKER,
    ),
}
HITS = {
    "type": "array",
    "items": object_of(
        {
            "query": TEXT,
            "hits": {
                "type": "array",
                "items": object_of({"start": NUMBER, "end": NUMBER, "confidence": NUMBER, "snippet": TEXT}),
            },
        }
    ),
}
ORDER_MEMBERS: Mapping[str, Any] = {
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
FORM_LIST = {"type": "string", "description": "Comma list; the part may also be repeated"}
FORM_TERMS = {"type": "string", "description": "The part may be repeated, or have a JSON array"}
FORM_TEXT: Mapping[str, Any] = {
    **{
        name: {"enum": ["true", "false", "1", "0"], "default": "false", "description": member["description"]}
        for name, member in TEXT_SWITCHES.items()
    },
    "phone_region": PHONE_REGION,
    "redact": {**FORM_LIST, "examples": [",".join(REDACTIONS)]},
    "replace": {**FORM_TERMS, "examples": ["cooper netties:Kubernetes"]},
    "search": {**FORM_TERMS, "examples": ["cancel"]},
}
FORM_ORDER: Mapping[str, Any] = {
    **ORDER_MEMBERS,
    **FORM_TEXT,
    "keywords": {**FORM_LIST, "examples": ["Siobhan,metoprolol"], "description": KEYWORDS_MEAN},
    "output_formats": {**FORM_LIST, "examples": [",".join(bounds.FORMATS)], "default": "json"},
    "word_timestamps": {"enum": ["true", "false", "1", "0"], "default": "false"},
    "diarize": {"enum": ["true", "false", "1", "0"], "default": "false"},
    **KNOWN_SPEAKERS,
    "webhook_events": {**FORM_LIST, "examples": [",".join(bounds.WEBHOOK_EVENTS)]},
    "metadata": {"type": "string", "contentMediaType": "application/json", "contentSchema": METADATA},
    "task": TASK,
    "channels": CHANNELS_MEMBER,
    "wait": {**WHOLE, "description": "Seconds to hold the answer"},
    "sandbox_scenario": {"enum": [*bounds.SCENARIOS], "description": "Sandbox only: the outcome to play"},
}
