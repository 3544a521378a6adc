"""Says what bytes are that are no recording, from what people send in place of one. Pure."""

import re

_LATER_PIECE = re.compile(rb"\x1f\x43\xb6\x75|....(moof|mdat|styp|sidx)", re.DOTALL)  # of WebM and of fragmented MP4
_DATA_URL = re.compile(rb"\s*data:[^,]{0,200};\s*base64,", re.IGNORECASE)
_BASE64 = re.compile(rb"\s*[A-Za-z0-9+/_=\r\n-]{64,}\s*")
_MARKUP = re.compile(rb"(\xef\xbb\xbf)?\s*<[!?a-z]", re.IGNORECASE)
_JSON = re.compile(rb"\s*[{\[]\s*[\"{\[\]}]")
_NAMES = {
    _LATER_PIECE: "a later piece of a recording: send all of it, or each piece with a header",
    _DATA_URL: "a data URL: send the bytes that it stands for",
    _BASE64: "base64 text: send the bytes that it stands for",
    _MARKUP: "a page of HTML or XML: is the address that of a recording?",
    _JSON: "JSON: is the address that of a recording?",
}


def foreign_name(head: bytes) -> str | None:
    """Return what a file is that begins with *head*, and what to do; None if that is not known."""
    return next((name for pattern, name in _NAMES.items() if pattern.match(head)), None)
