"""Parses and writes HTTP header fields and file names.

Each parser takes any text, and returns a value or raises the one error that it names. It ignores a malformed field if
its RFC says so.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from python_multipart.multipart import parse_options_header

from server.model.accounts import WindowUse
from server.model.errors import Refused, RequestError

MAX_IDEMPOTENCY_CHARS = 255
MAX_FILENAME_BYTES = 255  # the usual limit of file systems
WARNING = "Scribewire-Warning"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  RFC 9110's token, no secret
_LIST_ITEM = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*"?)+')
_PREFERENCE = re.compile(rf'[ \t]*({_TOKEN})[ \t]*(?:=[ \t]*(?:(?:({_TOKEN})|"((?:[^"\\]|\\.)*)")[ \t]*)?)?(?:;.*)?')
_SECONDS = re.compile(r"[0-9]{1,9}")
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_RANGE = re.compile(r"bytes=[ \t,]*([0-9]{0,999})-([0-9]{0,999})[ \t,]*", re.IGNORECASE)
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '"%\\')
_UNSAFE = re.compile(r'[\\/:*?"<>|%\x00-\x1f\x7f]')
_SUFFIX = re.compile(r"(?<=.)\.[A-Za-z0-9]{1,5}$")
_ATTRIBUTE_SIGNS = "!#$&+^`|"
_EXTENDED_NAME = re.compile(r""";[ \t]*filename\*[ \t]*=[ \t]*"?(utf-8|iso-8859-1)'[^']*'([^ \t;"]+)""", re.IGNORECASE)
_ENTITY_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')


# --- Prefer (RFC 7240) -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preference:
    """The preferences of a request."""

    respond_async: bool = False
    wait_s: int | None = None  # as requested, without an upper bound


def preference(headers: Iterable[str]) -> Preference:
    """Parse the Prefer *headers* of a request. If a preference is given twice, the first counts."""
    given: dict[str, str] = {}
    for header in headers:
        for item in _LIST_ITEM.findall(header):
            if match := _PREFERENCE.fullmatch(item):
                given.setdefault(match[1].lower(), match[2] or match[3] or "")
    wait = given.get("wait", "")
    return Preference("respond-async" in given, int(wait) if _SECONDS.fullmatch(wait) else None)


# --- Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07) ------------------------------------------------


def idempotency_key(header: str) -> str:
    """Parse an Idempotency-Key header, with or without quotes. Raises Refused invalid_idempotency_key."""
    text = header.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        text = re.sub(r"\\(.)", r"\1", quoted[1])
    elif text.startswith('"'):
        raise Refused(
            "invalid_idempotency_key", "a quoted Idempotency-Key must end with its quote and escape only quotes"
        )
    if not _PRINTABLE.fullmatch(text) or len(text) > MAX_IDEMPOTENCY_CHARS:
        raise Refused(
            "invalid_idempotency_key", f"an Idempotency-Key has 1 to {MAX_IDEMPOTENCY_CHARS} printable ASCII characters"
        )
    return text


# --- Range, If-Range, If-None-Match (RFC 9110) ---------------------------------------------------------------------


class RangeNotSatisfiable(RequestError):
    """The range begins after the last byte. Ask for a range within the *size* bytes, or for all of them."""

    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"there are {size} bytes")
        self.size = size

    @property
    def content_range(self) -> str:
        return f"bytes */{self.size}"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes [start, stop) of content with *size* bytes; at least one byte."""

    start: int
    stop: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"


def byte_range(header: str, size: int) -> ByteRange | None:
    """The range of *size* bytes that *header* asks for; None if the answer must have all bytes.

    All bytes are sent for other units, malformed headers and several ranges, as RFC 9110 section 14.2 allows, and if
    *size* is 0. Raises RangeNotSatisfiable.
    """
    match = _RANGE.fullmatch(header.strip(" \t"))
    first, last = match.groups() if match is not None else ("", "")
    if size == 0 or not (first or last):
        return None
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(size)
    return ByteRange(start, stop, size)


def range_still_holds(if_range: str | None, etag: str) -> bool:
    """Whether the answer may have a range: only without If-Range, or if it names the present content.

    Weak tags and dates prove nothing, and this service sends no dates.
    """
    return if_range is None or (if_range.strip(" \t") == etag and not etag.startswith("W/"))


def none_match(headers: Iterable[str], etag: str) -> bool:
    """Whether If-None-Match *headers* contain *etag* (weak comparison), so that the answer is 304."""
    header = ",".join(headers).strip(" \t")
    return header == "*" or etag.removeprefix("W/") in {tag for _, tag in _ENTITY_TAG.findall(header)}


# --- file names --------------------------------------------------------------------------------------------------


def clean_filename(name: str | None) -> str | None:
    """The last part of the path *name*, without invisible characters, cut to MAX_FILENAME_BYTES of UTF-8.

    None if nothing is left. Marks that change the direction of writing are removed too, because with them `gpj.exe` is
    shown backwards.
    """
    shown = "".join(c for c in name or "" if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    last = re.split(r"[/\\]", shown)[-1].strip()
    cut = last.encode()[:MAX_FILENAME_BYTES].decode(errors="ignore").strip()
    return None if cut in ("", ".", "..") else cut


def attachment(recording: str | None, extension: str, *, otherwise: str) -> str:
    """The Content-Disposition of a download: the stem of the name of its *recording*, or *otherwise*, and *extension*.

    Signs that a file system or a header may not take become _. A name with others than ASCII's is sent twice, for old
    clients without their marks (RFC 6266).
    """
    stem = _UNSAFE.sub("_", _SUFFIX.sub("", clean_filename(recording) or "")).strip(" .")
    stem = stem.encode()[: MAX_FILENAME_BYTES - len(extension) - 1].decode(errors="ignore").strip(" .")
    name = f"{stem or otherwise}.{extension}"
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode().strip(" ._")
    header = f'attachment; filename="{plain or otherwise}.{extension}"'
    return header if name.isascii() else f"{header}; filename*=UTF-8''{quote(name, safe=_ATTRIBUTE_SIGNS)}"


def disposition_filename(disposition: str) -> str | None:
    """The name in a Content-Disposition: that of `filename*` rather than that of `filename`; None without one."""
    if (extended := extended_filename(disposition)) is not None:
        return extended
    _, options = parse_options_header(disposition)
    return options.get(b"filename", b"").decode("utf-8", "replace") or None


def extended_filename(disposition: str) -> str | None:
    """The name in `filename*` of a Content-Disposition (RFC 8187), which is percent-encoded; None without one."""
    match = _EXTENDED_NAME.search(disposition)
    return unquote(match[2], encoding=match[1], errors="replace") if match is not None else None


# --- warnings ----------------------------------------------------------------------------------------------------


def warning_headers(warnings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The header Scribewire-Warning, which lists warnings, each with its param or message (RFC 9651); {} without any.

    Characters that a header cannot contain are percent-encoded.
    """
    shown = [";".join((one["code"], *_warning_parameter(one))) for one in warnings]
    return {WARNING: ", ".join(shown)} if shown else {}


def _warning_parameter(warning: Mapping[str, str]) -> Iterator[str]:
    name = next((name for name in ("param", "message") if name in warning), None)
    if name is not None:
        yield f'{name}="{quote(warning[name], safe=_PLAIN)}"'


# --- limits ---


def seconds_until(instant: int, now: int) -> int:
    """Whole seconds until *instant* has passed, at least 1, for Retry-After."""
    return max(1, -(-(instant - now) // 1000))


def limit_headers(windows: Sequence[WindowUse], *, now: int) -> dict[str, str]:
    """RateLimit headers (draft-ietf-httpapi-ratelimit-headers-11) for all *windows*, X-RateLimit-* for the tightest.

    The tightest is the one that refused, else the one with the fewest requests left. {} without windows.
    """
    if not windows:
        return {}
    tightest = min(windows, key=lambda window: (window.allowed, window.remaining))
    return {
        "RateLimit-Policy": ", ".join(f'"{s.name}";q={s.limit};w={s.window_s}' for s in windows),
        "RateLimit": ", ".join(f'"{s.name}";r={s.remaining};t={seconds_until(s.resets_at, now)}' for s in windows),
        "X-RateLimit-Limit": str(tightest.limit),
        "X-RateLimit-Remaining": str(tightest.remaining),
        "X-RateLimit-Reset": str(-(-tightest.resets_at // 1000)),
        "X-RateLimit-Resource": tightest.name,
    }
