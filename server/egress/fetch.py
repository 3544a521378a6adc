"""Downloads audio from an address that a client named into the blob store.

Some sources compress although they are asked for the bytes as they are, so a Content-Encoding is undone.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote, urljoin

import httpx

from server.egress.guard import Egress, Unresolvable
from server.egress.targets import Target, TargetNotAllowed
from server.http.headers import clean_filename, disposition_filename
from server.model.orders import Source
from server.storage.ports import BlobStore
from server.waiting import MIN_BYTES_S, in_pace

MAX_REDIRECTS = 10  # podcasts count their listeners by five to eight of them
TOTAL_S = 300.0
PACE_WINDOW_S = 30.0  # within which a source must send at least MIN_BYTES_S on average
TIMEOUTS = httpx.Timeout(30.0, connect=10.0)
USER_AGENT = "scribewire/1"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which another attempt may succeed

WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}
"""The codings that are undone, and zlib's numbers for each; some send deflate without its header."""

GZIP = b"\x1f\x8b"

PIECE_BYTES = 65_536
"""The most that is decompressed at once: a piece of an attack may hold a thousand times its own size."""

_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)


class FetchError(Exception):
    """The audio could not be downloaded. *code* says why, *retryable* whether another attempt may help."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class FaultyCoding(Exception):
    """The answer's coding is not known, or its bytes are not of that coding. The message says so to the client."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Downloads audio for the workers."""

    egress: Egress
    blobs: BlobStore

    async def fetch(self, source: Source, *, asker: str, blob: str, most: int) -> Source:
        """Download source.url to *blob*, at most *most* bytes, and return the source with its size and file name.

        *asker* is the account that named the address. Raises FetchError, DiskFull.
        """
        try:
            async with asyncio.timeout(TOTAL_S):
                return await self._follow(source, asker, blob, most)
        except TimeoutError:
            raise FetchError("source_timeout", f"the source took longer than {TOTAL_S:.0f} s", retryable=True) from None
        except httpx.TimeoutException:
            raise FetchError("source_timeout", "the source did not answer in time", retryable=True) from None
        except TargetNotAllowed as error:
            raise FetchError("source_not_allowed", str(error)) from None
        except (httpx.TransportError, Unresolvable) as error:
            raise FetchError(
                "source_unreachable", f"the source cannot be reached: {_why(error)}", retryable=True
            ) from None

    async def _follow(self, source: Source, asker: str, blob: str, most: int) -> Source:
        target = self.egress.parse(source.url or "")
        for _ in range(MAX_REDIRECTS + 1):
            async with self.egress.request(
                "GET", target, asker=asker, headers={"User-Agent": USER_AGENT, "Accept": "*/*"}, timeouts=TIMEOUTS
            ) as response:
                if response.status_code not in REDIRECTS:
                    size = await self._keep(response, blob, most)
                    name = disposition_filename(response.headers.get("content-disposition", ""))
                    name = clean_filename(name) or clean_filename(unquote(target.resource.partition("?")[0]))
                    return replace(source, bytes=size, filename=name)
                target = self._redirect_target(target, response)
        raise FetchError("source_http_error", f"more than {MAX_REDIRECTS} redirects")

    def _redirect_target(self, target: Target, response: httpx.Response) -> Target:
        location = response.headers.get("location")
        if not location:
            raise FetchError("source_http_error", f"status {response.status_code} without a Location")
        try:
            onward = self.egress.parse(_onward(target, location.strip().replace(" ", "%20")))  # as browsers do
        except ValueError:
            raise FetchError("source_http_error", "the source redirects to what is no URL") from None
        if target.scheme == "https" and onward.scheme != "https":
            raise FetchError("source_not_allowed", "a redirect from https to http is not followed")
        return onward

    async def _keep(self, response: httpx.Response, blob: str, most: int) -> int:
        if response.status_code != httpx.codes.OK:
            raise FetchError(
                "source_http_error",
                f"the source answered with status {response.status_code}",
                retryable=response.status_code in PASSING,
            )
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        size = 0
        pieces = decoded(
            in_pace(response.aiter_raw(), window_s=PACE_WINDOW_S), response.headers.get("content-encoding", "")
        )
        try:
            async with self.blobs.create(blob, leave_reserve=True) as sink:
                async for piece in pieces:
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    await sink.write(piece)
        except FaultyCoding as error:
            raise FetchError("source_http_error", str(error)) from None
        except TimeoutError:
            text = f"the source sends less than {MIN_BYTES_S // 1000} kB/s"
            raise FetchError("source_timeout", text, retryable=True) from None
        return size


def _onward(target: Target, location: str) -> str:
    """Return the URL to which *location* leads from *target*. What is written out stays byte for byte.

    Raises ValueError if it is no URL.
    """
    joined = urljoin(target.url, location)
    if _ABSOLUTE.match(location):
        return location
    is_path = location.startswith("/") and not location.startswith("//")
    return f"{target.scheme}://{target.authority}{location}" if is_path else joined


def _too_large(most: int) -> FetchError:
    return FetchError("source_too_large", f"the source has more than {most} bytes")


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


async def decoded(pieces: AsyncIterator[bytes], coding: str) -> AsyncIterator[bytes]:
    """Yield the bytes that *pieces* stand for, in pieces of their own. *coding* is the answer's Content-Encoding.

    Raises FaultyCoding, and what *pieces* raises.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        async for piece in pieces:
            yield piece
        return
    if name not in WINDOWS:
        raise FaultyCoding(f"the source sends its bytes in the coding {name[:40]!r}; only gzip and deflate are undone")
    unpacking = _Unpacking(name)
    async for piece in pieces:
        for unpacked in unpacking.unpack(piece):
            yield unpacked
    if not unpacking.ended:
        raise FaultyCoding(f"the source breaks off within its {name} data")


class _Unpacking:
    def __init__(self, name: str) -> None:
        self._name = name
        self._windows = [*WINDOWS[name]]
        self._unpacker = zlib.decompressobj(self._windows[0])

    @property
    def ended(self) -> bool:
        return self._unpacker.eof

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield what *data* completes. What stands behind the end of the data is ignored."""
        full = False  # then there may be more of what was taken
        while data or full:
            if self.ended:
                if not data.startswith(GZIP):  # of which several may be joined
                    return
                self._unpacker = zlib.decompressobj(self._windows[0])
            try:
                unpacked = self._unpacker.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                if len(self._windows) == 1:
                    raise FaultyCoding(
                        f"the source says that its bytes are {self._name}, which they are not"
                    ) from error
                del self._windows[0]
                self._unpacker = zlib.decompressobj(self._windows[0])
                continue
            del self._windows[1:]
            data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            full = len(unpacked) == PIECE_BYTES and not self.ended
            if unpacked:
                yield unpacked
