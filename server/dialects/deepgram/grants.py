"""POST /v1/auth/grant: makes a short-lived credential for a browser, as Deepgram does."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.signed import GRANT, make_credential
from server.clock import now_ms
from server.http.bodies import body_of, json_object
from server.http.caller import Caller
from server.http.operation import Answer, Endpoint, Operation, json_body, json_response
from server.http.schemas import ref
from server.model.accounts import SigningKeys
from server.parsing.members import members_of, number_in

MAX_BODY = 4096
TTL_S = range(1, 3601)  # as at Deepgram
USUAL_TTL_S = 30


@dataclass(frozen=True, slots=True)
class Grants:
    """Makes the credentials that Deepgram calls access tokens. AccessControl checks them."""

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
