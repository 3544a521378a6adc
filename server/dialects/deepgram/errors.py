"""Errors in Deepgram's form. They are in headers too, because clients see no body of a refused WebSocket."""

from collections.abc import Mapping
from typing import Any

import orjson

from server.http.operation import ErrorShape
from server.http.problems import CODES, UNDECODABLE, Problem
from server.http.sockets import GOING_AWAY, SocketErrorStyle

REQUEST_ID = "dg-request-id"
UNPROCESSABLE, BAD_REQUEST = 422, 400
THEIR_CODES = {
    "invalid_key": "INVALID_AUTH",
    "missing_credentials": "INVALID_AUTH",
    "source_failed": "REMOTE_CONTENT_ERROR",
}


def error_body(problem: Problem, request_id: str) -> Mapping[str, Any]:
    code = THEIR_CODES.get(problem.code, problem.code.upper())
    return {"err_code": code, "err_msg": problem.detail, "request_id": request_id}


def error_headers(problem: Problem, request_id: str) -> Mapping[str, str]:
    said = problem.detail.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")
    return {REQUEST_ID: request_id, "dg-error": said}


# Deepgram has no 422, and answers 400 to bytes that are no audio too.
REFUSED = [code for code, (status, _) in CODES.items() if status == UNPROCESSABLE or code in UNDECODABLE]
SHAPE = ErrorShape(
    schema="DeepgramError", body=error_body, headers=error_headers, statuses=dict.fromkeys(REFUSED, BAD_REQUEST)
)


def close_code(problem: Problem) -> int:
    if problem.code == "shutting_down":
        return GOING_AWAY
    return 1008 if problem.code in UNDECODABLE else 1011


def _error_frame(problem: Problem, _path: str, request_id: str) -> bytes:
    said = {"type": "Error", "variant": problem.code, "description": problem.detail, "request_id": request_id}
    return orjson.dumps(said)


ERROR_STYLE = SocketErrorStyle(refusal=SHAPE, error_frame=_error_frame, close_code=close_code)
