"""Tests of /openapi.json: it is valid, complete, and made of the same table as the routes."""

import re

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from server.dialects.deepgram.answers import SHAPE
from server.http.problems import CODES
from tests.server.serving import serve

METHODS = {"get", "post", "put", "patch", "delete", "head", "options", "trace"}
PROMISED = {
    "/v1/transcribe": {"post"},
    "/v1/jobs": {"get"},
    "/v1/jobs/{job_id}": {"get", "delete"},
    "/v1/jobs/{job_id}/cancel": {"post"},
    "/v1/jobs/{job_id}/events": {"get"},
    "/v1/jobs/{job_id}/outputs/{name}": {"get"},
    "/v1/jobs/{job_id}/deliveries": {"get"},
    "/v1/jobs/{job_id}/deliveries/{delivery_id}/redeliver": {"post"},
    "/v1/jobs/{job_id}/audio": {"get", "post"},
    "/v1/jobs/{job_id}/corrections": {"get", "post"},
    "/v1/jobs/{job_id}/words": {"get"},
    "/v1/jobs/{job_id}/edit-links": {"post"},
    "/v1/jobs/{job_id}/finish": {"post"},
    "/v1/live": {"post"},
    "/v1/channels": {"get", "post"},
    "/v1/channels/{channel_id}": {"delete"},
    "/v1/channels/{channel_id}/events": {"get"},
    "/v1/channels/{channel_id}/live.vtt": {"get"},
    "/v1/jobs/{job_id}/live.vtt": {"get"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{key_id}": {"delete"},
    "/v1/keys/{key_id}/rotate": {"post"},
    "/v1/tokens": {"post"},
    "/v1/usage": {"get"},
    "/v1/webhook-secret": {"get"},
    "/v1/webhook-secret/rotate": {"post"},
    "/v1/webhooks/enable": {"post"},
    "/v1/webhooks/test": {"post"},
    "/v1/estimate": {"post"},
    "/v1/estimate/free": {"post"},
    "/v1/estimate/models": {"get"},
    "/v1/formats": {"get"},
    "/v1/jobs/{job_id}/estimate": {"get"},
    "/v1/audio/transcriptions": {"post"},
    "/v1/audio/translations": {"post"},
    "/v1/models": {"get"},
    "/v1/models/{model}": {"get"},
    "/v1/listen": {"post"},
    "/v1/auth/grant": {"post"},
    "/v1/realtime/client_secrets": {"post"},
    "/v1/realtime/translations/client_secrets": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/openapi.json": {"get"},
    "/schemas/service_v1.json": {"get"},
}
"""Every path that is promised, and its methods."""


@pytest.fixture(scope="module")
def document(live_server):
    return live_server.description.document


def operations(document):
    """Yield (path, method, operation) of the whole document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield path, method, operation


def test_the_document_is_valid_openapi_3_1(document):
    assert document["openapi"].startswith("3.1")
    validate(document, cls=OpenAPIV31SpecValidator)


def test_it_tells_of_every_promised_path_and_of_no_other(document):
    described = {
        path: {method for method in methods if method in METHODS} for path, methods in document["paths"].items()
    }
    assert described == PROMISED
    assert set(document["webhooks"]) == {"job.completed", "job.failed", "job.corrected"}


def test_operation_ids_are_names_and_unique(document):
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]+", one) for one in ids)


def test_every_operation_says_what_it_does_and_how_it_fails(document):
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        assert operation["summary"], path
        assert set(operation["tags"]) <= tags
        statuses = set(operation["responses"])
        assert any(status.startswith("2") for status in statuses), (method, path)
        assert "500" in statuses
        if operation["security"] == [{"key": []}]:
            assert {"401", "403", "429"} <= statuses, (method, path)


def test_path_parameters_are_those_of_the_path(document):
    for path, _, operation in operations(document):
        declared = {row["name"] for row in operation.get("parameters", ()) if row["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path)), path
        assert all(row["required"] for row in operation.get("parameters", ()) if row["in"] == "path")


def test_every_error_names_codes_of_the_table_with_their_status(document):
    for path, method, operation in operations(document):
        for status, response in operation["responses"].items():
            if not status.startswith(("2", "3")):
                assert set(response["content"]) <= {"application/problem+json", "application/json"}
                for code in response["description"].split(", "):
                    usual = SHAPE.statuses if operation["tags"] == ["deepgram"] else {}
                    assert str(usual.get(code, CODES[code][0])) == status, (method, path, code)


def test_examples_are_what_their_schemas_ask_for(document):
    seen = 0
    for path, _, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if "example" in content:
                schema = {**content["schema"], "components": document["components"]}
                Draft202012Validator(schema).validate(content["example"])
                seen += 1
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            assert "example" in operation["requestBody"]["content"]["application/json"], path
    assert seen >= 8


def test_every_schema_is_one(document):
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_what_is_described_is_what_is_served(live_server, document):
    """The Allow header of every described path names exactly its described methods."""
    with live_server.client() as client:
        for path, methods in document["paths"].items():
            allow = set(client.options(re.sub(r"{\w+}", "x", path)).headers["allow"].lower().split(", "))
            described = {method for method in methods if method in METHODS}
            assert allow - {"options", "head"} == described, path


@pytest.mark.parametrize("path", ["/v1", "//", "/healthz/", "/v1/jobs//outputs/srt"])
def test_other_paths_are_nobodys(live_server, path):
    with live_server.client() as client:
        assert client.get(f"{live_server.base}{path}").status_code == 404


def test_it_is_public_and_costs_nothing(live_server):
    with live_server.client() as client:
        for _ in range(31):  # one more than a plan allows in a minute
            response = client.head("/openapi.json")
            assert response.status_code == 200
        assert "ratelimit" not in response.headers


def test_addresses_in_it_are_those_clients_use(tmp_path):
    with serve(tmp_path, PUBLIC_BASE_URL="https://speech.example/api") as it, it.client() as client:
        document = client.get("/openapi.json").json()
        schema = client.get("/schemas/service_v1.json").json()
    assert [row["url"] for row in document["servers"]] == [
        "https://speech.example/api",
        "https://speech.example/api/sandbox",
    ]
    assert schema["$id"] == "https://speech.example/api/schemas/service_v1.json"
