"""JSON Schemas of the bodies that Deepgram's clients send and get."""

from collections.abc import Mapping
from typing import Any

from server.dialects.deepgram.grants import TTL_S, USUAL_TTL_S
from server.http.schema_parts import (
    INSTANT,
    MAYBE_NUMBER,
    TEXT,
    TEXTS,
    URI,
    WHOLE,
    integer_in,
    object_of,
)

SCHEMAS: Mapping[str, Any] = {
    "DeepgramUrl": object_of({"url": URI}),
    "DeepgramError": object_of({"err_code": TEXT, "err_msg": TEXT, "request_id": TEXT}),
    "DeepgramAnswer": object_of(
        {
            "metadata": object_of(
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
            "results": object_of(
                {"channels": {"type": "array", "items": {"type": "object"}}}, {"utterances": {"type": "array"}}
            ),
        }
    ),
    "DeepgramAccepted": object_of({"request_id": {"type": "string", "description": "The job's id"}}),
    "GrantRequest": object_of({}, {"ttl_seconds": integer_in(TTL_S[0], TTL_S[-1], USUAL_TTL_S)}),
    "Grant": object_of({"access_token": TEXT, "expires_in": WHOLE}),
}
