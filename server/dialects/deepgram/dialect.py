"""Deepgram's dialect as the server registers it, with the JSON Schemas of its clients' bodies."""

from collections.abc import Mapping
from typing import Any

from server.dialects.deepgram.answers import NAME, callback_body
from server.dialects.deepgram.errors import SHAPE
from server.dialects.deepgram.files import FileHandler
from server.dialects.deepgram.grants import TTL_S, USUAL_TTL_S, Grants
from server.dialects.deepgram.live import ROUTE, LiveHandler
from server.dialects.dialect import Dialect, DialectRoutes
from server.http.middleware import MAX_QUERY_FIELDS
from server.http.schemas import INSTANT, MAYBE_NUMBER, TEXT, TEXTS, URI, WHOLE, integer_in, object_of
from server.model.bounds import MAX_KEYWORDS
from server.requests.request import RouteParts

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


def build(parts: RouteParts) -> DialectRoutes:
    operations = [*FileHandler(parts).operations(), *Grants(parts.keys).operations()]
    return DialectRoutes(operations=operations, sockets=LiveHandler(parts).routes())


DEEPGRAM = Dialect(
    name=NAME,
    summary="The same service for Deepgram's clients",
    build=build,
    errors=SHAPE,
    schemas=SCHEMAS,
    callback=callback_body,
    query_fields={ROUTE: MAX_QUERY_FIELDS + MAX_KEYWORDS},  # each keyterm is a field
)
