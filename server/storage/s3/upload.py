"""The upload of one blob into a bucket. Everything here blocks, and raises obstore's errors."""

import secrets

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from server.model.errors import BlobExists

PART_BYTES = 5 * 1024 * 1024  # a larger blob is sent in parts of this size: the smallest that S3 takes, 10,000 at most
PARTS_AT_ONCE = 1  # in addition to the one being filled: an upload holds 10 MiB of memory
WRITER = "writer"  # in the blob's metadata: which upload made it


class Upload:
    """Keeps a blob in memory up to PART_BYTES; a larger one is sent as a multipart upload.

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
                self._put()
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

    def _put(self) -> None:
        obstore.put(
            self._bucket,
            self._key,
            bytes(self._held),
            attributes={WRITER: self._mark},
            mode="create",
            use_multipart=False,
        )

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
