"""Checks at the start whether a bucket grants this installation the rights that it needs, and explains if not."""

import re
import secrets
from collections.abc import Callable

import obstore
from obstore.store import S3Store

from server.model.errors import BlobsAway, StorageError
from server.storage.s3.errors import as_blobs_away

STATUS = re.compile(r"status code: (4\d\d)")
CODE = re.compile(r"(?:<Code>|\(code: )(\w+)")
FOR_NOW = frozenset({"408", "429"})  # statuses after which a client is meant to try again
DENIED = "AccessDenied"  # also of single names in a list of deletions, which as a whole succeeds
WRONG_KEY = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"})
INSTANCE = "169.254.169.254"  # gives the credentials of an instance's role; it is asked if none are set


def check(bucket: S3Store) -> None:
    """List names, then write, read and delete an empty blob. It blocks.

    Raises StorageError with a sentence for the operator if the bucket refuses any of it, and BlobsAway if it does not
    answer or is overloaded.
    """
    key = f"check-{secrets.token_hex(8)}"
    _try(bucket, "list names", lambda: next(iter(obstore.list(bucket)), None))
    _try(bucket, "write", lambda: obstore.put(bucket, key, b"", use_multipart=False))
    _try(bucket, "read", lambda: obstore.get(bucket, key).bytes())
    _try(bucket, "delete", lambda: obstore.delete(bucket, key))


def _try(bucket: S3Store, what: str, ask: Callable[[], object]) -> None:
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
