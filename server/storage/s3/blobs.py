"""The BlobStore in a bucket, where a blob appears under its name complete or not at all.

Only obstore's blocking functions are used, on our threads. Its coroutines use a thread of their own, which may still
need the interpreter while Python exits, and then the process aborts.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from server.logs import log
from server.model.errors import BlobExists, BlobsAway, NoSuchBlob, StorageError
from server.storage.scratch import PIECE_BYTES, PRIVATE_FOLDER, HalfWritten, Sink, check_key, run_in, sweep

THREADS = 64  # each waits for one answer of the bucket
PAGE = 1000  # what a bucket lists in one answer
MAX_LISTED = 20 * PAGE  # blobs that one call looks at
PART_BYTES = 5 * 1024 * 1024  # a larger blob is sent in parts of this size: the smallest that S3 takes, 10,000 at most
PARTS_AT_ONCE = 1  # in addition to the one being filled: an upload holds 10 MiB of memory
WRITER = "writer"  # in the blob's metadata: which upload made it
MAX_LOGGED = 300  # characters of a report; what follows the first line repeats it
STATUS = re.compile(r"status code: (4\d\d)")
CODE = re.compile(r"(?:<Code>|\(code: )(\w+)")
FOR_NOW = frozenset({"408", "429"})  # statuses after which a client is meant to try again
DENIED = "AccessDenied"  # also of single names in a list of deletions, which as a whole succeeds
WRONG_KEY = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"})
INSTANCE = "169.254.169.254"  # gives the credentials of an instance's role; it is asked if none are set

T = TypeVar("T")


class BucketBlobs:
    """Blobs in *bucket*. Copies for local() and recordings without a name are in the folder *scratch*."""

    def __init__(self, bucket: S3Store, scratch: Path) -> None:
        self._bucket = bucket
        self._scratch = scratch
        scratch.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        self._threads = ThreadPoolExecutor(THREADS, "storage-bucket")
        self._listing = Listing(bucket)
        sweep(scratch)

    @property
    def scratch(self) -> Path:
        return self._scratch

    def check(self) -> None:
        """List names, then write, read and delete an empty blob. It blocks.

        Raises StorageError with a sentence for the operator if the bucket refuses any of it, and BlobsAway if it does
        not answer or is overloaded.
        """
        bucket, key = self._bucket, f"check-{secrets.token_hex(8)}"
        _try(bucket, "list names", lambda: next(iter(obstore.list(bucket)), None))
        _try(bucket, "write", lambda: obstore.put(bucket, key, b"", use_multipart=False))
        _try(bucket, "read", lambda: obstore.get(bucket, key).bytes())
        _try(bucket, "delete", lambda: obstore.delete(bucket, key))

    @asynccontextmanager
    async def create(self, key: str, *, leave_reserve: bool = False) -> AsyncIterator[Sink]:  # noqa: ARG002  no disk
        upload = Upload(self._bucket, check_key(key))
        try:
            yield Sink(upload.write, self._ask)
            await self._ask(upload.finish)
        except BaseException:
            await self._discard(upload)
            raise

    async def size(self, key: str) -> int | None:
        return await self._ask(size_of, self._bucket, check_key(key))

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        pieces = await self._ask(_pieces, self._bucket, check_key(key), start, stop)
        while (piece := await self._ask(next, pieces, b"")) != b"":
            yield piece

    @asynccontextmanager
    async def local(self, key: str) -> AsyncIterator[Path]:
        copy = HalfWritten(self._scratch)
        try:
            await run_in(self._threads, copy.open)
            async with aclosing(self.read(key)) as pieces:
                async for piece in pieces:
                    await run_in(self._threads, copy.write, piece)
            yield copy.path
        finally:
            await run_in(self._threads, copy.discard)

    async def delete(self, prefix: str) -> None:
        await self._ask(_delete, self._bucket, check_key(prefix))

    async def prefixes(self) -> list[tuple[str, int]]:
        return await self._ask(self._listing.go_on)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _discard(self, upload: "Upload") -> None:
        """Delete what *upload* sent. If the bucket is away, its rule for unfinished uploads deletes it later."""
        try:
            await self._ask(upload.discard)
        except Exception:  # noqa: BLE001  the caller gets the error that ended the block
            log.warning("an unfinished upload could not be taken back", exc_info=True)

    async def _ask(self, function: Callable[..., T], *arguments: object) -> T:
        """Run *function* in a thread, to its end even if cancelled. Raises BlobsAway for the bucket's errors."""
        return await run_in(self._threads, as_blobs_away, function, *arguments)


class Listing:
    """Lists the names in *bucket*, which may be millions, a part at a time. After the last it begins again."""

    def __init__(self, bucket: S3Store, *, most: int = MAX_LISTED, page: int = PAGE) -> None:
        self._bucket = bucket
        self._most = most
        self._page = page
        self._after: str | None = None

    def go_on(self) -> list[tuple[str, int]]:
        """The next top-level prefixes with the instant of their last change, ms since 1970 UTC. It blocks."""
        found: dict[str, int] = {}
        seen, last = 0, None
        for page in obstore.list(self._bucket, offset=self._after, chunk_size=self._page):
            for blob in page:
                last = blob["path"]
                name = last.partition("/")[0]
                found[name] = max(found.get(name, 0), round(blob["last_modified"].timestamp() * 1000))
            seen += len(page)
            if seen >= self._most:
                break
        self._after = self._next_start(found, last) if seen >= self._most else None
        return sorted(found.items())

    @staticmethod
    def _next_start(found: dict[str, int], last: str | None) -> str | None:
        """Where the next call begins: at the last prefix, which is removed from *found* as it may be incomplete."""
        if last is None or len(found) == 1:
            return last
        name = last.partition("/")[0]
        del found[name]
        return name


def _pieces(bucket: S3Store, key: str, start: int, stop: int | None) -> Iterator[bytes]:
    """Request the bytes [start, stop) and yield them in pieces of at most PIECE_BYTES. Raises NoSuchBlob at once."""
    try:
        if stop is None:
            found = obstore.get(bucket, key, options={"range": {"offset": start}} if start else {})
        else:
            found = obstore.get(bucket, key, options={"range": (start, stop)})
    except FileNotFoundError:
        raise NoSuchBlob(key) from None
    except BaseError:  # buckets refuse ranges that are empty or begin behind the end
        size = size_of(bucket, key)
        if size is None:
            raise NoSuchBlob(key) from None
        if start < size and (stop is None or start < stop):
            raise
        return iter(())
    chunks = found.stream(min_chunk_size=PIECE_BYTES)
    return (chunk[at : at + PIECE_BYTES] for chunk in chunks for at in range(0, len(chunk), PIECE_BYTES))


def _delete(bucket: S3Store, prefix: str) -> None:
    names = [one["path"] for page in obstore.list(bucket, prefix) for one in page]
    obstore.delete(bucket, [prefix, *names])


class Upload:
    """The upload of one blob: kept in memory up to PART_BYTES; a larger one is sent as a multipart upload.

    Its methods block, and raise obstore's errors.

    A multipart upload that nobody completes is invisible. A process that is killed leaves its parts in the bucket
    until the bucket's rule for unfinished uploads deletes them.
    """

    def __init__(self, bucket: S3Store, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._mark = secrets.token_hex(16)
        self._held = bytearray()
        self._parts: obstore.WritableFile | None = None
        self._stored = False

    def write(self, *parts: bytes | memoryview) -> None:
        if self._parts is not None:
            self._parts.write(b"".join(parts))
            return
        for part in parts:
            self._held += part
        if len(self._held) > PART_BYTES:
            self._parts = obstore.open_writer(
                self._bucket,
                self._key,
                attributes={WRITER: self._mark},
                buffer_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
            self._parts.write(bytes(self._held))
            self._held.clear()

    def finish(self) -> None:
        """Store the blob under its name. Raises BlobExists.

        It first asks whether the name is taken, because a multipart upload cannot be completed on condition that it is
        free, and some services support no conditions at all. If the answer to the last request is lost, the mark in the
        stored blob's metadata shows whether it is this one.
        """
        if size_of(self._bucket, self._key) is not None:
            raise BlobExists(f"{self._key} is already stored")
        try:
            if self._parts is not None:
                self._parts.close()
            else:
                obstore.put(
                    self._bucket,
                    self._key,
                    bytes(self._held),
                    attributes={WRITER: self._mark},
                    mode="create",
                    use_multipart=False,
                )
        except (AlreadyExistsError, PreconditionError):
            if not self._is_mine():
                raise BlobExists(f"{self._key} is already stored") from None
        except (BaseError, OSError):
            if not self._is_mine():
                raise
        self._stored = True

    def discard(self) -> None:
        """Delete the parts that were sent, and the blob itself if its name was already given."""
        if self._stored:
            obstore.delete(self._bucket, self._key)
        elif self._parts is not None and not self._parts.closed():
            self._parts.__exit__(Abandoned, Abandoned(), None)

    def _is_mine(self) -> bool:
        try:
            found = obstore.get(self._bucket, self._key, options={"head": True})
        except FileNotFoundError:
            return False
        return found.attributes.get(WRITER) == self._mark


class Abandoned(Exception):
    """Makes obstore's writer abort the upload instead of completing it."""


def size_of(bucket: S3Store, key: str) -> int | None:
    """The size of a blob; None if there is none."""
    try:
        return obstore.head(bucket, key)["size"]
    except FileNotFoundError:
        return None


def as_blobs_away(function: Callable[..., T], *arguments: object) -> T:
    """Call *function*. Raises BlobsAway for every error of obstore, which is logged."""
    try:
        return function(*arguments)
    except (BaseError, OSError, NotImplementedError) as error:  # OSError: what its writers and lookups raise
        log.warning("the bucket failed", extra={"error": str(error).partition("\n")[0][:MAX_LOGGED]})
        raise BlobsAway("the store of audio and results cannot be reached; try again") from error


def _try(bucket: S3Store, what: str, ask: Callable[[], object]) -> None:
    """Call *ask*. Raises StorageError if the bucket does not grant the right to *what*, and BlobsAway."""
    try:
        as_blobs_away(ask)
    except BlobsAway as away:
        why = _refusal(str(bucket.config["bucket"]), what, str(away.__cause__))
        if why is None:
            raise
        raise StorageError(why) from away


def _refusal(name: str, what: str, report: str) -> str | None:
    """The operator's sentence for an error *report* of obstore that will not pass by itself; None for all others."""
    if INSTANCE in report:
        return (
            f"there are no credentials for the bucket {name}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
            "this machine a role"
        )
    if "configured region" in report:
        return f"AWS_REGION is not the region of the bucket {name}"
    status, code = STATUS.search(report), CODE.search(report)
    reason = code[1] if code is not None else "it says no reason"
    if reason != DENIED and (status is None or status[1] in FOR_NOW):
        return None
    if reason == "NoSuchBucket":
        return f"the bucket {name} does not exist"
    if reason in WRONG_KEY:
        return f"the bucket {name} does not accept the credentials ({reason})"
    return f"the bucket {name} does not let this server {what} ({reason})"
