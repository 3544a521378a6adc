"""A transcription request -> Order. Form parts, urlencoded pairs and JSON members arrive as lists of values.

Everything that is wrong is said at once, each with the member's name; names that mean nothing are warned of, so that
a typing error is seen and a newer client still works.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import orjson

from server.model.errors import FieldError, Refused, invalid
from server.model.offers import Offer
from server.model.orders import (
    CHANNELS,
    ENCODINGS,
    ENDPOINTING_MS,
    FORMATS,
    MOST_METADATA_CHARS,
    MOST_METADATA_KEYS,
    MOST_PROMPT_CHARS,
    MOST_URL_CHARS,
    RATES,
    SCENARIOS,
    TELEPHONE_ENCODINGS,
    TELEPHONE_RATE,
    UTTERANCE_S,
    WEBHOOK_EVENTS,
    LiveOptions,
    Order,
)

Fields: TypeAlias = Mapping[str, Sequence[object]]
"""Member name -> every value given for it: text from forms, any JSON value from JSON."""

T = TypeVar("T")
D = TypeVar("D")


COMMON = frozenset({"output_formats", "language", "model", "prompt", "webhook_url", "webhook_events", "metadata"})
LIVE_ONLY = frozenset({*LiveOptions.__slots__, "word_timestamps"})
FILE_ONLY = frozenset({"file", "url", "audio_url", "word_timestamps", "wait", "sandbox_scenario", "schema"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request: the order, where the audio is, how long the client wants to wait (None: not said)."""

    order: Order
    url: str | None
    wait_s: int | None
    warnings: tuple[Mapping[str, str], ...]


class _Wrong(Exception):
    """A value cannot be used; *code* and message go into a FieldError."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Members:
    """Takes members out of *fields* one by one and remembers what was wrong."""

    fields: Fields
    errors: list[FieldError] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Was it given at all? JSON's null stands for a member left out."""
        return any(value is not None for value in self.fields.get(name, ()))

    def take(self, name: str, parse: Callable[[Sequence[object]], T], default: D) -> T | D:
        values = [value for value in self.fields.get(name, ()) if value is not None]
        if not values:
            return default
        try:
            return parse(values)
        except _Wrong as wrong:
            self.errors.append(FieldError(name, wrong.code, str(wrong)))
            return default


def parse_order(fields: Fields, *, offer: Offer, sandbox: bool, has_file: bool) -> Asked:
    """Raises Refused: missing_input, ambiguous_input, invalid_parameter."""
    members = Members(fields)
    url, twin = members.take("url", _url, None), members.take("audio_url", _url, None)
    given = members.has("url") + members.has("audio_url") + has_file
    if given > 1:
        raise Refused("ambiguous_input", "give exactly one of file, url and audio_url")
    order = common_order(
        members,
        offer=offer,
        word_timestamps=members.take("word_timestamps", _boolean, False),
        scenario=members.take("sandbox_scenario", _one_of(SCENARIOS), None) if sandbox else None,
    )
    wait_s = members.take("wait", whole_seconds, None)
    members.take("schema", _one_of(("service_v1",)), None)
    if members.errors:
        raise invalid(members.errors)
    if not given:
        raise Refused("missing_input", "give the audio as a multipart part named file, or its address as url")
    known = COMMON | FILE_ONLY
    return Asked(
        order,
        twin if url is None else url,
        wait_s,
        unknown_members(fields, known if sandbox else known - {"sandbox_scenario"}),
    )


def parse_live_order(fields: Fields, *, offer: Offer) -> tuple[Order, tuple[Mapping[str, str], ...]]:
    """The order of a live session and what to warn of. Raises Refused invalid_parameter."""
    members = Members(fields)
    default = LiveOptions()
    encoding = members.take("encoding", _one_of(ENCODINGS), default.encoding)
    usual_rate = TELEPHONE_RATE if encoding in TELEPHONE_ENCODINGS else default.sample_rate
    live = LiveOptions(
        encoding=encoding,
        sample_rate=members.take("sample_rate", _whole_in(RATES), usual_rate),
        channels=members.take("channels", _whole_in(CHANNELS), default.channels),
        interim_results=members.take("interim_results", _boolean, default.interim_results),
        endpointing_ms=members.take("endpointing_ms", _whole_in(ENDPOINTING_MS), default.endpointing_ms),
        max_utterance_s=members.take("max_utterance_s", _number_in(*UTTERANCE_S), default.max_utterance_s),
        record=members.take("record", _boolean, default.record),
    )
    timed = members.take("word_timestamps", _boolean, True)  # live words have their times anyway
    order = common_order(members, offer=offer, word_timestamps=timed)
    if members.errors:
        raise invalid(members.errors)
    return replace(order, live=live), unknown_members(fields, COMMON | LIVE_ONLY)


def common_order(
    members: Members,
    *,
    offer: Offer,
    word_timestamps: bool,
    scenario: str | None = None,
) -> Order:
    """The members that files and live sessions share."""
    webhook_url = members.take("webhook_url", _url, None)
    events = members.take("webhook_events", _subset(WEBHOOK_EVENTS), ())
    if events and not members.has("webhook_url"):
        members.errors.append(FieldError("webhook_events", "missing_companion", "needs webhook_url"))
    return Order(
        output_formats=members.take("output_formats", _subset(FORMATS), ("json",)),
        word_timestamps=word_timestamps,
        language=members.take("language", _language(offer), None),
        model=members.take("model", _one_of((offer.model,)), None),
        prompt=members.take("prompt", _text_up_to(MOST_PROMPT_CHARS), ""),
        webhook_url=webhook_url,
        webhook_events=(events or WEBHOOK_EVENTS) if webhook_url else (),
        metadata=members.take("metadata", _metadata, {}),
        scenario=scenario,
    )


def unknown_members(fields: Fields, known: Collection[str]) -> tuple[Mapping[str, str], ...]:
    return tuple({"code": "unknown_parameter", "param": name[:100]} for name in fields if name not in known)


# --- parsers: every value given for one member -> the value; _Wrong when it cannot be used ---------------------------


def _single(values: Sequence[object]) -> object:
    if len(values) > 1:
        raise _Wrong("repeated", "may be given only once")
    return values[0]


def _text(values: Sequence[object]) -> str:
    value = _single(values)
    if not isinstance(value, str):
        raise _Wrong("invalid_type", "must be a string")
    return value


def _text_up_to(most: int) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        text = _text(values)
        if len(text) > most:
            raise _Wrong("too_long", f"must have at most {most} characters, got {len(text)}")
        return text

    return parse


def _url(values: Sequence[object]) -> str | None:
    return _text_up_to(MOST_URL_CHARS)(values)


def _boolean(values: Sequence[object]) -> bool:
    value = _single(values)
    if isinstance(value, bool):
        return value
    try:
        return {"true": True, "1": True, "false": False, "0": False}[str(value).strip().lower()]
    except KeyError:
        raise _Wrong("invalid_type", "must be true or false") from None


def whole_seconds(values: Sequence[object]) -> int:
    """A whole number of seconds, not negative; the caller clamps it."""
    value = str(_single(values)).strip()
    if not (value.isascii() and value.isdecimal() and len(value) <= 9):  # noqa: PLR2004  nine digits: 31 years
        raise _Wrong("invalid_type", "must be a whole number of seconds")
    return int(value)


def _whole_in(allowed: range) -> Callable[[Sequence[object]], int]:
    def parse(values: Sequence[object]) -> int:
        value = _single(values)
        if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
            raise _Wrong("out_of_range", f"must be a whole number from {allowed[0]} to {allowed[-1]}")
        return value

    return parse


def _number_in(least: float, most: float) -> Callable[[Sequence[object]], float]:
    def parse(values: Sequence[object]) -> float:
        value = _single(values)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise _Wrong("out_of_range", f"must be a number from {least:g} to {most:g}")
        return float(value)

    return parse


def _one_of(allowed: Sequence[str]) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        value = _text(values).strip().lower()
        for candidate in allowed:
            if candidate.lower() == value:
                return candidate
        raise _Wrong("unknown_value", f"unknown value {value[:100]!r}; allowed: {', '.join(allowed)}")

    return parse


def _language(offer: Offer) -> Callable[[Sequence[object]], str]:
    def parse(values: Sequence[object]) -> str:
        value = _text(values).strip().lower()
        if value not in offer.languages:
            raise _Wrong("unknown_value", offer.refusal(value))
        return value

    return parse


def _subset(allowed: Sequence[str]) -> Callable[[Sequence[object]], tuple[str, ...]]:
    """A comma list, a repeated member or a JSON array; trimmed, case-insensitive, without repeats."""

    def parse(values: Sequence[object]) -> tuple[str, ...]:
        parts: dict[str, None] = {}
        for value in values:
            for item in value if isinstance(value, list) else [value]:
                if not isinstance(item, str):
                    raise _Wrong("invalid_type", "must be a list of strings")
                parts.update((part.strip().lower(), None) for part in item.split(",") if part.strip())
        for part in parts:
            if part not in allowed:
                raise _Wrong("unknown_value", f"unknown value {part[:100]!r}; allowed: {', '.join(allowed)}")
        if not parts:
            raise _Wrong("empty", f"must name at least one of {', '.join(allowed)}")
        return tuple(parts)

    return parse


def _metadata(values: Sequence[object]) -> Mapping[str, str]:
    value = _single(values)
    if isinstance(value, str):  # a form can only send text: JSON in it
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise _Wrong("invalid_json", "must be a JSON object") from None
    if not isinstance(value, dict):
        raise _Wrong("invalid_type", "must be a JSON object")
    if len(value) > MOST_METADATA_KEYS:
        raise _Wrong("too_many", f"must have at most {MOST_METADATA_KEYS} keys")
    for key, text in value.items():
        if not isinstance(text, str):
            raise _Wrong("invalid_type", f"{key[:40]!r} must be a string")
        if len(key) > MOST_METADATA_CHARS or len(text) > MOST_METADATA_CHARS:
            raise _Wrong("too_long", f"keys and values must have at most {MOST_METADATA_CHARS} characters")
    return value
