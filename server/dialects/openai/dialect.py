"""OpenAI's dialect as the server registers it, the JSON Schemas of its clients' bodies, and `/v1/models`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.dialects.dialect import Dialect, DialectRoutes
from server.dialects.openai.bodies import SHAPE, unknown_model
from server.dialects.openai.files import COMMON, DIARIZED, LOGPROBS, RESPONSE_FORMATS, AudioFiles
from server.dialects.openai.realtime import Realtime
from server.dialects.openai.realtime_translations import RealtimeTranslations
from server.dialects.openai.session_config import ClientSecrets
from server.http.openapi import MAYBE_TEXT, SWITCH, TEXT, TEXTS, WHOLE, integer_in, list_of, object_of, ref
from server.http.operation import Answer, Caller, Endpoint, Operation, Parameter, json_response
from server.http.problems import CODES
from server.model.offers import Offer
from server.parsing.declared import NAMES, REFERENCES
from server.parsing.members import form_properties
from server.requests.request import RouteParts

_FILE: Mapping[str, Any] = {"file": {"type": "string", "format": "binary"}}
_MEMBERS: Mapping[str, Any] = {
    "model": {"type": "string", "examples": ["whisper-1"], "description": "Left out: the server chooses"},
    **form_properties(*COMMON, NAMES, REFERENCES),
    "response_format": {"enum": [*RESPONSE_FORMATS], "default": "json"},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1, "description": "Accepted and not used"},
}

SCHEMAS: Mapping[str, Any] = {
    "OpenAITranscriptionForm": object_of(
        _FILE,
        {
            **_MEMBERS,
            "response_format": {"enum": [*RESPONSE_FORMATS, DIARIZED], "default": "json"},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
            "chunking_strategy": {"type": "string", "description": "Accepted and not used"},
            "include[]": {
                "type": "array",
                "items": {"enum": [LOGPROBS]},
                "description": "logprobs: the log probability of each word, with response_format json",
            },
            "stream": {"type": "boolean", "default": False},
        },
    ),
    "OpenAITranslationForm": object_of(_FILE, _MEMBERS),
    "OpenAIError": object_of(
        {"error": object_of({"message": TEXT, "type": TEXT, "param": MAYBE_TEXT, "code": {"enum": [*CODES]}})}
    ),
    "ClientSecretRequest": object_of(
        {},
        {
            "expires_after": object_of({}, {"anchor": {"const": "created_at"}, "seconds": integer_in(10, 7200, 600)}),
            "session": {"type": "object", "description": "As in session.update; the configuration to begin with"},
        },
    ),
    "ClientSecret": object_of({"value": TEXT, "expires_at": WHOLE, "session": {"type": "object"}}),
    "Model": object_of(
        {
            "id": TEXT,
            "object": {"const": "model"},
            "created": WHOLE,
            "owned_by": TEXT,
            "languages": TEXTS,
            "hears": {**TEXTS, "description": "The languages that it hears where a request names no model"},
            "speakers": {**SWITCH, "description": "Whether speakers can be told apart by their voices: `diarize`"},
            "endpointing": {"type": "array", "items": TEXT, "description": "What may end a turn of a live session"},
            "translates": {**SWITCH, "description": "Whether it writes English where another language is spoken"},
        }
    ),
    "ModelList": list_of(
        ref("Model"),
        object={"const": "list"},
        translates_to={**TEXTS, "description": "The languages of translate_to, as codes; * is any"},
    ),
}


@dataclass(frozen=True, slots=True)
class Models:
    """Lists the server's models, and the names of OpenAI's that leave the choice to the server."""

    offers: Mapping[str, Offer]  # by environment

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("GET", "/v1/models", self.list, "listModels"),
                summary="The recogniser's models",
                answers={200: Answer("The models", ref("ModelList"))},
            ),
            Operation(
                Endpoint("GET", "/v1/models/{model}", self.retrieve, "retrieveModel"),
                summary="Whether a model may be asked for by this name",
                parameters=(Parameter("model", "path", {"type": "string"}, "A name of the model", required=True),),
                answers={200: Answer("The model", ref("Model"))},
                codes=("model_not_found",),
            ),
        ]

    async def list(self, _request: Request, caller: Caller) -> Response:
        offer = self.offers[caller.environment]
        return json_response(
            {
                "object": "list",
                "data": [_model(name, offer) for name in offer.names],
                "translates_to": sorted(offer.translates_to),
            }
        )

    async def retrieve(self, request: Request, caller: Caller) -> Response:
        offer, name = self.offers[caller.environment], request.path_params["model"]
        if not offer.has(name):
            raise unknown_model(name, offer)
        return json_response(_model(name, offer))


def _model(name: str, offer: Offer) -> Mapping[str, Any]:
    named = offer.model_named(name)
    hears = next((model.hears for model in offer.choices if model.name == named), offer.languages)
    offer = offer.of(named)
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "scribewire",
        "languages": sorted(offer.languages),
        "hears": sorted(hears),
        "translates": offer.translates,
        "speakers": offer.speakers,
        "endpointing": list(offer.endpointing),
    }


def build(parts: RouteParts) -> DialectRoutes:
    secrets = ClientSecrets(parts)
    translations = RealtimeTranslations(parts, secrets)
    operations = [
        *AudioFiles(parts).operations(),
        *Models(parts.offers).operations(),
        *secrets.operations(),
        *translations.operations(),
    ]
    return DialectRoutes(operations=operations, sockets=[*Realtime(parts, secrets).routes(), *translations.routes()])


OPENAI = Dialect(
    name="openai", summary="The same service for OpenAI's clients", build=build, errors=SHAPE, schemas=SCHEMAS
)
