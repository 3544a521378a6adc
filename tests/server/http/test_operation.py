"""Tests of operation.py: the methods of a resource, and its errors."""

import asyncio
from dataclasses import replace

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from server.http.client_addresses import AddressCounters
from server.http.middleware import Compression, Origins, OuterMiddleware
from server.http.operation import Answer, Endpoint, Handler, Operation, Resource, json_response, not_found
from server.http.problems import Problem
from server.metrics import Metrics

YEAR_MS = 365 * 24 * 3_600_000
FOR_EVER = 2**45


class OpenAccess:
    """Access control that lets everyone in."""

    async def admit(self, _request: Request, _operation: Operation) -> None: ...

    async def limit_headers(self, _caller: object, refusal: Exception | None) -> dict[str, str]:
        return {"X-Refused": type(refusal).__name__}


async def good(_request: Request, _caller: object) -> Response:
    return json_response({"ok": True}, headers={"Link": '<https://x.test/2>; rel="next"'})


async def broken(_request: Request, _caller: object) -> Response:
    raise ZeroDivisionError


async def refuse(_request: Request, _caller: object) -> Response:
    raise Problem("job_active", "it is")


THING = Operation(
    Endpoint("GET", "/things", good, "things"), summary="Things", tag="jobs",
    answers={200: Answer("Things", {"type": "object"})},
)  # fmt: skip


def at(method: str, handle: Handler) -> Operation:
    """THING with this method and handler."""
    return replace(THING, endpoint=Endpoint(method, "/things", handle, method.lower()))


def app_of(*operations: Operation) -> ASGIApp:
    """An app with these operations at /things."""
    routes = Router([Route("/things", Resource(operations, OpenAccess()))], default=not_found)
    return OuterMiddleware(
        Compression(routes),
        origins=Origins(["*"]),
        metrics=Metrics(),
        new_request_id=lambda: "req_1",
        sandbox_host=None,
        address_limits=AddressCounters(1000, ()),
        query_fields={},
    )


def ask(*operations: Operation, method: str = "GET") -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app_of(*operations))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, "/things")

    return asyncio.run(main())


def test_the_door_is_told_how_it_ended():
    assert ask(THING).headers["x-refused"] == "NoneType"
    assert ask(at("GET", refuse)).headers["x-refused"] == "Problem"
    fault = ask(at("GET", broken))
    assert (fault.status_code, fault.json()["code"], fault.headers["x-refused"]) == (
        500,
        "internal",
        "ZeroDivisionError",
    )
