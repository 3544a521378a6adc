"""Translates errors of a bucket into errors of the storage."""

from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import BaseError

from server.logs import log
from server.model.errors import BlobsAway

MAX_LOGGED = 300  # characters of a report; what follows the first line repeats it

T = TypeVar("T")


def as_blobs_away(function: Callable[..., T], *arguments: object) -> T:
    """Call *function*. Raises BlobsAway for every error of obstore, which is logged."""
    try:
        return function(*arguments)
    except (BaseError, OSError, NotImplementedError) as error:  # OSError: what its writers and lookups raise
        log.warning("the bucket failed", extra={"error": str(error).partition("\n")[0][:MAX_LOGGED]})
        raise BlobsAway("the store of audio and results cannot be reached; try again") from error
