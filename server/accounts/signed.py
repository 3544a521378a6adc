"""What the server hands out and later believes because it signed it: stream tokens, download links, list cursors.

All are HMAC-SHA256 under one of the server's signing keys. The signed text starts with what it is for, so none can
pass for another. Whatever text comes back, it is believed or refused with one of the errors below; signatures are
compared in constant time, and before anything else of the text is judged.
"""

import base64
import hmac
import re
from enum import StrEnum

from server.model.accounts import SigningKeys
from server.model.errors import RequestError, WrongScope

TAG_BYTES = 16  # of the 32 that HMAC-SHA256 gives: enough (RFC 2104, section 5), and the text stays short

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_EXPIRY = re.compile(r"[0-9]{1,12}")


class MalformedToken(RequestError):
    """Not a stream token that this server made. Ask POST /v1/tokens for one."""

    code = "invalid_token"


class TokenExpired(RequestError):
    """A stream token of this server whose time is over. Ask for a new one."""

    code = "invalid_token"


class WrongJob(RequestError):
    """A valid stream token, but of another job. Ask for one of this job."""

    code = "insufficient_scope"


class BadSignature(RequestError):
    """The link was changed or is not of this server. Take it from the job record again."""

    code = "invalid_signature"


class LinkExpired(RequestError):
    """The link was good, but its time is over. Take a fresh one from the job record."""

    code = "url_expired"


class InvalidCursor(RequestError):
    """Not a cursor this server gave to this caller. Start again from the first page."""

    code = "invalid_cursor"


class Scope(StrEnum):
    EVENTS = "events"  # read what a job says
    INGEST = "ingest"  # write a live job's audio


# --- stream tokens -----------------------------------------------------------------------------------------------


def make_token(keys: SigningKeys, *, job_id: str, scope: Scope, expires_s: int) -> str:
    """A token good for this job and scope until the second *expires_s* (since 1970, exclusive)."""
    return "st_" + _seal(keys, "token", f"{job_id}\n{scope}\n{expires_s}")


def check_token(keys: SigningKeys, token: str, *, job_id: str, scope: Scope, now_s: float) -> None:
    """Returns iff make_token() made *token* for this job and scope and it still holds.

    Raises MalformedToken, TokenExpired, WrongJob, WrongScope.
    """
    content = _unseal(keys, "token", token.removeprefix("st_")) if token.startswith("st_") else None
    if content is None:
        raise MalformedToken("this is no stream token of this server")
    its_job, its_scope, expires_s = content.split("\n")
    if now_s >= int(expires_s):
        raise TokenExpired("this stream token has expired")
    if its_job != job_id:
        raise WrongJob("this stream token belongs to another job")
    if its_scope != scope:
        raise WrongScope(f"this stream token is for {its_scope}, not for {scope}", needed=scope)


# --- download links ----------------------------------------------------------------------------------------------


def link_query(keys: SigningKeys, path: str, *, expires_s: int) -> str:
    """The query that lets anyone GET *path* until the second *expires_s* (since 1970, exclusive)."""
    signature = _link_signature(keys.secrets[keys.current], path, str(expires_s))
    return f"exp={expires_s}&kid={keys.current}&sig={signature}"


def check_link(keys: SigningKeys, path: str, *, exp: str, kid: str, sig: str, now_s: float) -> None:
    """Returns iff link_query() made exactly these for *path* and they still hold. Raises BadSignature, LinkExpired."""
    secret = keys.secrets.get(kid)
    if secret is None or not hmac.compare_digest(_bytes(_link_signature(secret, path, exp)), _bytes(sig)):
        raise BadSignature("the signature of this link does not match")
    if _EXPIRY.fullmatch(exp) is None:
        raise BadSignature("this link names no time")
    if now_s >= int(exp):
        raise LinkExpired("this link has expired")


def _link_signature(secret: bytes, path: str, exp: str) -> str:
    return _base64url(hmac.digest(secret, _bytes(f"v1\nGET\n{path}\n{exp}"), "sha256"))


# --- cursors -----------------------------------------------------------------------------------------------------


def make_cursor(keys: SigningKeys, *, owner: str, created_at: int, job_id: str) -> str:
    """An opaque text that stands for the row (created_at, job_id) in *owner*'s list."""
    return _seal(keys, f"cursor of {owner}", f"{created_at}\n{job_id}")


def read_cursor(keys: SigningKeys, cursor: str, *, owner: str) -> tuple[int, str]:
    """The (created_at, job_id) that make_cursor() was given for this owner. Raises InvalidCursor."""
    content = _unseal(keys, f"cursor of {owner}", cursor)
    if content is None:
        raise InvalidCursor("this cursor was not given out for this list")
    created_at, job_id = content.split("\n")
    return int(created_at), job_id


# --- the common part: base64url(tag + "kid\ncontent") --------------------------------------------------------------


def _seal(keys: SigningKeys, purpose: str, content: str) -> str:
    signed = f"{keys.current}\n{content}".encode()
    return _base64url(_tag(keys.secrets[keys.current], purpose, signed) + signed)


def _unseal(keys: SigningKeys, purpose: str, text: str) -> str | None:
    """The content that _seal() was given for this purpose, None for anything else."""
    data = _base64url_bytes(text)
    tag, signed = data[:TAG_BYTES], data[TAG_BYTES:]
    kid, _, content = signed.partition(b"\n")
    secret = keys.secrets.get(kid.decode(errors="replace"))
    if secret is None or not hmac.compare_digest(tag, _tag(secret, purpose, signed)):
        return None
    return content.decode()


def _tag(secret: bytes, purpose: str, signed: bytes) -> bytes:
    return hmac.digest(secret, b"v1\n" + _bytes(purpose) + b"\n" + signed, "sha256")[:TAG_BYTES]


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # a broken text from outside must be refused, not crash


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _base64url_bytes(text: str) -> bytes:
    """What _base64url() made *text* of; nothing where it did not make it, also for one of another spelling."""
    if _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        return b""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if _base64url(data) == text else b""
