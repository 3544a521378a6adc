"""Events and partials in the forms of readers: JSON and what is made from it, once for all readers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.streams.partials import ShownPartial

T = TypeVar("T")
Seen: TypeAlias = Event | ShownPartial


@dataclass(slots=True, eq=False)
class Rendered:
    """An event or partial with its JSON, which has its job and, for events, its number."""

    seen: Seen
    body: bytes
    hands_over: bool = False  # all results of a job that keeps none
    _forms: dict[Callable[..., Any], Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of the event, or "partial"."""
        return "partial" if isinstance(self.seen, ShownPartial) else self.seen.type

    @property
    def seq(self) -> int | None:
        """The number of the event; a partial has none."""
        return None if isinstance(self.seen, ShownPartial) else self.seen.seq

    def form(self, make: Callable[["Rendered"], T]) -> T:
        """The result of *make*. It is called for the first reader that asks, and the others get the same."""
        if make not in self._forms:
            self._forms[make] = make(self)
        made: T = self._forms[make]
        return made


@dataclass(slots=True, eq=False)
class RenderedBatch:
    """What a reader is sent next, together: events in order and perhaps partials behind them. Never empty."""

    items: Sequence[Rendered]
    _joined: dict[Callable[..., bytes], bytes] = field(default_factory=dict)

    @property
    def event(self) -> Event | None:
        """The last of the events; None if there is only a partial."""
        return next((item.seen for item in reversed(self.items) if isinstance(item.seen, Event)), None)

    @property
    def hands_over(self) -> bool:
        """Whether it has all results of a job that keeps none. Only a job's last event has them."""
        return self.items[-1].hands_over

    @property
    def partial(self) -> ShownPartial | None:
        """The newest of the partials; None if there are only events."""
        last = self.items[-1].seen
        return last if isinstance(last, ShownPartial) else None

    def join_bytes(self, make: Callable[[Rendered], bytes]) -> bytes:
        """The bytes that *make* makes of the items, one after the other."""
        if make not in self._joined:
            self._joined[make] = b"".join(item.form(make) for item in self.items)
        return self._joined[make]


def partial_body(job_id: str, partial: ShownPartial) -> bytes:
    return _with_members(f'"job_id":"{job_id}"', partial.body)


def event_body(event: Event) -> bytes:
    """The JSON of an event that is not a job's last one."""
    return _with_members(f'"job_id":"{event.stream}","seq":{event.seq}', event.body)


def json_with_type(item: Rendered) -> bytes:
    """The JSON with the type inside, as WebSockets need it. Server-Sent Events have it outside."""
    return item.body if item.kind in TERMINAL_EVENTS else _with_members(f'"type":"{item.kind}"', item.body)


def _with_members(members: str, body: bytes) -> bytes:
    """The JSON object *body*, with *members* in front of its own members."""
    return b"{" + members.encode() + (b"," + body[1:] if len(body) > len(b"{}") else b"}")
