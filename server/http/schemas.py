"""JSON Schemas of requests and answers, which are the components of /openapi.json. Dialects add their own.

The contract tests check every answer against them.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.documents.schema import service_v1_schema
from pipeline.recognition.engine import TASKS
from server.http.codes import CODES
from server.http.schema_parts import (
    CHANNEL_NAME,
    ENVIRONMENT,
    FORMAT_NAMES,
    HITS,
    INSTANT,
    MAYBE_INSTANT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    MAYBE_WHOLE,
    METADATA,
    NUMBER,
    PARAGRAPHS,
    RETENTION,
    SPEAKER,
    SWITCH,
    TEXT,
    TEXTS,
    URI,
    WARNING,
    WHOLE,
    list_of,
    object_of,
    ref,
)
from server.model import bounds
from server.model.jobs import JOB_CODES, State


def _embed(schema: Any, *, at: str) -> Any:
    """*schema* as a part of another document, where its own references lead to *at*."""
    match schema:
        case dict():
            kept = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
            return {name: _embed(value, at=at) for name, value in kept.items()}
        case list():
            return [_embed(item, at=at) for item in schema]
        case str() if schema.startswith("#/$defs/"):
            return at + schema.removeprefix("#")
        case _:
            return schema


SCHEMAS: Mapping[str, Any] = {
    "Problem": object_of(
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
                "items": object_of({"param": TEXT, "pointer": TEXT, "code": TEXT, "message": TEXT}),
            },
            "limit": NUMBER,
            "used": NUMBER,
            "actual": NUMBER,
            "window": TEXT,
            "resets_at": INSTANT,
        },
    ),
    "Word": object_of(
        {"word": TEXT, "start": NUMBER, "end": NUMBER, "probability": NUMBER},
        {
            "heard": {"type": "string", "description": "What was said, where numerals or replace wrote something else"},
            "redacted": {"const": True, "description": "The word is a label in place of what was said"},
            "language": {"type": "string", "description": "In which it was said, where language was multi"},
            **SPEAKER,
        },
    ),
    "Job": object_of(
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
            "source": object_of(
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
                    object_of(
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
            "text_options": ref("TextOptions"),
            "paragraphs": {**PARAGRAPHS, "description": "Present once completed, when paragraphs was true"},
            "search": {**HITS, "description": "Present once completed, when search was given"},
            "speakers": {
                "type": "array",
                "items": object_of({"speaker": TEXT, "seconds": NUMBER}),
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
    "JobList": object_of(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": ref("Job")},
            "has_more": SWITCH,
            "next_cursor": MAYBE_TEXT,
        }
    ),
    "LiveState": object_of(
        {
            "encoding": {"enum": [*bounds.ENCODINGS]},
            "interim_results": SWITCH,
            "latency": {"enum": [None, *bounds.LATENCY_NAMES]},
            "endpointing": {"enum": [*bounds.ENDPOINTING]},
            "eagerness": {"enum": [None, *bounds.EAGERNESS_NAMES]},
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
            "separate": {"const": True, "description": "Each channel is recognised separately"},
            "channel": MAYBE_TEXT,
            "audio_url": {"type": "string", "format": "uri", "description": "The recording, once completed"},
            "ingest_ws": {"type": "string", "format": "uri", "description": "Only in the answer of POST /v1/live"},
            "ingest_http": {"type": "string", "format": "uri"},
            "events_url": {"type": "string", "format": "uri"},
            "expires_at": {**INSTANT, "description": "Until when ingest_ws opens"},
        },
    ),
    "ChannelRequest": object_of({"name": CHANNEL_NAME}),
    "Channel": object_of(
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
    "ChannelList": list_of(ref("Channel"), object={"const": "list"}),
    "Received": object_of(
        {
            "job_id": TEXT,
            "status": {"enum": [*State]},
            "received_bytes": MAYBE_WHOLE,
            "received_seconds": MAYBE_NUMBER,
            "settled_bytes": MAYBE_WHOLE,
            "lag_ms": MAYBE_WHOLE,
        }
    ),
    "KeyRequest": object_of(
        {},
        {
            "name": {"type": ["string", "null"], "maxLength": 100},
            "environment": ENVIRONMENT,
            "retention": {"enum": [*bounds.RETENTIONS], "description": "Of jobs ordered with this key"},
        },
    ),
    "NewKey": object_of(
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
    "Key": object_of(
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
    "KeyList": list_of(ref("Key"), object={"const": "list"}),
    "RotateRequest": object_of({}, {"overlap_seconds": {"type": "integer", "minimum": 0, "maximum": 604_800}}),
    "Usage": object_of(
        {
            "plan": TEXT,
            "limits": {"type": "object"},
            "usage": {
                "type": "array",
                "items": object_of(
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
    "TokenRequest": object_of(
        {"job_id": TEXT},
        {
            "scope": {"enum": ["events", "ingest"], "default": "events"},
            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 600},
        },
    ),
    "Token": object_of({"token": TEXT, "expires_at": INSTANT}),
    "WebhookSecret": object_of({"created_at": INSTANT, "previous_expires_at": MAYBE_INSTANT}),
    "NewWebhookSecret": object_of(
        {
            "webhook_secret": {"type": "string", "description": "Shown once"},
            "created_at": INSTANT,
            "previous_expires_at": MAYBE_INSTANT,
        }
    ),
    "WebhookUrl": object_of({"url": URI}),
    "WebhookTest": object_of(
        {"delivered": SWITCH, "status_code": MAYBE_WHOLE, "duration_ms": WHOLE, "error": MAYBE_TEXT, "webhook_id": TEXT}
    ),
    "Delivery": object_of(
        {
            "delivery_id": TEXT,
            "webhook_id": TEXT,
            "event": {"enum": [*bounds.WEBHOOK_EVENTS]},
            "url": TEXT,
            "state": {"enum": ["pending", "delivered", "failed", "disabled"]},
            "attempts": {
                "type": "array",
                "items": object_of(
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
    "DeliveryList": list_of(ref("Delivery"), object={"const": "list"}),
    "Notice": object_of(
        {"type": {"enum": [*bounds.WEBHOOK_EVENTS]}, "timestamp": INSTANT, "data": ref("Job")},
        {"test": {"const": True}},
        description="The body of a webhook, and of a stream's terminal event",
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
            "budget_usd": {"type": ["string", "null"], "pattern": "^[0-9]{1,12}([.][0-9]{1,12})?$"},
        },
    ),
    "Estimate": object_of(
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
                "items": object_of(
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
            "usage": object_of({"remaining": MAYBE_WHOLE, "resets_at": INSTANT}),
        }
    ),
    "EstimateModelList": list_of(
        {"type": "object", "required": ["id", "provider", "cluster"]},
        object={"const": "list"},
        price_source={"type": "object"},
        priced_at=INSTANT,
    ),
    "FormatList": list_of(
        object_of({"extension": TEXT, "mime": TEXT}),
        object={"const": "list"},
        outputs={"type": "array", "items": object_of({"name": TEXT, "extension": TEXT, "mime": TEXT})},
    ),
    "Health": object_of(
        {"status": TEXT},
        {
            "engine": MAYBE_TEXT,
            "model": MAYBE_TEXT,
            "languages": {**TEXTS, "description": "The languages of the model"},
            "speakers": {**SWITCH, "description": "Whether speakers can be labelled by their voices"},
            "endpointing": {**TEXTS, "description": "What may end a turn of a live session"},
            "bundled": {**SWITCH, "description": "The small model that comes with the installation"},
            "warnings": {"type": "array", "items": WARNING},
        },
    ),
    "service_v1": _embed(service_v1_schema(""), at="#/components/schemas/service_v1"),
}
