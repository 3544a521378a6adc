"""Reads request bodies: fields, and at most one file, which is written to the blob store while it arrives."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ParamSpec, TypeVar
from urllib.parse import parse_qsl

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from server.http.headers import clean_filename, extended_filename
from server.http.problems import Problem
from server.keyed_limits import KeyedTurns, NoTurn
from server.model.errors import ConcurrencyLimited, invalid_member
from server.model.jobs import Received, StoredFile
from server.storage.ports import BlobStore
from server.storage.scratch import Sink
from server.waiting import MIN_BYTES_S, in_pace

MULTIPART = "multipart/form-data"
URLENCODED = "application/x-www-form-urlencoded"
JSON = "application/json"
MEDIA_TYPES = (MULTIPART, JSON, URLENCODED)

MAX_FIELDS = 32
MAX_FIELD_BYTES = 64_000
MAX_FORM_BYTES = 1_000_000  # a body without a file
MAX_LARGE_BODY = 16_000_000  # a body without a file, or all fields of a form, of an operation with large fields
MAX_TEXT_BYTES = 2_000_000  # a JSON body with long texts, such as a prompt to estimate
MAX_VALUES = 20_000  # of a JSON body: each list and number costs work and memory, however short it is
MAX_ESCAPES = 100_000  # of a urlencoded body (a=%41): allowed text in any script needs fewer
PACE_WINDOW_S = 60.0  # within which a body must bring MIN_BYTES_S on average, or its rest
PIECE = 512 * 1024  # bytes that are gathered before a write, so that a fast upload needs few thread switches
MAX_PARTS = 256  # of a piece; they are the parts of the body as it arrived, written without being copied
PLACES = 16  # a body has up to 16 MB, and is copied while it is parsed
WAIT_S = 10.0  # longest wait for the account's place
ARRIVAL_S = 180.0  # the longest that a body may take; the largest needs 90 kB/s
LARGE_BYTES = 64 * 1024  # smaller bodies are parsed in less time than a thread takes to start

P = ParamSpec("P")
T = TypeVar("T")


class LargeBodies:
    """The places of this process for large bodies that are kept in memory while they arrive: those with recordings.

    A small body takes as much memory as a connection. A large one takes a hundred times as much, for as long as its
    client sends it. So there are few places, an account has one, and a body must arrive within ARRIVAL_S.
    """

    def __init__(self) -> None:
        self._used = 0
        self._turns = KeyedTurns()  # of accounts

    @asynccontextmanager
    async def body(self, account: str) -> AsyncIterator["Place"]:
        """A place in memory for one body, while the block lasts."""
        async with AsyncExitStack() as stack:
            yield Place(self, account, stack)

    @asynccontextmanager
    async def hold_place(self, account: str) -> AsyncIterator[asyncio.Timeout]:
        """Hold a place. The block gets the limit of the time that the body may take to arrive."""
        try:
            async with self._turns.turn(account, wait_s=WAIT_S):
                if self._used >= PLACES:
                    soon = {"Retry-After": "10", "Connection": "close"}
                    raise Problem("queue_full", "too many large bodies are arriving", headers=soon)
                self._used += 1
                limit = asyncio.timeout(ARRIVAL_S)
                try:
                    async with limit:
                        yield limit
                except TimeoutError:
                    if not limit.expired():
                        raise
                    text = f"the body took longer than {ARRIVAL_S:g} s to arrive"
                    raise Problem("request_timeout", text, headers={"Connection": "close"}) from None
                finally:
                    self._used -= 1
        except NoTurn:
            raise ConcurrencyLimited("large bodies", limit=1, used=1) from None


@dataclass(slots=True)
class Place:
    """The place of one body, if it needs one."""

    _bodies: LargeBodies
    _account: str
    _stack: AsyncExitStack
    _limit: asyncio.Timeout | None = field(default=None, init=False)

    async def claim(self) -> None:
        """Take a place, because the body is large.

        Raises ConcurrencyLimited if the account's place is not free within WAIT_S, and Problem queue_full. From now on
        until settle(), the block of LargeBodies.body() may end with Problem request_timeout.
        """
        if self._limit is None:
            self._limit = await self._stack.enter_async_context(self._bodies.hold_place(self._account))

    def settle(self) -> None:
        """Note that the body has arrived."""
        if self._limit is not None:
            self._limit.reschedule(None)


@dataclass(frozen=True, slots=True)
class Uploads:
    """Reads request bodies that may contain a file."""

    blobs: BlobStore
    large: LargeBodies = field(default_factory=LargeBodies)

    @asynccontextmanager
    async def read_body(
        self,
        request: Request,
        *,
        job_id: str,
        most: int,
        hashed: bool = False,
        raw: bool = False,
        large: frozenset[str] = frozenset(),
    ) -> AsyncIterator[Received]:
        """Read the whole body of *request*. A file of at most *most* bytes is stored durably for the job *job_id*.

        With *hashed* the file's SHA-256 is computed, which takes about as much CPU time as receiving the file. With
        *raw* the body is the file itself, unless it is JSON. *large* names the fields that may be long. Raises Problem
        invalid_json, invalid_multipart, payload_too_large, invalid_parameter, request_timeout, disk_full, and what
        Place.claim() raises.
        """
        received = Received(job_id)
        try:
            async with self.large.body(_account_of(request)) as place:
                await self._read(request, received, place, most, hashed=hashed, raw=raw, large=large)
                place.settle()
                yield received
        finally:
            if received.begun and not received.keep:
                await self.blobs.delete(job_id)

    @asynccontextmanager
    async def large_body(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body of at most MAX_LARGE_BODY bytes without a file. Raises what body_of() and Place.claim() raise."""
        async with self.large.body(_account_of(request)) as place:
            body = await self._body_without_file(request, place, MAX_LARGE_BODY)
            place.settle()
            yield body

    async def _body_without_file(self, request: Request, place: Place, most: int) -> bytes:
        body = bytearray()
        async for data in _arrivals(request):
            body += data
            if len(body) > most:
                raise _too_large(most, len(body))
            if len(body) > MAX_FORM_BYTES:
                await place.claim()
        return bytes(body)

    async def _read(
        self,
        request: Request,
        received: Received,
        place: Place,
        most: int,
        *,
        hashed: bool,
        raw: bool,
        large: frozenset[str],
    ) -> None:
        media_type, options = parse_options_header(request.headers.get("content-type", ""))
        if raw and media_type == MULTIPART.encode():
            raise Problem("unsupported_media_type", "the body must be the audio itself, or JSON with its url, no form")
        if raw and media_type != JSON.encode():
            await self._raw(request, received, most, hashed=hashed)
        elif media_type == MULTIPART.encode():
            form = _Form(options.get(b"boundary", b""), large)
            await self._multipart(request, received, place, form, most, hashed=hashed)
        elif media_type == JSON.encode():
            body = await self._body_without_file(request, place, MAX_LARGE_BODY if large else MAX_FORM_BYTES)
            received.field_bytes = len(body)
            received.fields = await off_loop(len(body), _from_json, body)
        else:
            body = await body_of(request, most=MAX_FORM_BYTES)
            received.fields = await off_loop(len(body), _from_urlencoded, body)

    async def _raw(self, request: Request, received: Received, most: int, *, hashed: bool) -> None:
        received.begun, blob = True, _source_of(received)
        async with self.blobs.create(blob, leave_reserve=True) as sink:
            file = _Incoming(sink, most, hashed=hashed)
            async for data in _arrivals(request):
                await file.write([memoryview(data)])
            await file.flush()
        received.file = StoredFile(blob, file.bytes, file.digest(), None)

    async def _multipart(
        self, request: Request, received: Received, place: Place, form: "_Form", most: int, *, hashed: bool
    ) -> None:
        blob = _source_of(received)
        async with AsyncExitStack() as stack:
            file: _Incoming | None = None
            total = 0
            async for data in _arrivals(request):
                total += len(data)
                if total > most + MAX_LARGE_BODY:
                    raise _too_large(most, total)
                form.feed(data)
                if form.field_bytes > MAX_FORM_BYTES:
                    await place.claim()
                if form.file is not None and file is None:
                    received.begun = True
                    sink = await stack.enter_async_context(self.blobs.create(blob, leave_reserve=True))
                    file = _Incoming(sink, most, hashed=hashed)
                if file is not None:
                    await file.write(form.file_bytes())
            form.close()
            if file is not None:
                await file.flush()
        received.fields, received.field_bytes = form.fields, form.field_bytes
        if file is not None:
            received.file = StoredFile(blob, file.bytes, file.digest(), clean_filename(form.file))


def _source_of(received: Received) -> str:
    return f"{received.job_id}/source"


def _account_of(request: Request) -> str:
    return str(request.scope.get("state", {}).get("account"))


class _Incoming:
    """Counts, optionally hashes, and writes a file in pieces while it arrives."""

    def __init__(self, sink: Sink, most: int, *, hashed: bool) -> None:
        self._sink = sink
        self._most = most
        self._held: list[memoryview] = []
        self._held_bytes = 0
        self._sha256 = hashlib.sha256() if hashed else None
        self.bytes = 0

    async def write(self, parts: Sequence[memoryview]) -> None:
        for part in parts:
            self._held_bytes += len(part)
            self._held.append(part)
        if self.bytes + self._held_bytes > self._most:
            raise _too_large(self._most, self.bytes + self._held_bytes)
        if self._held_bytes >= PIECE or len(self._held) >= MAX_PARTS:
            await self.flush()

    async def flush(self) -> None:
        parts, self._held = self._held, []
        self.bytes += self._held_bytes
        self._held_bytes = 0
        if self._sha256 is not None:
            for part in parts:
                self._sha256.update(part)
        await self._sink.write(*parts)

    def digest(self) -> str | None:
        return None if self._sha256 is None else self._sha256.hexdigest()


class _Form:
    """Parses multipart/form-data in any chunking into fields and the bytes of the part named file."""

    def __init__(self, boundary: bytes, large: frozenset[str]) -> None:
        """*large* names the fields that may be longer than MAX_FIELD_BYTES. Raises Problem invalid_multipart."""
        if not boundary:
            raise Problem(
                "invalid_multipart",
                "Content-Type names no boundary: leave this header to your HTTP client, which knows it",
            )
        self._large = large
        self.fields: dict[str, list[object]] = {}
        self.field_bytes = 0
        self.file: str | None = None  # once the file part has begun, its filename, "" if it has none
        with _multipart_errors():  # too long a boundary
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begin,
                    "on_header_field": self._header_name,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_done,
                    "on_part_data": self._part_data,
                    "on_part_end": self._part_end,
                    "on_end": self._end,
                },
            )
        self._opening = b"--" + boundary
        self._preamble: bytearray | None = bytearray()  # None: the first part has begun
        self._taken: list[memoryview] = []
        self._ended = False
        self._part_begin()

    def feed(self, data: bytes) -> None:
        if self._preamble is not None:
            data = self._without_preamble(data)
        with _multipart_errors():
            self._parser.write(data)

    def _without_preamble(self, data: bytes) -> bytes:
        """Return the bytes from the first boundary on; none until it has come. RFC 2046 allows any text before it."""
        assert self._preamble is not None
        unsearched = max(0, len(self._preamble) - len(self._opening) - 1)
        self._preamble += data
        begins = self._preamble.startswith(self._opening)
        at = 0 if begins else self._preamble.find(b"\r\n" + self._opening, unsearched) + 2
        if begins or at > 1:
            first, self._preamble = bytes(self._preamble[at:]), None
            return first
        if len(self._preamble) > MAX_FIELD_BYTES:
            raise Problem("invalid_multipart", f"no boundary within {MAX_FIELD_BYTES} bytes")
        return b""

    def close(self) -> None:
        if not self._ended:
            raise Problem("invalid_multipart", "the body ends before its last boundary")

    def file_bytes(self) -> list[memoryview]:
        """The bytes of the file since the last call, as views of the data that was fed."""
        taken, self._taken = self._taken, []
        return taken

    def _part_begin(self) -> None:
        self._name = ""
        self._value = bytearray()
        self._is_file = self._is_named = False
        self._header = (bytearray(), bytearray())
        self._disposition = b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_done(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise Problem("invalid_multipart", "a part has no name in its Content-Disposition")
        self._name = options[b"name"].decode("utf-8", "replace")
        self._is_named = b"filename" in options
        if self._name == "file":
            if self.file is not None:
                raise invalid_member("file", "repeated", "may be given only once")
            self._is_file = True
            named = options.get(b"filename", b"").decode("utf-8", "replace")
            self.file = named or extended_filename(self._disposition.decode("latin-1")) or ""
        elif sum(map(len, self.fields.values())) >= MAX_FIELDS:
            raise Problem("invalid_multipart", f"more than {MAX_FIELDS} fields")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._taken.append(memoryview(data)[start:end])
            return
        self._value += data[start:end]
        self.field_bytes += end - start
        if self.field_bytes > MAX_LARGE_BODY:
            raise _too_large(MAX_LARGE_BODY, self.field_bytes)
        most = MAX_LARGE_BODY if self._is_large else MAX_FIELD_BYTES
        if len(self._value) > most:
            self._check_misplaced()
            raise Problem("invalid_multipart", f"field {self._name[:100]!r} is larger than {most} bytes")

    def _part_end(self) -> None:
        if self._is_file:
            return
        try:
            self.fields.setdefault(self._name, []).append(self._value.decode("utf-8"))
        except UnicodeDecodeError:
            self._check_misplaced()
            raise invalid_member(self._name, "invalid_encoding", "must be UTF-8") from None

    def _check_misplaced(self) -> None:
        """Raise Problem missing_input if the part, which is no text of a field, is probably the recording."""
        binary = self._is_named or b"\0" in self._value
        if binary and self.file is None and not self._is_large:
            text = f"the recording belongs in the field file, not in {self._name[:100]!r}"
            raise Problem("missing_input", text)

    @property
    def _is_large(self) -> bool:
        return self._name.partition("[")[0] in self._large

    def _end(self) -> None:
        self._ended = True


@contextmanager
def _multipart_errors() -> Iterator[None]:
    """Turn the parser's errors in the block into a Problem."""
    try:
        yield
    except FormParserError as error:
        raise Problem("invalid_multipart", f"the body is no valid multipart/form-data: {error}") from None


async def _arrivals(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises Problem request_timeout, ClientDisconnect."""
    pieces = in_pace(request.stream(), window_s=PACE_WINDOW_S)
    try:
        async for data in pieces:
            yield data
    except TimeoutError:
        text = f"less than {MIN_BYTES_S // 1000} kB/s of the body arrived for {PACE_WINDOW_S:g} s"
        raise Problem("request_timeout", text, headers={"Connection": "close"}) from None


async def body_of(request: Request, *, most: int) -> bytes:
    """Read the whole body into memory. Raises Problem payload_too_large over *most* bytes, request_timeout."""
    body = bytearray()
    async for data in _arrivals(request):
        body += data
        if len(body) > most:
            raise _too_large(most, len(body))
    return bytes(body)


def parse_json(body: bytes) -> object:
    """Parse *body*. Raises Problem invalid_json, also if it has more than MAX_VALUES values."""
    if _has_many_values(body):
        raise Problem("invalid_json", f"the body has more than {MAX_VALUES} values")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem("invalid_json", f"the body is no valid JSON: {error}") from None


def _has_many_values(body: bytes) -> bool:
    """Whether *body* may have more than MAX_VALUES values, judged by its commas and opening brackets.

    Signs inside strings count only in bodies of more than MAX_TEXT_BYTES, which have recordings and no long texts.
    """
    signs = accumulate(_signs(body[at : at + PIECE]) for at in range(0, len(body), PIECE))
    if all(count <= MAX_VALUES for count in signs):
        return False
    if len(body) > MAX_TEXT_BYTES:
        return True
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return plain.count(b'"') > 4 * MAX_VALUES or sum(map(_signs, plain.split(b'"')[::2])) > MAX_VALUES


def _signs(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def json_object(body: bytes) -> dict[str, object]:
    """Parse *body* as a JSON object; an empty body is an empty object. Raises Problem invalid_json."""
    if not body.strip():
        return {}
    value = parse_json(body)
    if not isinstance(value, dict):
        raise Problem("invalid_json", "the body must be a JSON object")
    if len(value) > MAX_FIELDS:
        raise Problem("invalid_json", f"the body has more than {MAX_FIELDS} members")
    return value


def _from_json(body: bytes) -> dict[str, list[object]]:
    return {name: [value] for name, value in json_object(body).items()}


def _from_urlencoded(body: bytes) -> dict[str, list[object]]:
    if body.count(b"%") > MAX_ESCAPES:
        raise Problem("invalid_multipart", f"the body has more than {MAX_ESCAPES} escapes")
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        text = f"the body is no form with an address: {error}. Send a recording as the field file of {MULTIPART}"
        raise Problem("invalid_multipart", text) from None
    fields: dict[str, list[object]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def _too_large(limit: int, actual: int) -> Problem:
    return Problem(
        "payload_too_large",
        f"the body is larger than {limit} bytes",
        headers={"Connection": "close"},
        members={"limit": limit, "actual": actual},
    )


async def off_loop(size: int, parse: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *parse*; on a thread if the *size* of its input, in bytes, would hold up the event loop."""
    if size <= LARGE_BYTES:
        return parse(*given, **named)
    return await asyncio.to_thread(parse, *given, **named)
