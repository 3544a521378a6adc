"""The components of /openapi.json: JSON Schemas of requests, and those of answers, which come from model/answers.py.

The contract tests check every answer against them. Dialects add their own, made of the parts in this file, and
parsing/declared.py adds those of orders.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.json import schema_components

from server.http.codes import CODES
from server.model import bounds
from server.model.answers import ANSWERS


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
MAYBE_NUMBER = {"type": ["number", "null"]}
WHOLE = {"type": "integer", "minimum": 0}
SWITCH = {"type": "boolean"}
INSTANT = {"type": "string", "format": "date-time"}
URI = {"type": "string", "format": "uri", "maxLength": bounds.MAX_URL_CHARS}

REQUESTS: Mapping[str, Any] = {
    "ChannelRequest": object_of({"name": {"type": "string", "minLength": 1, "maxLength": bounds.MAX_CHANNEL_CHARS}}),
    "KeyRequest": object_of(
        {},
        {
            "name": {"type": ["string", "null"], "maxLength": 100},
            "environment": {"enum": ["production", "sandbox"]},
            "retention": {"enum": [*bounds.RETENTIONS], "description": "Of jobs ordered with this key"},
        },
    ),
    "RotateRequest": object_of({}, {"overlap_seconds": {"type": "integer", "minimum": 0, "maximum": 604_800}}),
    "TokenRequest": object_of(
        {"job_id": TEXT},
        {
            "scope": {"enum": ["events", "ingest"], "default": "events"},
            "ttl_seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": bounds.MAX_TOKEN_S,
                "default": 600,
                "description": f"With scope=ingest at most {bounds.MAX_INGEST_TOKEN_S}",
            },
            "after_end_seconds": {
                "type": "integer",
                "minimum": 0,
                "maximum": bounds.MAX_TOKEN_S,
                "description": "In place of ttl_seconds, with scope=events: as long as the job runs, and so long after "
                "its end",
            },
        },
    ),
    "WebhookUrl": object_of({"url": URI}),
    "EditLinkRequest": object_of(
        {},
        {
            "expires_in": {"type": "integer", "minimum": 60, "maximum": 2_592_000, "default": 86_400},
        },
    ),
    "CorrectionRequest": object_of(
        {},
        {
            "changes": {
                "type": "array",
                "minItems": 1,
                "maxItems": 1000,
                "items": {
                    "anyOf": [
                        object_of({"first": WHOLE, "last": WHOLE, "text": TEXT}),
                        object_of({"first": WHOLE, "last": WHOLE, "speaker": TEXT}),
                        object_of({"speaker": TEXT, "name": TEXT}),
                        object_of({"speaker": TEXT, "into": TEXT}),
                    ]
                },
            },
            "revert": {"type": "integer", "minimum": 1, "description": "A revision to take back, in place of changes"},
        },
    ),
    "EstimateRequest": object_of(
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
            "audio_seconds": {
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
                "maximum": 31_536_000,
                "description": "Of a recording: the answer then has what hosted transcription takes for it",
            },
        },
    ),
}


def _answers() -> dict[str, Any]:
    _, found = schema_components(ANSWERS, ref_template="#/components/schemas/{name}")
    found["Problem"]["properties"]["code"] = {"enum": [*CODES]}
    return found


SCHEMAS: Mapping[str, Any] = {**REQUESTS, **_answers()}
