"""Makes credentials for browsers, which must not know an API key: for transcription and for translation sessions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from server.accounts.keys import fresh_id
from server.accounts.signed import CLIENT_SECRET, make_credential, read_credential
from server.clock import now_ms
from server.dialects.openai.errors import invalid_value
from server.dialects.openai.session_config import TranscriptionConfig
from server.http.bodies import body_of, json_object
from server.http.caller import Caller
from server.http.operation import Answer, Endpoint, Operation, json_body, json_response
from server.http.schemas import ref
from server.model.ids import Prefix
from server.model.offers import Offer
from server.parsing.members import members_of, whole_in
from server.requests.access_control import bearer
from server.requests.request import RouteParts

MAX_BODY = 16 * 1024
MAX_SESSION_BYTES = 4096  # the credential contains it, and is sent in a header
KEY_SUBPROTOCOL = "openai-insecure-api-key."  # before the credential of a browser, which cannot set headers
TTL_S = range(10, 7201)
USUAL_TTL_S = 600


class Config(Protocol):
    """The configuration of a session."""

    def session_object(self, session_id: str, *, expires_s: int) -> Mapping[str, Any]: ...


Configure: TypeAlias = Callable[[Mapping[str, Any], Offer], Config]
"""Makes the configuration that a session object asks for. Raises Refused."""


@dataclass(frozen=True, slots=True)
class ClientSecrets:
    """Makes and checks the credentials that OpenAI calls client secrets."""

    parts: RouteParts

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/realtime/client_secrets", self.create, "createClientSecret"),
                summary="Make a short-lived credential for /v1/realtime",
                description="It is good in place of the API key there and nowhere else, as long as that key is.",
                **json_body("ClientSecretRequest", most=MAX_BODY, example={"session": {"type": "transcription"}}),
                answers={200: Answer("The credential", ref("ClientSecret"))},
                codes=("model_not_found",),
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        return await self.issue(request, caller, TranscriptionConfig().with_changes)

    async def issue(self, request: Request, caller: Caller, configure: Configure) -> Response:
        """The answer to a request for a credential, which has the session that it asks for."""
        body = json_object(await body_of(request, most=MAX_BODY))
        session = _object(body, "session")
        wanted = configure(session, self.parts.offers[caller.environment])
        members = members_of(_object(body, "expires_after"))
        ttl_s = members.take("seconds", whole_in(TTL_S), USUAL_TTL_S)
        members.check()
        expires_s = now_ms() // 1000 + ttl_s
        shown = wanted.session_object(fresh_id(Prefix.SESSION), expires_s=expires_s)
        said = _sealable({**session, "type": shown["type"]})  # so that the other kind of session does not take it
        _, key, _ = caller.require_account()
        secret = make_credential(self.parts.keys, CLIENT_SECRET, key_hash=key.hash, said=said, expires_s=expires_s)
        return json_response({"value": secret, "expires_at": expires_s, "session": shown})

    async def identify(self, connection: HTTPConnection) -> tuple[Caller, Mapping[str, Any] | None]:
        """A socket's caller, by its key or by a client secret, and the session in the secret. Raises RequestError."""
        offered = [name for name in connection.scope["subprotocols"] if name.startswith(KEY_SUBPROTOCOL)]
        secret = bearer(connection.headers) or (offered[0].removeprefix(KEY_SUBPROTOCOL) if offered else None)
        if secret is None or not secret.startswith(CLIENT_SECRET):
            return await self.parts.access.identify(connection, secret=secret), None
        key_hash, said = read_credential(self.parts.keys, CLIENT_SECRET, secret, now_s=now_ms() / 1000)
        return await self.parts.access.identify_hash(connection, key_hash), orjson.loads(said)


def _sealable(session: Mapping[str, Any]) -> str:
    """*session* as text that fits into a credential. Raises Refused invalid_parameter."""
    try:
        said = orjson.dumps(session)
    except orjson.JSONEncodeError:
        raise invalid_value("session", "is nested too deeply") from None
    if len(said) > MAX_SESSION_BYTES:
        raise invalid_value("session", f"must have at most {MAX_SESSION_BYTES} bytes")
    return said.decode()


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_value(name, "must be an object")
    return value
