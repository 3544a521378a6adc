"""The configuration of a transcription session in OpenAI's realtime API, and client secrets, which contain one.

The configuration is kept in the form that clients get, because the openai package recognises a transcription session
only if every member has a value that OpenAI's server could have sent. Source:
platform.openai.com/docs/api-reference/realtime.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from pipeline.recognition.stream_options import ACCURATE, LOW
from pipeline.text.options import TextOptions
from server.accounts.keys import fresh_id
from server.accounts.signed import CLIENT_SECRET, make_credential, read_credential
from server.clock import now_ms
from server.dialects.openai.bodies import invalid_value, unknown_model
from server.http.bodies import body_of, json_object
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, json_body, json_response
from server.model import bounds
from server.model.ids import Prefix
from server.model.offers import Offer
from server.model.orders import SEMANTIC, LiveOptions, Order
from server.parsing.declared import PROMPT
from server.parsing.members import Members, keywords, members_of, one_of, string, whole_in
from server.parsing.text import LANGUAGE, LANGUAGES, Spoken, spoken_languages
from server.requests.access_control import bearer
from server.requests.request import RouteParts

TYPE = "transcription"
FORMATS = {
    "audio/pcm": ("pcm_s16le", 24_000),
    "audio/pcmu": ("mulaw", bounds.TELEPHONE_RATE),
    "audio/pcma": ("alaw", bounds.TELEPHONE_RATE),
}
"""By OpenAI's name of a format: our encoding and the rate. OpenAI's API has no other rates."""
VAD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "server_vad": {"threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500},
    "semantic_vad": {"eagerness": "auto"},
}
EAGERNESS_MS = {"low": 1200, "medium": 600, "auto": 600, "high": 300}
"""The silence that ends a turn if the server has no model for the ends of turns."""
DELAYS = {"minimal": LOW, "low": LOW, "medium": None, "high": ACCURATE, "xhigh": ACCURATE}
"""OpenAI's delays and our latencies. None: the latency in the server's settings."""
MAX_BYTES = 16 * 1024
"""The most bytes of a configuration, as JSON. The longest prompt and keywords take half of it."""
NO_REDACTION = "realtime sessions redact nothing; /v1/live and /v1/transcribe are other ways"
MAX_BODY = 16 * 1024
MAX_SESSION_BYTES = 4096  # the credential contains it, and is sent in a header
KEY_SUBPROTOCOL = "openai-insecure-api-key."  # before the credential of a browser, which cannot set headers
TTL_S = range(10, 7201)
USUAL_TTL_S = 600


@dataclass(frozen=True, slots=True)
class TranscriptionConfig:
    """The configuration of a session. The mappings are as clients see them."""

    format: str = "audio/pcm"
    noise_reduction: Mapping[str, Any] | None = None  # has no effect
    transcription: Mapping[str, Any] = field(default_factory=dict)
    turn_detection: Mapping[str, Any] | None = field(
        default_factory=lambda: {"type": "server_vad", **VAD_DEFAULTS["server_vad"]}
    )  # None: items end when the client commits them
    model: str | None = None  # the one that hears everything; None: the server chooses
    spoken: Spoken = field(default_factory=Spoken)
    terms: tuple[str, ...] = ()
    warnings: tuple[Mapping[str, str], ...] = ()  # for the jobs of its sessions

    @property
    def manual(self) -> bool:
        """Whether items end only when the client commits them."""
        return self.turn_detection is None

    @property
    def semantic(self) -> bool:
        """Whether items end with the speaker's turns."""
        return self.turn_detection is not None and self.turn_detection["type"] == "semantic_vad"

    @property
    def rate(self) -> int:
        """Bytes of audio a second."""
        encoding, rate = FORMATS[self.format]
        return 2 * rate if encoding == "pcm_s16le" else rate

    def with_changes(self, session: Mapping[str, Any], offer: Offer) -> "TranscriptionConfig":
        """The configuration after the changes in *session*. A missing member changes nothing; null resets a member.

        Raises Refused model_not_found, invalid_parameter.
        """
        if session.get("type", TYPE) != TYPE:
            raise invalid_value("session.type", "only transcription sessions are offered here")
        given = _inner(_inner(session, "audio"), "input")
        _refuse_redaction(session)
        made = self
        if given.get("format") is not None:
            made = replace(made, format=_format(_inner(given, "format")))
        if "noise_reduction" in given:
            made = replace(made, noise_reduction=given["noise_reduction"] and dict(_inner(given, "noise_reduction")))
        if "turn_detection" in given:
            made = replace(made, turn_detection=_turn_detection(given["turn_detection"]))
        if given.get("transcription") is not None:
            made = _with_transcription(made, _inner(given, "transcription"), offer)
        _check_size(made)
        return made

    def order(self) -> Order:
        """The order of a live session with this configuration."""
        encoding, rate = FORMATS[self.format]
        live = LiveOptions(
            encoding=encoding,
            sample_rate=rate,
            interim_results=False,
            endpointing_ms=_silence_ms(self.turn_detection),
            ends_at_once=not self.semantic,
            latency=DELAYS.get(self.transcription.get("delay") or "medium"),
        )
        if self.turn_detection is not None and self.semantic:
            live = replace(live, endpointing=SEMANTIC, eagerness=self.turn_detection["eagerness"])
        return Order(
            word_timestamps=True,
            model=self.model,
            language=self.spoken.language,
            languages=self.spoken.languages,
            prompt=str(self.transcription.get("prompt") or ""),
            keywords=self.terms,
            live=live,
            text=TextOptions(script=self.spoken.script),
        )

    def session_object(self, session_id: str, *, expires_s: int) -> Mapping[str, Any]:
        """The session object that clients get."""
        shape = {"type": self.format, "rate": FORMATS[self.format][1]} if self.format == "audio/pcm" else None
        return {
            "id": session_id,
            "object": "realtime.transcription_session",
            "type": TYPE,
            "expires_at": expires_s,
            "include": [],
            "audio": {
                "input": {
                    "format": shape or {"type": self.format},
                    "noise_reduction": self.noise_reduction,
                    "transcription": {"prompt": "", **self.transcription},
                    "turn_detection": self.turn_detection,
                }
            },
        }


def _with_transcription(before: TranscriptionConfig, given: Mapping[str, Any], offer: Offer) -> TranscriptionConfig:
    kept = dict(before.transcription)
    if given.get(LANGUAGE.name) or given.get(LANGUAGES.name):
        kept = {name: value for name, value in kept.items() if name not in {LANGUAGE.name, LANGUAGES.name}}
    asked = {**kept, **given}
    members = Members({name: [value] for name, value in asked.items()})
    name = members.take("model", string, None)
    if name is not None and not offer.has(name):
        raise unknown_model(name, offer)
    model = None if name is None else offer.model_named(name)
    offer = offer.of(model)
    prompt, warnings = members.get(PROMPT), members.shortened_prompt(PROMPT)
    if prompt:
        asked["prompt"] = prompt  # clients see what is used
    spoken = spoken_languages(members, offer)
    terms = members.take("keywords", keywords, ())
    members.take("delay", one_of(tuple(DELAYS)), None)
    members.check()
    if given.get("prompt") is None:
        warnings = before.warnings
    return replace(before, transcription=asked, model=model, spoken=spoken, terms=terms, warnings=warnings)


def _refuse_redaction(session: Mapping[str, Any]) -> None:
    """Raise Refused if *session* asks for redaction anywhere, because the client would believe that text is hidden."""
    waiting: list[Any] = [session]
    while waiting:
        given = waiting.pop()
        if isinstance(given, Mapping):
            if given.get("redact"):
                raise invalid_value("session.redact", NO_REDACTION)
            waiting += given.values()
        elif isinstance(given, list):
            waiting += given


def _check_size(made: TranscriptionConfig) -> None:
    """Raise Refused if the configuration is larger than MAX_BYTES."""
    try:
        size = len(orjson.dumps([made.transcription, made.noise_reduction]))
    except orjson.JSONEncodeError:  # nested too deeply
        size = MAX_BYTES + 1
    if size > MAX_BYTES:
        raise invalid_value("session", f"must have at most {MAX_BYTES} bytes, and few levels")


def _inner(outer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = outer.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_value(name, "must be an object")
    return value


def _format(given: Mapping[str, Any]) -> str:
    name = given.get("type")
    if not isinstance(name, str) or name not in FORMATS:
        raise invalid_value("session.audio.input.format", f"must be one of {', '.join(FORMATS)}")
    if given.get("rate", FORMATS[name][1]) != FORMATS[name][1]:
        raise invalid_value("session.audio.input.format.rate", f"must be {FORMATS[name][1]} for {name}")
    return name


def _turn_detection(given: object) -> Mapping[str, Any] | None:
    """The member turn_detection, with OpenAI's defaults for missing members, and without unknown ones."""
    if given is None:
        return None
    kind = given.get("type", "server_vad") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in VAD_DEFAULTS or not isinstance(given, dict):
        raise invalid_value(
            "session.audio.input.turn_detection", f"must be null or of type {' or '.join(VAD_DEFAULTS)}"
        )
    known = {name: usual if given.get(name) is None else given[name] for name, usual in VAD_DEFAULTS[kind].items()}
    for name, value in known.items():
        if name == "eagerness":
            sound = isinstance(value, str) and value in EAGERNESS_MS
        else:
            sound = isinstance(value, int | float) and value >= 0
        if not sound:
            raise invalid_value(f"session.audio.input.turn_detection.{name}", "has a value that it cannot have")
    return {"type": kind, **known}


def _silence_ms(turn_detection: Mapping[str, Any] | None) -> int:
    """The silence that ends a turn, within the bounds of live sessions."""
    if turn_detection is None:
        return LiveOptions().endpointing_ms
    if turn_detection["type"] == "semantic_vad":
        return EAGERNESS_MS[turn_detection["eagerness"]]
    asked_ms = round(float(turn_detection["silence_duration_ms"]))
    return max(bounds.ENDPOINTING_MS[0], min(bounds.ENDPOINTING_MS[-1], asked_ms))


class Config(Protocol):
    """The configuration of a session."""

    def session_object(self, session_id: str, *, expires_s: int) -> Mapping[str, Any]: ...


Configure: TypeAlias = Callable[[Mapping[str, Any], Offer], Config]
"""Makes the configuration that a session object asks for. Raises Refused."""


@dataclass(frozen=True, slots=True)
class ClientSecrets:
    """Makes and checks what OpenAI calls client secrets: credentials for browsers, which must not know an API key."""

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
