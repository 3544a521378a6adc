"""Opens a bucket. Credentials, region and endpoint come from AWS_* variables or the instance's role."""

import ipaddress
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store

from server.model.errors import StorageError
from server.storage.s3.blobs import BucketBlobs

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

CLIENT: "ClientConfig" = {
    "allow_http": True,  # open_bucket() refuses it for public addresses
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=15),  # of silence
    "timeout": timedelta(hours=12),  # of a whole answer: a slow client may take long over a long recording
}
RETRIES: "RetryConfig" = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=10),  # from the first request on
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


def open_bucket(url: str, scratch: Path, *, env: Mapping[str, str]) -> BucketBlobs:
    """The blobs at *url* (s3://bucket or s3://bucket/prefix). It sends no request yet.

    *scratch*: a folder for files without a name.
    *env*: the environment of this process. obstore reads it too.

    Raises StorageError if *url* has another form, or if audio would travel to a public address unencrypted.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or parts.username:
        raise StorageError("the store of audio and results must be s3://bucket or s3://bucket/prefix")
    endpoint = next((env[name] for name in ENDPOINTS if env.get(name)), "")
    if endpoint.startswith("http:") and _is_public(urlsplit(endpoint).hostname or ""):
        raise StorageError("the endpoint of the bucket must be https, because its address is public")
    try:
        bucket = S3Store(
            parts.netloc, prefix=parts.path.strip("/") or None, client_options=CLIENT, retry_config=RETRIES
        )
    except (BaseError, ValueError) as error:
        raise StorageError(f"the bucket {parts.netloc} cannot be used: {str(error).partition(chr(10))[0]}") from None
    return BucketBlobs(bucket, scratch)


def _is_public(host: str) -> bool:
    """Whether *host* is, or resolves to, a public address. False for a name that does not resolve."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(ipaddress.ip_address(address[0]).is_global for *_, address in found)
