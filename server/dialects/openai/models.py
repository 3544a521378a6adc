"""/v1/models: lists the server's models, and the names of OpenAI's that leave the choice to the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.dialects.openai.errors import unknown_model
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, Parameter, json_response
from server.model.offers import Offer


@dataclass(frozen=True, slots=True)
class Models:
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
