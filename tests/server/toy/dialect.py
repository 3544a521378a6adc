"""A dialect as small as one can be, with everything that a dialect may have. test_dialects.py uses it.

POST /v1/toy takes a file as its body and answers with the text in capitals; with ?tell=URL the text is sent there.
WS /v1/toy takes raw audio and sends each final word in capitals, until the client sends "done".
"""

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.dialects.dialect import Dialect, DialectRoutes, answer_finished, open_session
from server.http.openapi import TEXT, object_of, ref
from server.http.operation import Answer, Caller, Endpoint, ErrorShape, Operation, json_response
from server.http.sockets import Socket, socket_route
from server.model.bounds import WEBHOOK_EVENTS
from server.model.jobs import Job
from server.model.orders import LiveOptions, Order
from server.parsing.orders import ParsedRequest
from server.requests.request import FILE_CODES, RouteParts, receive_upload
from server.waiting import until_first

NAME = "toy"
SCHEMAS = {"ToyAnswer": object_of({}, {"said": TEXT, "number": TEXT}), "ToyError": object_of({"oh": TEXT})}
SHAPE = ErrorShape(schema="ToyError", body=lambda problem, _request_id: {"oh": problem.code})


@dataclass(frozen=True)
class ToyRoutes:
    """What the toy answers."""

    parts: RouteParts

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/toy", self.create, "toy"),
                summary="Say it in capitals",
                bodies={"application/octet-stream": {"type": "string", "format": "binary"}},
                answers={200: Answer("The text in capitals", ref("ToyAnswer"))},
                codes=(*FILE_CODES, "url_not_allowed", "engine_error", "job_not_completed", "output_not_found"),
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        tell, mark = request.query_params.get("tell"), request.query_params.get("mark", "!")
        order = Order()
        if tell is not None:
            order = Order(webhook_url=tell, webhook_events=WEBHOOK_EVENTS, callback={"dialect": NAME, "mark": mark})
        async with receive_upload(self.parts, request, caller, raw=True) as upload:
            submitted = await upload.accept(ParsedRequest(order))
        if tell is not None:
            return json_response({"number": submitted.job.id})
        return await answer_finished(request, submitted.job, _say, self.parts)

    async def converse(self, socket: Socket) -> None:
        caller = await self.parts.access.identify(socket.websocket)
        order = Order(live=LiveOptions())
        async with open_session(self.parts, socket.websocket, caller, order) as session:
            await socket.accept()

            async def read() -> None:
                while (message := await socket.websocket.receive())["type"] == "websocket.receive":
                    if message.get("bytes"):
                        await session.seat.write(message["bytes"])
                    else:
                        session.live.finish()

            async def tell(frames: Any) -> None:
                words = [frame["word"].upper() for frame in frames if frame["type"] == "word"]
                await socket.send(*map(orjson.dumps, words))

            await until_first(read(), session.follow(tell))


async def _say(job: Job) -> Response:
    return json_response({"said": (job.text or "").upper()})


def callback_body(job: Job, chunks: Any) -> dict[str, Any]:
    return {"said": None if chunks is None else f"{job.text}{job.order.callback['mark']}".upper()}


def build(parts: RouteParts) -> DialectRoutes:
    routes = ToyRoutes(parts)
    return DialectRoutes(
        operations=routes.operations(), sockets=[socket_route("/v1/toy", routes.converse, metrics=parts.metrics)]
    )


TOY = Dialect(
    name=NAME, summary="The same service for toys", build=build, errors=SHAPE, schemas=SCHEMAS, callback=callback_body
)
