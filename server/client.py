"""A Python client of the service. Since 0.1.0; the command line uses it too.

`pip install ./client` installs this file alone, as `scribewire_client`, with the three libraries that it imports.

    async with Client("http://127.0.0.1:8000", key) as client:
        record = await client.transcribe("talk.mp3", output_formats=["srt"], word_timestamps=True)
        async for event in client.events(record["job_id"]): ...
        async with client.live(sample_rate=16_000) as stream:
            await stream.send(pcm)

A broken connection is resumed where it broke: uploads by their Idempotency-Key, event streams by their last id, live
audio by the number of bytes that the server has.
"""

import asyncio
import base64
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import httpx
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

ENDED = frozenset({"completed", "failed", "canceled"})  # of a job's `status`
LAST_EVENTS = frozenset({"job.completed", "job.failed", "job.canceled"})
LONG_POLL_S = 30
TRIES = 6  # attempts before an error of the network is raised
FIRST_PAUSE_S = 0.5  # before the second try; doubles
MAX_PAUSE_S = 5.0  # between two tries of a live stream
RECONNECT_S = 60.0  # for so long a live stream is tried again: as long as the server keeps its session
LASTED_S = 10  # the end of a stream that was open for longer does not count as a failed try
MESSAGE_BYTES = 32 * 1024  # most audio in one message
MAX_UNSENT = 64 * MESSAGE_BYTES  # send() waits while more bytes are unsent
REFUSED = range(4400, 4500)  # close codes after which trying again will not help
PASSING_STATUS = frozenset({502, 503, 504})  # the server, or one behind a proxy, is restarting
PASSING = frozenset({"ingest_busy", "shutting_down"})  # our old connection is still open, or the server is restarting
JSON_LISTS = frozenset({"replace", "search", "known_speaker_names", "known_speaker_references"})  # items have commas
KEEP_ALIVE_S = 10
CROWDED = frozenset({"rate_limited", "concurrency_limited", "queue_full"})  # there is room again soon
MAX_RETRY_S = 60  # the longest wait that a server's Retry-After is granted
SECOND_WRITER = 4409  # an exception from REFUSED: the server may still hold our own broken connection open


DOCUMENT_TYPES: Mapping[str, str] = {
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt",
    ".txt": "text/plain",
    ".json": "application/vnd.scribewire+json",
}


class ServiceError(Exception):
    """The service refused. *status* is HTTP's or a WebSocket's close code, *code* the stable name of the problem.

    *parts* say in words what is wrong with which part of the request, where the service says so.
    """

    def __init__(self, status: int, code: str, detail: str, parts: Sequence[str] = ()) -> None:
        super().__init__(f"{code} ({status}): {detail}")
        self.status = status
        self.code = code
        self.parts = parts
        self.detail = detail


class Client:
    """A connection to the service for one account. Use it with `async with`.

    *base_url* is the server's address; add /sandbox for the sandbox. *key* is an API key of that environment. All
    methods raise ServiceError if the service refuses, and httpx.TransportError if it cannot be reached in TRIES tries.
    """

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(30, read=LONG_POLL_S + 60)
        self._http = httpx.AsyncClient(base_url=self._base_url, headers=self._headers, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def usage(self) -> dict[str, Any]:
        """What the plan allows, and what is used of it."""
        return await self._request_json("GET", "/v1/usage")

    async def transcribe(self, source: Path | str, **fields: Any) -> dict[str, Any]:
        """Transcribe *source*, a file's path or an address (https://...), and return the record of the ended job.

        *fields* are the members of POST /v1/transcribe, such as `output_formats=["srt"]` or `language="en"`. The record
        may be that of a failed job: look at its `status` and `error`. With `retention="none"` only this record has the
        results.
        """
        return await self.wait((await self.submit(source, **fields))["job_id"])

    async def submit(self, source: Path | str, *, idempotency_key: str | None = None, **fields: Any) -> dict[str, Any]:
        """Start a job like transcribe(), and return its record at once. Retries within this call make only one job.

        With an *idempotency_key* of your own, repeated calls make only one, too, for 24 h.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16), "Prefer": "respond-async"}
        if _is_address(source):
            return await self._request_json("POST", "/v1/transcribe", headers=headers, json={"url": source, **fields})
        form = {name: _form_text(value, as_json=name in JSON_LISTS) for name, value in fields.items()}
        with _open(source) as file:  # read in pieces, and from its start at every try
            return await self._request_json("POST", "/v1/transcribe", headers=headers, files={"file": file}, data=form)

    async def jobs(self, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the records of all jobs in short, the newest first. *query* as of GET /v1/jobs: status="failed"."""
        while True:
            page = await self._request_json("GET", "/v1/jobs", params=query)
            for record in page["data"]:
                yield record
            if not page["has_more"]:
                return
            query = {**query, "cursor": page["next_cursor"]}

    async def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job. Returns its record; one that is at work ends at its next chunk."""
        return await self._request_json("POST", f"/v1/jobs/{job_id}/cancel")

    async def delete(self, job_id: str, *, force: bool = False) -> None:
        """Delete a job with its outputs and events. *force*: also one that has not ended."""
        await self._send("DELETE", f"/v1/jobs/{job_id}", params={"force": str(force).lower()})

    async def job(self, job_id: str, *, wait_s: int = 0) -> dict[str, Any]:
        """Wait up to *wait_s* seconds for the end of a job, and return its record."""
        return await self._request_json("GET", f"/v1/jobs/{job_id}", params={"wait": wait_s})

    async def wait(self, job_id: str) -> dict[str, Any]:
        """Wait until the job has ended, however long that takes, and return its record."""
        while (record := await self.job(job_id, wait_s=LONG_POLL_S))["status"] not in ENDED:
            pass
        return record

    async def complete(self, job_id: str) -> dict[str, Any]:
        """Wait as wait() does, and raise ServiceError job_not_completed if the job has failed or was cancelled."""
        record = await self.wait(job_id)
        if record["status"] != "completed":
            raise ServiceError(409, "job_not_completed", (record["error"] or {"message": record["status"]})["message"])
        return record

    async def output(self, record: Mapping[str, Any], name: str) -> bytes:
        """The bytes of the output *name* (json, srt, vtt, txt or docx) of a finished *record*.

        For a job with `retention="none"` pass the record that transcribe() or wait() returned: only it has the results.
        """
        if name in record.get("outputs", {}):
            content = str(record["outputs"][name])
            return base64.b64decode(content) if name.startswith("docx") else content.encode()
        answer = await self._send("GET", record["formats"][name])
        return answer.content

    async def correct(self, job_id: str, document: bytes, suffix: str, *, force: bool = False) -> dict[str, Any]:
        """Correct a transcript by an edited *document*, whose name ends in *suffix*, one of DOCUMENT_TYPES.

        Raises ServiceError not_aligned, with `parts`, if some of it cannot be aligned with the words, unless *force*.
        """
        headers = {"Content-Type": DOCUMENT_TYPES[suffix.lower()]}
        query = {"force": str(force).lower()}
        path = f"/v1/jobs/{job_id}/corrections"
        return await self._request_json("POST", path, headers=headers, params=query, content=document)

    async def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield the events after number *after*, with their "type", until the job has ended. Resumes broken streams."""
        tries = 0
        while True:
            began = time.monotonic()
            try:
                async for seq, event in self._stream(job_id, after):
                    tries, after = 0, max(after, seq)
                    yield event
                    if event["type"] in LAST_EVENTS:
                        return
            except (httpx.TransportError, ServiceError) as error:
                if tries >= TRIES or (isinstance(error, ServiceError) and error.status not in PASSING_STATUS):
                    raise
            if time.monotonic() - began > LASTED_S:
                tries = 0  # a proxy ends streams in which nothing happens
            await asyncio.sleep(FIRST_PAUSE_S * 2**tries)
            tries = min(tries + 1, TRIES)

    @asynccontextmanager
    async def live(self, **options: Any) -> AsyncIterator["LiveStream"]:
        """Start a live session and yield its LiveStream. The session is finished when the block is left in any way.

        If the connection is refused or lost for good, the block is cancelled, and ServiceError or OSError is raised.

        *options* are the members of POST /v1/live. If *sample_rate* is left out, audio in mulaw and alaw has 8000
        samples a second, in the other raw encodings 16,000.
        """
        record = await self._request_json("POST", "/v1/live", json=options)
        stream = LiveStream(record["job_id"], record["live"]["ingest_ws"])
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stream.run(), name=f"live {stream.job_id}")
                try:
                    yield stream
                finally:
                    stream.close()
        except ExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _stream(self, job_id: str, after: int) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        async with self._http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
            if answer.is_error:
                await answer.aread()
            _check(answer)
            seq, kind = 0, ""
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    seq = int(value)
                elif name == "event":
                    kind = value
                elif name == "data":
                    yield seq, {"type": kind, **orjson.loads(value)}
                    seq, kind = 0, ""

    async def _request_json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._send(method, path, **request)).json()
        return answer

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        for tries in range(TRIES):
            try:
                answer = await self._http.request(method, path, **request)
            except httpx.TransportError:
                if tries + 1 == TRIES:
                    raise
            else:
                if tries + 1 == TRIES or not (answer.status_code in PASSING_STATUS or _is_crowded(answer)):
                    return _check(answer)
                if _is_crowded(answer) and "retry-after" in answer.headers:
                    await asyncio.sleep(min(int(answer.headers["retry-after"]), MAX_RETRY_S))
                    continue
            await asyncio.sleep(FIRST_PAUSE_S * 2**tries)
        raise AssertionError("the last try returns or raises")


class LiveStream:
    """Sends audio to a live session and receives its events. A broken connection loses nothing.

    Audio is kept until its words are final, because after a crash the server asks again for audio that it had received.
    """

    def __init__(self, job_id: str, address: str) -> None:
        self.job_id = job_id
        self._address = address
        self._kept: deque[bytes] = deque()  # audio whose words may not be final
        self._kept_from = 0  # index of the first byte that is kept
        self._sent_to = 0  # index of the next byte to send
        self._ended = False
        self._over = False
        self._news = asyncio.Event()
        self._capacity = asyncio.Condition()
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._last_seq = 0

    async def send(self, audio: bytes) -> None:
        """Send *audio*. Waits while more than MAX_UNSENT bytes are unsent, so that memory stays bounded."""
        self._kept.append(audio)
        self._news.set()
        async with self._capacity:
            await self._capacity.wait_for(lambda: self._kept_to - self._sent_to <= MAX_UNSENT or self._over)

    def close(self) -> None:
        """Note that no more audio will come. It may be called again."""
        self._ended = True
        self._news.set()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the session's events, with their "type": every logged event once, and partials as they come."""
        while (event := await self._events.get()) is not None:
            yield event

    async def run(self) -> None:
        """Send and receive until the session has ended. Client.live() calls it. Raises ServiceError, OSError."""
        tries, lost_at = 0, time.monotonic()
        try:
            while True:
                try:
                    # A server that is behind with recognition reads nothing, pings neither, until it is not.
                    async with connect(self._resume_url(), max_size=None, ping_timeout=RECONNECT_S) as socket:
                        tries = 0
                        if await self._converse(socket):
                            return
                except (OSError, InvalidHandshake, ConnectionClosed) as error:
                    if (refusal := _refusal(error)) is not None:
                        raise refusal from error
                    lost_at = lost_at if tries else time.monotonic()
                    if time.monotonic() - lost_at >= RECONNECT_S:
                        raise ConnectionError(str(error)) from error
                await asyncio.sleep(min(FIRST_PAUSE_S * 2**tries, MAX_PAUSE_S))
                tries += 1
        finally:
            self._over = True
            async with self._capacity:
                self._capacity.notify_all()
            self._events.put_nowait(None)

    @property
    def _kept_to(self) -> int:
        return self._kept_from + sum(map(len, self._kept))

    def _resume_url(self) -> str:
        return f"{self._address}&last_event_id={self._last_seq}"

    async def _converse(self, socket: ClientConnection) -> bool:
        """Use one connection until it ends. Returns whether the session has ended."""
        started = orjson.loads(await socket.recv())
        if started["type"] == "error":
            raise _error_of_frame(started["error"])
        if started["received_bytes"] < self._kept_from:
            raise ServiceError(409, "audio_gone", "the server asks for audio that it had settled before")
        self._forget_settled(started["settled_bytes"] or 0)
        self._sent_to = started["received_bytes"]
        sending = asyncio.create_task(self._send_all(socket))
        try:
            return await self._listen(socket)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed):
                await sending

    async def _listen(self, socket: ClientConnection) -> bool:
        async for frame in socket:
            event = orjson.loads(frame)
            if event["type"] == "ack":
                self._forget_settled(event["settled_bytes"] or 0)
                continue
            if event["type"] == "error":
                raise _error_of_frame(event["error"])
            self._last_seq = max(self._last_seq, event.get("seq", 0))
            self._events.put_nowait(event)
            if event["type"] in LAST_EVENTS:
                return True
        return False

    async def _send_all(self, socket: ClientConnection) -> None:
        end_sent = False
        while True:
            while (piece := self._unsent()) is not None:
                await socket.send(piece)
                self._sent_to += len(piece)
                async with self._capacity:
                    self._capacity.notify_all()
            if self._ended and not end_sent:
                await socket.send('{"type":"close"}')
                end_sent = True
            self._news.clear()
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await self._news.wait()
            except TimeoutError:
                if not end_sent:
                    await socket.send('{"type":"keep_alive"}')

    def _unsent(self) -> bytes | None:
        at = self._kept_from
        for piece in self._kept:
            if at + len(piece) > self._sent_to:
                return piece[self._sent_to - at :][:MESSAGE_BYTES]
            at += len(piece)
        return None

    def _forget_settled(self, count: int) -> None:
        """Drop audio before byte *count*. Its words are final, and the server will not ask for it again."""
        while self._kept and self._kept_from + len(self._kept[0]) <= count:
            self._kept_from += len(self._kept.popleft())


def _error_of_frame(problem: Mapping[str, Any]) -> Exception:
    """The exception for an error frame: ConnectionResetError if it is worth another try, else ServiceError."""
    if problem["code"] in PASSING:
        return ConnectionResetError(problem["detail"])
    return ServiceError(problem["status"], problem["code"], problem["detail"])


def _check(answer: httpx.Response) -> httpx.Response:
    if not answer.is_error:
        return answer
    try:
        problem = answer.json()
        parts = [part["message"] for part in problem.get("errors", ())]
        raise ServiceError(answer.status_code, problem["code"], problem["detail"], parts)
    except (ValueError, KeyError, TypeError):
        raise ServiceError(answer.status_code, "unknown", answer.reason_phrase) from None


def _refusal(error: Exception) -> ServiceError | None:
    """The refusal that ended or prevented the connection; None if another try may help."""
    if isinstance(error, InvalidStatus) and httpx.codes.is_client_error(error.response.status_code):
        return ServiceError(error.response.status_code, "unknown", error.response.reason_phrase)
    if not isinstance(error, ConnectionClosed) or error.rcvd is None:
        return None
    code, reason = error.rcvd.code, error.rcvd.reason
    return ServiceError(code, "closed", reason) if code in REFUSED and code != SECOND_WRITER else None


def _is_crowded(answer: httpx.Response) -> bool:
    """Whether the server asks to come again soon, and not in the next month."""
    if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
        return False
    try:
        return answer.json()["code"] in CROWDED
    except (ValueError, KeyError, TypeError):
        return False


def _is_address(source: Path | str) -> bool:
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def _open(source: Path | str) -> BinaryIO:
    return Path(source).open("rb")


def _form_text(value: Any, *, as_json: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence) and not isinstance(value, str) and not as_json:
        return ",".join(map(str, value))
    return orjson.dumps(value).decode() if isinstance(value, Mapping | list | tuple) else str(value)
