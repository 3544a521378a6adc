"""Errors in OpenAI's form."""

from collections.abc import Mapping
from typing import Any

from server.http.operation import ErrorShape
from server.http.problems import Problem
from server.model.errors import FieldError, Refused, invalid_member
from server.model.offers import Offer

SERVER_ERROR = 500
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(problem: Problem, _request_id: str = "") -> Mapping[str, Any]:
    """The problem in the shape of OpenAI's API."""
    kind = "server_error" if problem.status >= SERVER_ERROR else _TYPES.get(problem.status, "invalid_request_error")
    param = problem.errors[0].param if problem.errors else None
    return {"error": {"message": problem.detail, "type": kind, "param": param, "code": problem.code}}


SHAPE = ErrorShape(schema="OpenAIError", body=error_body)


def invalid_value(param: str, message: str) -> Refused:
    return invalid_member(param, "unknown_value", message)


def unknown_model(name: str, offer: Offer) -> Problem:
    """The refusal of the model *name*, which this server does not have."""
    return Problem(
        "model_not_found",
        f"{offer.unknown_model(name)}, and whisper-1 leaves the choice to the server",
        errors=[FieldError("model", "unknown_value", "unknown model")],
    )
