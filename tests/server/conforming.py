"""Checks every answer that a test gets against the server's OpenAPI document: status, code, media type, schema."""

import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator

PROBLEM = "application/problem+json"
EVERYWHERE = frozenset({"not_found", "method_not_allowed", "invalid_request"})
"""Codes for paths and methods that are not described, and for requests that are not looked at."""


class Description:
    """Checks answers against an OpenAPI document. Use *check* as a response hook of a client."""

    def __init__(self, document: dict[str, Any], *, base_url: str) -> None:
        self.document = document
        self._base_url = base_url
        self._paths = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): path for path in document["paths"]}
        self._validators: dict[tuple[str, str, str], Draft202012Validator] = {}

    def check(self, response: httpx.Response) -> None:
        method = response.request.method.lower().replace("head", "get")
        path = self._path(str(response.request.url))
        operation = self.document["paths"].get(path, {}).get(method)
        if response.headers.get("content-type") == PROBLEM and method != "options":
            self._check_problem(response, path, method, operation)
        elif operation is not None:
            self._check_success(response, path, method, operation)

    def _check_problem(self, response: httpx.Response, path: str, method: str, operation: Any) -> None:
        if response.request.method == "HEAD":
            return
        problem = self._valid(response, path, method, {"$ref": "#/components/schemas/Problem"})
        assert problem["status"] == response.status_code
        assert problem["request_id"] == response.headers["x-request-id"]
        if problem["code"] not in EVERYWHERE and operation is not None:
            documented = operation["responses"].get(str(response.status_code), {"description": ""})["description"]
            assert problem["code"] in documented.split(", "), f"{method} {path} does not document {problem['code']}"

    def _check_success(self, response: httpx.Response, path: str, method: str, operation: Any) -> None:
        documented = operation["responses"].get(str(response.status_code))
        assert documented is not None, f"{method} {path} does not document {response.status_code}: {response}"
        contents = documented.get("content", {})
        if response.request.method == "HEAD" or "application/json" not in contents:
            return
        assert response.headers["content-type"] == "application/json"
        self._valid(response, path, method, contents["application/json"]["schema"])

    def _valid(self, response: httpx.Response, path: str, method: str, schema: Any) -> Any:
        key = (path, method, f"{response.status_code} {schema.get('$ref')}")
        validator = self._validators.get(key)
        if validator is None:
            validator = Draft202012Validator({**schema, "components": self.document["components"]})
            self._validators[key] = validator
        response.read()
        body = response.json()
        validator.validate(body)
        return body

    def _path(self, url: str) -> str:
        path = httpx.URL(url.removeprefix(self._base_url)).path.removeprefix("/sandbox")
        return next((described for pattern, described in self._paths.items() if pattern.fullmatch(path)), path)
