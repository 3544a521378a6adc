"""The estimate request: its members, its bounds, and how JSON or a query string is parsed into it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

MAX_TURNS = 200
MAX_MODELS = 100
MAX_PROMPT_BYTES = 2_000_000
MAX_TOKENS = 10_000_000
"""The most tokens that a caller may declare as output or system prompt: ten times the largest known window."""
MAX_AUDIO_S = 31_536_000
"""The longest recording that hosted transcription is priced for: a year."""
LONGEST_ID = 200
"""The most characters of a model id; the longest in the price table has 72, with its provider."""

COMPLEXITIES = ("low", "medium", "high")
CACHES = ("auto", "off")
REASONINGS = ("auto", "off", "high")

_MAX_UNKNOWN = 8  # unknown members worth a warning each
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


class EstimateError(Exception):
    """The base of all errors that this package raises about a request or a price table."""

    code: ClassVar[str] = "internal"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a request. *pointer* is a JSON pointer (RFC 6901); *message* says what is allowed."""

    param: str
    pointer: str
    code: str
    message: str


class InvalidRequest(EstimateError):
    """The request has missing or invalid members; *problems* names all of them."""

    code = "invalid_parameter"

    def __init__(self, problems: Iterable[Fault]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


class UnknownModels(InvalidRequest):
    """None of the requested models has a price; *problems* gives a reason and suggestions for each."""

    code = "unknown_models"


class PromptTooLong(EstimateError):
    """The prompt has more bytes than this caller may send."""

    code = "prompt_too_long"

    def __init__(self, *, limit: int, actual: int) -> None:
        super().__init__(f"prompt: {actual} bytes of UTF-8, allowed are {limit}")
        self.limit = limit
        self.actual = actual


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """A valid request. Whether its models exist is checked later, by the catalogue."""

    prompt: str
    models: tuple[str, ...] = ()  # empty: the whole default catalogue
    complexity: str = "medium"  # of COMPLEXITIES
    agent_turns: int = 1  # 1..MAX_TURNS
    cache: str = "auto"  # of CACHES
    reasoning: str = "auto"  # of REASONINGS
    output_tokens: int | None = None  # visible tokens per call, instead of the guess by complexity
    system_tokens: int = 0  # sent with every call in addition to the prompt, in the provider's own count
    priced_at: datetime | None = None  # aware, UTC; None: when the estimate is made
    audio_seconds: Decimal | None = None  # of a recording, to compare hosted transcription
    unknown_members: tuple[str, ...] = ()  # ignored with a warning, because they may be misspelt


def parse_request(body: object, *, max_prompt_bytes: int = MAX_PROMPT_BYTES) -> EstimateRequest:
    """Return the request in *body*, a decoded JSON value. A member that is null counts as absent.

    Raises InvalidRequest, which names every fault at once, and PromptTooLong. No message contains any of the prompt.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest([Fault("", "", "wrong_type", f"the body must be a JSON object, got {_kind(body)}")])
    members: dict[str, Any] = {}
    problems = [] if "prompt" in body else [Fault("prompt", "/prompt", "missing", "prompt: is required")]
    for name, parse in _PARSERS.items():
        if name in body and (body[name] is not None or name == "prompt"):
            try:
                members[name] = parse(body[name])
            except _Wrong as wrong:
                problems += [Fault(name, f"/{name}{at}", code, f"{name}: {rule}") for at, code, rule in wrong.faults]
    if problems:
        raise InvalidRequest(problems)
    request = EstimateRequest(**members, unknown_members=_unknown(body))
    if (size := len(request.prompt.encode())) > max_prompt_bytes:
        raise PromptTooLong(limit=max_prompt_bytes, actual=size)
    return request


def parse_query(query: Mapping[str, str], prompt: str) -> EstimateRequest:
    """Return the request in *query*: a URL's query or a command line's options, all text, *models* separated by commas.

    Raises the same errors as parse_request().
    """
    body: dict[str, object] = {**query, "prompt": prompt}
    if (models := query.get("models")) is not None:
        body["models"] = [name for name in (part.strip() for part in models.split(",")) if name]
    for member in ("agent_turns", "output_tokens", "system_tokens"):
        if _WHOLE.fullmatch(query.get(member, "")):
            body[member] = int(query[member])
    if _SECONDS.fullmatch(seconds := query.get("audio_seconds", "")):
        body["audio_seconds"] = float(seconds)
    return parse_request(body)


# --- parsers of one member: a JSON value -> the value of EstimateRequest; _Wrong if it cannot be used -----------------


class _Wrong(Exception):
    """A value cannot be used. Each fault is a JSON pointer below the member, a code, and what is allowed."""

    def __init__(self, *faults: tuple[str, str, str]) -> None:
        super().__init__(*faults)
        self.faults = faults


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(("", "wrong_type", f"must be a string, got {_kind(value)}"))
    if not _encodable(value):
        raise _Wrong(("", "invalid_unicode", "holds a lone surrogate, which is not a character"))
    return value


def _ids(values: object) -> tuple[str, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise _Wrong(("", "wrong_type", f"must be a list of model ids, got {_kind(values)}"))
    if len(values) > MAX_MODELS:
        raise _Wrong(("", "too_many", f"allows {MAX_MODELS} ids, got {len(values)}"))
    faults = []
    for index, value in enumerate(values):
        if not isinstance(value, str):
            faults.append((f"/{index}", "wrong_type", f"must hold strings only, got {_kind(value)}"))
        elif not value.strip() or len(value) > LONGEST_ID or not _encodable(value):
            rule = f"a model id has 1 to {LONGEST_ID} characters and is not blank"
            faults.append((f"/{index}", "invalid_value", rule))
    if faults:
        raise _Wrong(*faults)
    return tuple(values)


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        code = "unknown_value" if isinstance(value, str) else "wrong_type"
        raise _Wrong(("", code, f"must be one of {', '.join(allowed)}, got {_show(value)}"))

    return parse


def _whole(minimum: int, maximum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        bounds = f"from {minimum} to {maximum}, got {_show(value)}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Wrong(("", "wrong_type", f"must be a whole number {bounds}"))
        if not minimum <= value <= maximum:
            raise _Wrong(("", "out_of_range", f"must be {bounds}"))
        return value

    return parse


def _time(value: object) -> datetime:
    """Return the UTC time that *value* is in RFC 3339."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        with suppress(ValueError, OverflowError):  # no such day, or one outside years 1..9999 in UTC
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
    raise _Wrong(("", "invalid_value", f"must be a time like 2026-11-20T12:00:00Z, got {_show(value)}"))


def _seconds(value: object) -> Decimal:
    rule = f"must be a number of seconds above 0, at most {MAX_AUDIO_S}, got {_show(value)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(("", "wrong_type", rule))
    if not 0 < value <= MAX_AUDIO_S:
        raise _Wrong(("", "out_of_range", rule))
    return Decimal(str(value))


_PARSERS: Mapping[str, Callable[[object], object]] = {
    "prompt": _text,
    "models": _ids,
    "complexity": _one_of(COMPLEXITIES),
    "agent_turns": _whole(1, MAX_TURNS),
    "cache": _one_of(CACHES),
    "reasoning": _one_of(REASONINGS),
    "output_tokens": _whole(1, MAX_TOKENS),
    "system_tokens": _whole(0, MAX_TOKENS),
    "priced_at": _time,
    "audio_seconds": _seconds,
}
MEMBERS = frozenset(_PARSERS)
"""The names of the members of a request."""


def _unknown(body: Mapping[object, object]) -> tuple[str, ...]:
    names = [str(name) for name in body if name not in MEMBERS]
    return tuple(name[:64].encode(errors="replace").decode() for name in names[:_MAX_UNKNOWN])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    kinds = ((bool, "a boolean"), (int | float, "a number"), (str, "a string"), (Mapping, "an object"))
    return "null" if value is None else next((kind for type_, kind in kinds if isinstance(value, type_)), "a list")


def _show(value: object) -> str:
    """Return the value if it is short and harmless, else only its kind."""
    if isinstance(value, str) and len(value) <= 40:  # noqa: PLR2004  longer is noise in a message
        return ascii(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**15:
        return str(value)
    return _kind(value)
