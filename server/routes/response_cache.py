"""Answers that are made once and sent to many requests, until their content changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import ref

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.clock import now_ms
from server.model.jobs import Job

MAX_BYTES_KEPT = 32 * 1024  # of the body of such an answer


class CachedResponse(Response):
    """An answer that can be sent any number of times."""

    def __init__(self, body: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, headers=headers, media_type="application/json")

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        # With a new list each time, because middleware adds headers to it.
        head = {"type": "http.response.start", "status": self.status_code, "headers": [*self.raw_headers]}
        await send(head)
        await send({"type": "http.response.body", "body": self.body})


class TaggedResponse(CachedResponse):
    """A CachedResponse with an ETag among its *headers*."""

    def __init__(self, body: bytes, *, headers: Mapping[str, str]) -> None:
        super().__init__(body, headers=headers)
        self.etag = headers["ETag"]
        self._tagged_headers = headers

    def not_modified(self) -> Response:
        """The answer to a client that already has this one."""
        return Response(status_code=304, headers=self._tagged_headers)


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: TaggedResponse
    ttl_s: int
    until_ms: int
    job: "ref[Job]"


class JobResponseCache:
    """Caches answers with the records of ended jobs.

    The store returns the same Job object until any process changes the job. The cached answer lives as long as that
    object.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}  # by the id of the object

    def of(self, job: Job, ttl_s: int) -> TaggedResponse | None:
        """The cached answer about *job* with links for *ttl_s* seconds; None if there is none."""
        kept = self._kept.get(id(job))
        return None if kept is None or kept.ttl_s != ttl_s or now_ms() >= kept.until_ms else kept.answer

    def keep(self, job: Job, ttl_s: int, answer: TaggedResponse, *, until_ms: int) -> None:
        """Cache *answer* until *until_ms* (since 1970 UTC), unless the record is long or may change by then."""
        if job.terminal and job.order.keeps_results and job.order.live is None and len(answer.body) <= MAX_BYTES_KEPT:
            number = id(job)
            gone = ref(job, lambda _: self._kept.pop(number, None))
            self._kept[number] = _Kept(answer, ttl_s, until_ms, gone)
