"""Deepgram's dialect as the server registers it, the JSON Schemas of its clients' bodies, and grants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.signed import GRANT, make_credential
from server.clock import now_ms
from server.dialects.deepgram.answers import NAME, SHAPE, callback_body
from server.dialects.deepgram.files import FileHandler
from server.dialects.deepgram.live import ROUTE, LiveHandler
from server.dialects.dialect import Dialect, DialectRoutes
from server.http.bodies import body_of, json_object
from server.http.middleware import MAX_QUERY_FIELDS
from server.http.openapi import INSTANT, MAYBE_NUMBER, TEXT, TEXTS, URI, WHOLE, integer_in, object_of, ref
from server.http.operation import Answer, Caller, Endpoint, Operation, json_body, json_response
from server.model.accounts import SigningKeys
from server.model.bounds import MAX_KEYWORDS
from server.parsing.members import members_of, number_in
from server.requests.request import RouteParts

MAX_BODY = 4096
TTL_S = range(1, 3601)  # as at Deepgram
USUAL_TTL_S = 30
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


@dataclass(frozen=True, slots=True)
class Grants:
    """Makes what Deepgram calls access tokens: short-lived credentials for browsers. AccessControl checks them."""

    keys: SigningKeys

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/auth/grant", self.create, "createGrant"),
                summary="Make a short-lived credential for /v1/listen",
                description="It is good in place of the API key there and nowhere else, as long as that key is. What "
                "began with it goes on when it expires.",
                **json_body("GrantRequest", most=MAX_BODY, example={"ttl_seconds": 30}),
                answers={200: Answer("The credential", ref("Grant"))},
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        body = await body_of(request, most=MAX_BODY)
        members = members_of(json_object(body) if body else {})
        ttl_s = int(members.take("ttl_seconds", number_in(TTL_S[0], TTL_S[-1]), USUAL_TTL_S))
        members.check()
        _, key, _ = caller.require_account()
        grant = make_credential(self.keys, GRANT, key_hash=key.hash, expires_s=now_ms() // 1000 + ttl_s)
        return json_response({"access_token": grant, "expires_in": ttl_s})


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
