"""Renders events and partials as JSON and in the forms that readers need, once for all readers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from msgspec.json import decode as json_decode

from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.streams.partials import ShownPartial

T = TypeVar("T")
ORIGINAL = "original"
"""Among the languages that a reader wants: the words as they are spoken."""

Languages: TypeAlias = frozenset[str] | None
"""ORIGINAL and codes of translations; None: everything."""

_OF_WORDS = frozenset({"word", "segment", "partial", "language", "speakers.revised"})
Seen: TypeAlias = Event | ShownPartial


@dataclass(slots=True, eq=False)
class Rendered:
    """An event or partial with its JSON, which contains the job's id and the event's number."""

    seen: Seen
    body: bytes
    delivers_results: bool = False  # it has all results of a job that keeps none
    _forms: dict[Callable[..., Any], Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of the event, or "partial"."""
        return "partial" if isinstance(self.seen, ShownPartial) else self.seen.type

    @property
    def seq(self) -> int | None:
        """The number of the event; a partial has none."""
        return None if isinstance(self.seen, ShownPartial) else self.seen.seq

    def is_for(self, languages: Languages) -> bool:
        """Whether a reader of these *languages* gets it. What is in no language is for all."""
        if languages is None:
            return True
        if self.kind == "translation":
            return self.form(_target_of) in languages
        return self.kind not in _OF_WORDS or ORIGINAL in languages

    def form(self, make: Callable[["Rendered"], T]) -> T:
        """The result of *make*, which is called once for all readers."""
        if make not in self._forms:
            self._forms[make] = make(self)
        made: T = self._forms[make]
        return made


@dataclass(slots=True, eq=False)
class RenderedBatch:
    """Events in order, then perhaps partials, that a reader gets together. Never empty."""

    items: Sequence[Rendered]
    event: Event | None = field(init=False)
    """The last of the events; None if there is only a partial."""
    partial: ShownPartial | None = field(init=False)
    """The newest of the partials; None if there are only events."""
    delivers_results: bool = field(init=False)
    """Whether it has all results of a job that keeps none. Only a job's last event has them."""
    _joined: dict[tuple[Callable[..., bytes], Languages], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look once at the items for all readers."""
        last = self.items[-1]
        self.event = next((item.seen for item in reversed(self.items) if isinstance(item.seen, Event)), None)
        self.partial = last.seen if isinstance(last.seen, ShownPartial) else None
        self.delivers_results = last.delivers_results

    def join_bytes(self, make: Callable[[Rendered], bytes], languages: Languages = None) -> bytes:
        """The forms that *make* gives the items for readers of *languages*, joined: once for all of them."""
        key = (make, languages)
        if key not in self._joined:
            self._joined[key] = b"".join(item.form(make) for item in self.items if item.is_for(languages))
        return self._joined[key]


def _target_of(item: Rendered) -> str:
    target: str = json_decode(item.body)["target"]
    return target


def partial_body(job_id: str, partial: ShownPartial) -> bytes:
    return _with_members(f'"job_id":"{job_id}"', partial.body)


def event_body(event: Event) -> bytes:
    """The JSON of an event that is not a job's last one."""
    return _with_members(f'"job_id":"{event.stream}","seq":{event.seq}', event.body)


def json_with_type(item: Rendered) -> bytes:
    """The JSON with the member `type`, for WebSockets. Server-Sent Events have the type outside the JSON."""
    return item.body if item.kind in TERMINAL_EVENTS else _with_members(f'"type":"{item.kind}"', item.body)


def _with_members(members: str, body: bytes) -> bytes:
    """The JSON object *body*, with *members* in front of its own members."""
    return b"{" + members.encode() + (b"," + body[1:] if len(body) > len(b"{}") else b"}")
