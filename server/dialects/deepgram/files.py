"""POST /v1/listen: makes a job from a file or address that a client of Deepgram sends.

The answer is the transcript. With a callback the answer is the request's id, and the transcript is sent to the
callback.
"""

from dataclasses import asdict, dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from server.background import compute, total_bytes
from server.dialects.deepgram.answers import NAME, REQUEST_ID, DeepgramShape, file_answer
from server.dialects.deepgram.parameters import FileRequest, parse_file, url_of
from server.dialects.dialect import RESULT_CODES, answer_finished
from server.http.bodies import JSON
from server.http.headers import WARNING, warning_headers
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, json_response
from server.http.problems import Problem
from server.model.bounds import USUAL_WEBHOOK_EVENTS
from server.model.jobs import Job
from server.model.orders import Order
from server.parsing.orders import ParsedRequest
from server.requests.request import FILE_CODES, RouteParts, receive_upload

RAW = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class FileHandler:
    parts: RouteParts

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/listen", self.create, "listen"),
                auth=Auth.GRANT,
                summary="Transcribe as Deepgram's clients ask for it",
                description="The body is the audio itself, of any media type, or JSON with its url. "
                "Waits for the result, unless the query names a callback: then the result is sent there, signed like "
                "a webhook. The same path takes a WebSocket for live audio.",
                bodies={JSON: ref("DeepgramUrl"), RAW: {"type": "string", "format": "binary"}},
                body_examples={JSON: {"url": "https://example.org/talk.mp3"}},
                answers={
                    200: Answer(
                        "The transcript, or the number of the request",
                        {"anyOf": [ref("DeepgramAnswer"), ref("DeepgramAccepted")]},
                        headers=(REQUEST_ID, WARNING),
                    )
                },
                codes=(*FILE_CODES, "url_not_allowed", "source_failed", *RESULT_CODES),
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        listening = parse_file(request.query_params, self.parts.offers[caller.environment])
        async with receive_upload(self.parts, request, caller, raw=True) as upload:
            file = upload.received.file
            if file is not None and file.bytes == 0:
                raise Problem("empty_file", "the body has no bytes")
            shape = replace(listening.shape, sha256=(file.sha256 if file is not None else None) or "")
            url = url_of(upload.received.fields) if file is None else None
            order = _with_callback(listening, shape)
            job = (await upload.accept(ParsedRequest(order, url, warnings=listening.warnings))).job
        if listening.callback is not None:
            return json_response({"request_id": job.id}, headers={REQUEST_ID: job.id, **warning_headers(job.warnings)})
        return await answer_finished(request, job, lambda over: self._result(over, shape), self.parts)

    async def _result(self, job: Job, shape: DeepgramShape) -> Response:
        """The answer with the transcript of a finished job."""
        chunks = await self.parts.storage.timelines.entries(job.id)
        body = await compute(job.account, total_bytes(chunks), file_answer, job, chunks, shape)
        return json_response(body, headers={REQUEST_ID: job.id})


def _with_callback(listening: FileRequest, shape: DeepgramShape) -> Order:
    """The order, with the callback as the address of its webhook."""
    if listening.callback is None:
        return listening.order
    callback = {"dialect": NAME, **asdict(shape)}
    return replace(
        listening.order, webhook_url=listening.callback, webhook_events=USUAL_WEBHOOK_EVENTS, callback=callback
    )
