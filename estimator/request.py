"""The estimate request: its members, its bounds, and how JSON or a query string is parsed into it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar, TypeVar

MAX_TURNS = 200
MAX_MODELS = 100
MAX_PROMPT_BYTES = 2_000_000
MAX_TOKENS = 10_000_000
"""The most tokens that a caller may declare as output or system prompt: ten times the largest known window."""
LONGEST_ID = 200
"""The most characters of a model id; the longest in the price table has 72, with its provider."""

COMPLEXITIES = ("low", "medium", "high")
CACHES = ("auto", "off")
REASONINGS = ("auto", "off", "high")

_NUMBERS = ("agent_turns", "output_tokens", "system_tokens")
_MAX_UNKNOWN = 8  # unknown members worth a warning each
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_MONEY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_WHOLE = re.compile(r"[0-9]{1,18}")

Choice = TypeVar("Choice")


class EstimateError(Exception):
    """The base of all errors that this package raises about a request or a price table."""

    code: ClassVar[str] = "internal"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request. *pointer* is RFC 6901; *message* says what is allowed."""

    param: str
    pointer: str
    code: str
    message: str


class InvalidRequest(EstimateError):
    """The request has missing or invalid members; *problems* names all of them."""

    code = "invalid_parameter"

    def __init__(self, problems: Sequence[Fault]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


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
    system_tokens: int = 0  # sent with every call beside the prompt, in the provider's own count
    priced_at: datetime | None = None  # aware, UTC; None: when the estimate is made
    budget_usd: Decimal | None = None  # > 0
    unknown_members: tuple[str, ...] = ()  # ignored with a warning, because they may be misspelt


_MEMBERS = frozenset(one.name for one in fields(EstimateRequest)) - {"unknown_members"}


def parse_request(
    body: object, *, max_prompt_bytes: int = MAX_PROMPT_BYTES, max_models: int = MAX_MODELS
) -> EstimateRequest:
    """Return the request in *body*, a decoded JSON value. A member that is null counts as absent.

    Raises InvalidRequest, which names every fault at once, and PromptTooLong. No message contains any of the prompt.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest([Fault("", "", "wrong_type", f"the body must be a JSON object, got {_kind(body)}")])
    members = _Members(body)
    prompt = members.text("prompt")
    request = EstimateRequest(
        prompt=prompt,
        models=members.ids("models", limit=max_models),
        complexity=members.choice("complexity", COMPLEXITIES, "medium"),
        agent_turns=members.whole("agent_turns", 1, minimum=1, maximum=MAX_TURNS),
        cache=members.choice("cache", CACHES, "auto"),
        reasoning=members.choice("reasoning", REASONINGS, "auto"),
        output_tokens=members.whole("output_tokens", None, minimum=1, maximum=MAX_TOKENS),
        system_tokens=members.whole("system_tokens", 0, minimum=0, maximum=MAX_TOKENS),
        priced_at=members.time("priced_at"),
        budget_usd=members.money("budget_usd"),
        unknown_members=_unknown(body),
    )
    if members.problems:
        raise InvalidRequest(members.problems)
    if (size := len(prompt.encode())) > max_prompt_bytes:
        raise PromptTooLong(limit=max_prompt_bytes, actual=size)
    return request


def parse_query(query: Mapping[str, str], prompt: str, *, max_prompt_bytes: int = MAX_PROMPT_BYTES) -> EstimateRequest:
    """Return the request in *query*: a URL's query or a command line's options, all text, *models* separated by commas.

    Raises the same errors as parse_request().
    """
    body: dict[str, object] = {**query, "prompt": prompt}
    if (models := query.get("models")) is not None:
        body["models"] = [name for name in (part.strip() for part in models.split(",")) if name]
    for member in _NUMBERS:
        if _WHOLE.fullmatch(query.get(member, "")):
            body[member] = int(query[member])
    return parse_request(body, max_prompt_bytes=max_prompt_bytes)


class _Members:
    """Reads the members one by one. It collects problems, and returns a harmless value for a member that has one."""

    def __init__(self, body: Mapping[object, object]) -> None:
        self._body = body
        self.problems: list[Fault] = []

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if name not in self._body:
            self._refuse(name, "missing", "is required")
        elif not isinstance(value, str):
            self._refuse(name, "wrong_type", f"must be a string, got {_kind(value)}")
        elif not _encodable(value):
            self._refuse(name, "invalid_unicode", "holds a lone surrogate, which is not a character")
        else:
            return value
        return ""

    def ids(self, name: str, *, limit: int) -> tuple[str, ...]:
        values = self._body.get(name)
        if values is None:
            return ()
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            self._refuse(name, "wrong_type", f"must be a list of model ids, got {_kind(values)}")
            return ()
        if len(values) > limit:
            self._refuse(name, "too_many", f"allows {limit} ids, got {len(values)}")
            return ()
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self._refuse(name, "wrong_type", f"must hold strings only, got {_kind(value)}", f"/{index}")
            elif not value.strip() or len(value) > LONGEST_ID or not _encodable(value):
                rule = f"a model id has 1 to {LONGEST_ID} characters and is not blank"
                self._refuse(name, "invalid_value", rule, f"/{index}")
        return tuple(value for value in values if isinstance(value, str))

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self._body.get(name)
        if value is None or value in allowed:
            return default if value is None else str(value)
        code = "unknown_value" if isinstance(value, str) else "wrong_type"
        self._refuse(name, code, f"must be one of {', '.join(allowed)}, got {_show(value)}")
        return default

    def whole(self, name: str, default: Choice, *, minimum: int, maximum: int) -> int | Choice:
        value = self._body.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(name, "wrong_type", f"must be a whole number from {minimum} to {maximum}, got {_show(value)}")
        elif not minimum <= value <= maximum:
            self._refuse(name, "out_of_range", f"must be from {minimum} to {maximum}, got {_show(value)}")
        else:
            return value
        return default

    def time(self, name: str) -> datetime | None:
        value = self._body.get(name)
        if value is None:
            return None
        moment = _parse_time(value) if isinstance(value, str) else None
        if moment is None:
            self._refuse(name, "invalid_value", f"must be a time like 2026-11-20T12:00:00Z, got {_show(value)}")
        return moment

    def money(self, name: str) -> Decimal | None:
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, str) and _MONEY.fullmatch(value) and (amount := Decimal(value)) > 0:
            return amount
        self._refuse(name, "invalid_value", f'must be USD as a string like "2.50", above 0, got {_show(value)}')
        return None

    def _refuse(self, name: str, code: str, rule: str, below: str = "") -> None:
        self.problems.append(Fault(name, f"/{name}{below}", code, f"{name}: {rule}"))


def _parse_time(text: str) -> datetime | None:
    """Return the UTC time that *text* is in RFC 3339, or None if it is not a time."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or one outside years 1..9999 in UTC
        return None


def _unknown(body: Mapping[object, object]) -> tuple[str, ...]:
    names = [str(name) for name in body if name not in _MEMBERS]
    return tuple(name[:64].encode(errors="replace").decode() for name in names[:_MAX_UNKNOWN])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def _show(value: object) -> str:
    """Return the value if it is short and harmless, else only its kind."""
    if isinstance(value, str) and len(value) <= 40:  # noqa: PLR2004  longer is noise in a message
        return ascii(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**15:
        return str(value)
    return _kind(value)
