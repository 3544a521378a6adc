"""Signs text that clients send back later, and checks it: stream tokens, credentials, download links, list cursors.

The signatures are HMAC-SHA256 with one of the server's signing keys. The signed text begins with its purpose, so a
token of one kind is never valid as another kind. Any text is either accepted or refused with one of the errors below.
The signature is compared first, in constant time, before any other part of the text is read.
"""

import base64
import binascii
import hmac
import re
from enum import StrEnum

from server.model.accounts import SigningKeys
from server.model.errors import Refused, WrongScope

AFTER_END = "+"  # marks a time that counts from the job's end
TAG_BYTES = 16  # of HMAC-SHA256's 32, so that tokens are short; enough according to RFC 2104, section 5

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_EXPIRY = re.compile(r"[0-9]{1,12}")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Scope(StrEnum):
    """What a stream token allows."""

    EVENTS = "events"  # read a job's events
    INGEST = "ingest"  # write a live job's audio
    EDIT = "edit"  # correct a job's transcript


# --- stream tokens -----------------------------------------------------------------------------------------------


def make_token(
    keys: SigningKeys, *, job_id: str, scope: Scope, expires_s: int | None = None, after_end_s: int | None = None
) -> str:
    """A token for this job and scope. It expires at the second *expires_s* (since 1970).

    With *after_end_s* in its place it expires so many seconds after the job's end.
    """
    until = str(expires_s) if after_end_s is None else f"{AFTER_END}{after_end_s}"
    return "st_" + _seal(keys, "token", f"{job_id}\n{scope}\n{until}")


def check_token(keys: SigningKeys, token: str, *, job_id: str, scope: Scope, now_s: float) -> int | None:
    """Raise an error unless make_token() made *token* for this job and scope and it is still valid.

    Returns the seconds after the job's end at which it expires, if it was made so: the caller knows that end. The
    errors are WrongScope and Refused invalid_token, insufficient_scope.
    """
    content = _unseal(keys, "token", token.removeprefix("st_")) if token.startswith("st_") else None
    if content is None:
        raise Refused("invalid_token", "This is no stream token of this server. Make a new one.")
    its_job, its_scope, until = content.split("\n")
    after_end_s = int(until.removeprefix(AFTER_END)) if until.startswith(AFTER_END) else None
    if after_end_s is None and now_s >= int(until):
        raise token_expired()
    if its_job != job_id:
        raise Refused("insufficient_scope", "This stream token belongs to another job. Make one for this job.")
    if its_scope != scope and (its_scope, scope) != (Scope.EDIT, Scope.EVENTS):  # who may correct may read
        raise WrongScope(f"This stream token is for {its_scope}. Make one for {scope}.", needed=scope)
    return after_end_s


def token_expired() -> Refused:
    return Refused("invalid_token", "This stream token has expired. Make a new one.")


def repeatable_chance(keys: SigningKeys, request: str) -> bytes:
    """32 bytes that nobody else can compute: the same for the same *request*, so that its answer need not be stored."""
    return hmac.digest(keys.secrets[keys.current], f"repeatable\n{request}".encode(), "sha256")


# --- channels ----------------------------------------------------------------------------------------------------


def make_channel_token(keys: SigningKeys, channel_id: str) -> str:
    """A token to read this channel. It does not expire: deleting the channel ends it."""
    return "ct_" + _seal(keys, "channel", channel_id)


def check_channel_token(keys: SigningKeys, token: str, *, channel_id: str) -> None:
    """Raise Refused invalid_token unless make_channel_token() made *token* for this channel."""
    if not token.startswith("ct_") or _unseal(keys, "channel", token.removeprefix("ct_")) != channel_id:
        raise Refused("invalid_token", "This is no token of this channel. GET /v1/channels gives its address.")


# --- credentials in place of an API key ----------------------------------------------------------------------------

CLIENT_SECRET = "ek_"  # noqa: S105  a prefix
"""The prefix of a browser's credential that contains the configuration of a session."""
GRANT = "gt_"
"""The prefix of a browser's short-lived credential."""
OWNER = "ow_"
"""The prefix of the cookie of the machine's owner."""
_PURPOSES = {CLIENT_SECRET: "client secret", GRANT: "grant", OWNER: "owner's cookie"}


def make_credential(keys: SigningKeys, kind: str, *, key_hash: bytes, expires_s: int, said: str = "") -> str:
    """A credential that stands for the API key with this hash. It expires at the second *expires_s* (since 1970).

    *kind* is CLIENT_SECRET, GRANT or OWNER. read_credential() returns the text *said*.
    """
    return kind + _seal(keys, _PURPOSES[kind], f"{key_hash.hex()}\n{expires_s}\n{said}")


def read_credential(keys: SigningKeys, kind: str, text: str, *, now_s: float) -> tuple[bytes, str]:
    """The hash of the API key and the text that make_credential() was given. Raises Refused invalid_token."""
    content = _unseal(keys, _PURPOSES[kind], text.removeprefix(kind))
    if content is None:
        raise Refused("invalid_token", f"This is no {_PURPOSES[kind]} of this server. Get a new one.")
    key_hash, expires_s, *said = content.split("\n", 2)  # older grants have no text
    if now_s >= int(expires_s):
        raise Refused("invalid_token", f"This {_PURPOSES[kind]} has expired. Get a new one.")
    return bytes.fromhex(key_hash), "".join(said)


# --- download links ----------------------------------------------------------------------------------------------


def link_query(keys: SigningKeys, path: str, *, expires_s: int) -> str:
    """A query with which *path* can be requested without a key. It expires at the second *expires_s* (since 1970)."""
    signature = _link_signature(keys.secrets[keys.current], path, str(expires_s))
    return f"exp={expires_s}&kid={keys.current}&sig={signature}"


def check_link(keys: SigningKeys, path: str, *, exp: str, kid: str, sig: str, now_s: float) -> None:
    """Raise Refused invalid_signature or url_expired unless link_query() made these for *path* and they are valid."""
    secret = keys.secrets.get(kid)
    if secret is None or not hmac.compare_digest(_bytes(_link_signature(secret, path, exp)), _bytes(sig)):
        raise Refused(
            "invalid_signature", "The signature of this link does not match. The job's record gives a new one."
        )
    if _EXPIRY.fullmatch(exp) is None:
        raise Refused("invalid_signature", "This link names no time. The job's record gives a new one.")
    if now_s >= int(exp):
        raise Refused("url_expired", "This link has expired. The job's record gives a new one.")


def _link_signature(secret: bytes, path: str, exp: str) -> str:
    return _base64url(hmac.digest(secret, _bytes(f"v1\nGET\n{path}\n{exp}"), "sha256"))


# --- cursors -----------------------------------------------------------------------------------------------------


def make_cursor(keys: SigningKeys, *, owner: str, created_at: int, job_id: str) -> str:
    """An opaque cursor for the row (created_at, job_id) in *owner*'s list."""
    return _seal(keys, f"cursor of {owner}", f"{created_at}\n{job_id}")


def read_cursor(keys: SigningKeys, cursor: str, *, owner: str) -> tuple[int, str]:
    """The (created_at, job_id) that make_cursor() was given for this owner. Raises Refused invalid_cursor."""
    content = _unseal(keys, f"cursor of {owner}", cursor)
    if content is None:
        raise Refused("invalid_cursor", "This cursor was not given out for this list. Begin with the first page.")
    created_at, job_id = content.split("\n")
    return int(created_at), job_id


# --- the common part: base64url(tag + "kid\ncontent") --------------------------------------------------------------


def _seal(keys: SigningKeys, purpose: str, content: str) -> str:
    signed = f"{keys.current}\n{content}".encode()
    return _base64url(_tag(keys.secrets[keys.current], purpose, signed) + signed)


def _unseal(keys: SigningKeys, purpose: str, text: str) -> str | None:
    """The content that _seal() made into *text* for this purpose; None if it did not make *text*."""
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
    return text.encode(errors="surrogatepass")  # broken text from clients must be refused, not raise


def _base64url(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE, b"=").decode()


def _base64url_bytes(text: str) -> bytes:
    """The bytes that _base64url() encoded as *text*; empty for other text."""
    if _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        return b""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if _base64url(data) == text else b""
