"""The OpenAPI 3.1 document, made from the route table and the schemas alone.

The schemas of requests are in this file, those of answers come from model/answers.py, and dialects add their own, made
of the parts in this file. The contract tests check every answer against them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.json import schema_components

from server import __version__
from server.http.bodies import JSON
from server.http.operation import Answer, Auth, Operation, Parameter
from server.http.problems import CODES
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
PROBLEM = "application/problem+json"
ALWAYS = ("internal", "not_ready", "shutting_down")
WITH_A_KEY = ("missing_credentials", "invalid_key", "environment_mismatch", "rate_limited", "too_many_connections")
WITH_A_BODY = (
    "invalid_parameter",
    "payload_too_large",
    "unsupported_media_type",
    "unsupported_encoding",
    "request_timeout",
)
BY_METHOD: Mapping[str, tuple[str, ...]] = {"POST": ("invalid_idempotency_key",)}
BY_AUTH: Mapping[Auth, tuple[str, ...]] = {
    Auth.KEY: WITH_A_KEY,
    Auth.GRANT: (*WITH_A_KEY, "invalid_token"),
    Auth.OPEN: ("rate_limited",),
    Auth.OWN: WITH_A_KEY,
    Auth.FREE: ("rate_limited",),
    Auth.NONE: (),
}
IN_PATHS: Mapping[str, tuple[str, str]] = {
    "job_id": ("A job's id", "job_not_found"),
    "channel_id": ("A channel's id", "channel_not_found"),
    "key_id": ("A key's id", "key_not_found"),
    "delivery_id": ("A delivery's id", "delivery_not_found"),
}
"""The parameters in paths, which operations need not declare: description, and the error code for an unknown one."""
SECURITY: Mapping[Auth, list[dict[str, Any]]] = {
    Auth.KEY: [{"key": []}],
    Auth.GRANT: [{"key": []}],
    Auth.OWN: [{"key": []}, {}],
}
TAGS = {
    "channels": "Lasting addresses that show live captions",
    "corrections": "What people change in a transcript",
    "transcription": "Audio in, words out",
    "jobs": "Look at jobs, follow them, download their outputs",
    "live": "Words while they are spoken",
    "webhooks": "Results that come to you",
    "account": "Keys, usage, tokens",
    "estimates": "What a prompt will cost, before it is run",
    "service": "Health, formats, descriptions",
}


def document(
    operations: Iterable[Operation],
    *,
    base_url: str,
    tags: Mapping[str, str] = MappingProxyType({}),
    schemas: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The OpenAPI document of *operations*. *tags* and *schemas* are those of the dialects."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        if not operation.hidden:
            paths.setdefault(operation.endpoint.path, {})[operation.endpoint.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Scribewire",
            "version": __version__,
            "summary": "Streaming transcription and prompt cost estimates",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [
            {"url": base_url, "description": "production"},
            {"url": f"{base_url}/sandbox", "description": "sandbox: keys sw_test_..."},
        ],
        "tags": [{"name": name, "description": text} for name, text in {**TAGS, **tags}.items()],
        "paths": paths,
        "webhooks": {event: _webhook(event) for event in bounds.WEBHOOK_EVENTS},
        "components": {
            "schemas": {**SCHEMAS, **schemas},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": operation.endpoint.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation),
        "security": SECURITY.get(operation.auth, [{}]),
    }
    if operation.description:
        shown["description"] = operation.description
    named = [Parameter(name, "path", TEXT, IN_PATHS[name][0], required=True) for name in _names_in_path(operation)]
    if parameters := [*named, *operation.parameters]:
        shown["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.bodies:
        shown["requestBody"] = {
            "required": operation.body_required,
            "content": {kind: _content(operation, kind, schema) for kind, schema in operation.bodies.items()},
        }
    return shown


def _names_in_path(operation: Operation) -> list[str]:
    """The names of IN_PATHS that occur in the path of the operation."""
    return [name for name in IN_PATHS if f"{{{name}}}" in operation.endpoint.path]


def _content(operation: Operation, kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    example = operation.body_examples.get(kind)
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    shown = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    return shown | {"style": "deepObject"} if parameter.schema.get("type") == "object" else shown  # name[key]=value


def _responses(operation: Operation) -> dict[str, Any]:
    shown = {str(status): _answer(answer) for status, answer in operation.answers.items()}
    by_status: dict[int, list[str]] = {}
    statuses = {} if operation.errors_as is None else operation.errors_as.statuses
    more = (
        *BY_METHOD.get(operation.endpoint.method, ()),
        *(WITH_A_BODY if operation.bodies else ()),
        *(("invalid_json",) if JSON in operation.bodies else ()),
        *(("invalid_request",) if any(one.place == "query" for one in operation.parameters) else ()),
        *(IN_PATHS[name][1] for name in _names_in_path(operation)),
    )
    for code in dict.fromkeys((*BY_AUTH[operation.auth], *operation.codes, *more, *ALWAYS)):
        by_status.setdefault(statuses.get(code, CODES[code][0]), []).append(code)
    body = {PROBLEM: {"schema": ref("Problem")}}
    if operation.errors_as is not None:
        body = {JSON: {"schema": ref(operation.errors_as.schema)}}
    for status, codes in sorted(by_status.items()):
        shown[str(status)] = {"description": ", ".join(codes), "content": body}
    return shown


def _answer(answer: Answer) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": answer.description}
    content = {"schema": answer.schema, "example": answer.example}
    if answer.schema is not None or answer.media_type != JSON:
        shown["content"] = {answer.media_type: {name: value for name, value in content.items() if value is not None}}
    if answer.headers:
        shown["headers"] = {name: {"schema": {"type": "string"}} for name in answer.headers}
    return shown


def _webhook(event: str) -> dict[str, Any]:
    return {
        "post": {
            "operationId": f"on_{event.replace('.', '_')}",
            "summary": "Signed as Standard Webhooks 1.0.0 says; answer 2xx within 15 s",
            "requestBody": {"required": True, "content": {JSON: {"schema": ref("Notice")}}},
            "responses": {"2XX": {"description": "Taken"}, "410": {"description": "Send nothing more here"}},
        }
    }
