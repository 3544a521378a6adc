"""Parts of JSON Schemas that several requests and answers share."""

from collections.abc import Mapping
from typing import Any

from server.model import bounds


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, **more}


def list_of(item: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """The schema of an object with a list `data` of *item*, and further *members*."""
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
SPEAKER = {
    "channel": {**WHOLE, "description": "Where channels are separate: which one, from 0"},
    "speaker": {"type": "string", "description": "Who speaks, where that is known: S1, S2, ..."},
}
WARNING = object_of({"code": TEXT}, {"param": TEXT, "message": TEXT})


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
