"""The BlobStore in a bucket, where a blob appears under its name complete or not at all.

Only obstore's blocking functions are used, on our threads. Its coroutines use a thread of their own, which may still
need the interpreter while Python exits, and then the process aborts.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from server.logs import log
from server.model.errors import NoSuchBlob
from server.storage.ports import Sink
from server.storage.s3.checking import check
from server.storage.s3.errors import as_blobs_away
from server.storage.s3.upload import Upload, size_of
from server.storage.scratch import PIECE_BYTES, HalfWritten, ThreadSink, check_key, run_in, sweep

THREADS = 64  # each waits for one answer of the bucket
PRIVATE_FOLDER = 0o700
PAGE = 1000  # what a bucket lists in one answer
MAX_LISTED = 20 * PAGE  # blobs that one call looks at

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
        """See checking.check()."""
        check(self._bucket)

    @asynccontextmanager
    async def create(self, key: str, *, leave_reserve: bool = False) -> AsyncIterator[Sink]:  # noqa: ARG002  no disk
        upload = Upload(self._bucket, check_key(key))
        try:
            yield ThreadSink(upload.write, self._ask)
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

    async def _discard(self, upload: Upload) -> None:
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
