"""The items of a realtime transcription session, and the events about them.

An item is a part of the speech. It ends with a pause, with the speaker's turn, or when the client commits it. It has
the words since the item before. OpenAI's clients append each delta to the text, so deltas have final words only.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, TypeAlias

from server.dialects.dialect import Frame
from server.live.models import UNAVAILABLE

ServerEvent: TypeAlias = dict[str, Any]
"""An event of OpenAI's realtime API, without its id."""


@dataclass(slots=True)
class ItemNames:
    """Names the items of a socket."""

    committed: str | None = None  # the name of the item that ended last
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def next(self) -> str:
        return f"item_{next(self._numbers)}"


@dataclass(slots=True)
class Item:
    """One item. Times are seconds from the beginning of its session."""

    id: str
    start: float
    end: float | None = None  # None: it has not ended
    text: str = ""
    languages: dict[str, float] = field(default_factory=dict)  # those of its words, with the seconds of each
    dropped: bool = False  # True: the client cleared it, and gets no more events about it


@dataclass(slots=True)
class Items:
    """The items of one session. Each method returns the events to send to the client, in order."""

    names: ItemNames
    _: KW_ONLY
    manual: bool  # True: items end only when the client commits them
    semantic: bool = False  # True: items end with the speaker's turns; False: with pauses
    language: str | None = None  # of the order, or the one that was spoken last
    offset_s: float = 0.0  # the length of the socket's audio before this session
    _items: deque[Item] = field(init=False, default_factory=deque)  # items that are not completed, the oldest first
    _reached: float = field(init=False, default=0.0)  # where the last item ended
    _decided: float = field(init=False, default=0.0)  # all words before it are known

    def render(self, frame: Frame) -> list[ServerEvent]:
        """Handle an event of the live session."""
        match frame["type"]:
            case "speech.started" if not self.manual:
                return self._begin_item(frame["at"])
            case "speech.ended" if not self.manual and not self.semantic and self._has_open_item:
                return self._end_item(frame["at"])
            case "turn.ended" if not self.manual and self._has_open_item:
                return self._end_item(frame["at"]) + self._complete_while(lambda item: item.start <= frame["at"])
            case "warning" if frame["code"] == UNAVAILABLE.code:
                self.semantic = False
            case "word":
                return self._add_word(frame)
            case "segment" if not self.manual and not self.semantic and not frame["forced"]:
                return self._complete_while(lambda item: item.start <= frame["end"])
            case "finalized":
                self._decided = frame["at"]
                wordless = self.semantic and self._has_open_item and self._items[-1].start < frame["at"]
                return (self._end_item(frame["at"]) if wordless else []) + self._complete_decided()
            case "language":
                self.language = frame["language"]
        return []

    def commit(self, at: float) -> list[ServerEvent]:
        """End an item at *at*, which finalize() returned. Without *manual*, an open item is left to end by itself."""
        if self._has_open_item and not self.manual:
            return []
        begun = [] if self._has_open_item else self._begin_item(self._reached if self.manual else at, announced=False)
        return begun + self._end_item(at) + self._complete_decided()

    def switch(self, at: float, *, manual: bool) -> list[ServerEvent]:
        """Change *manual* at the time *at*."""
        ended = (
            self._end_item(at) + self._complete_decided() if self._has_open_item and self.manual and not manual else []
        )
        self.manual = manual
        return ended

    def clear(self, at: float) -> list[ServerEvent]:
        """Drop the uncommitted audio up to *at*: the client gets no event about it."""
        if self.manual and not self._has_open_item:
            self._begin_item(self._reached, announced=False)
        if self._has_open_item:
            self._items[-1].dropped = True
        if self.manual:
            self._end_item(at)
        return [{"type": "input_audio_buffer.cleared"}]

    def finish(self, at: float) -> list[ServerEvent]:
        """Complete every item, because the session has ended at *at*."""
        self._decided = math.inf
        return (self._end_item(at) if self._has_open_item else []) + self._complete_while(lambda _: True)

    @property
    def _has_open_item(self) -> bool:
        """Whether there is an item that has not ended."""
        return bool(self._items) and self._items[-1].end is None

    def _begin_item(self, at: float, *, announced: bool = True) -> list[ServerEvent]:
        item = Item(self.names.next(), at)
        self._items.append(item)
        started = {"type": "input_audio_buffer.speech_started", "item_id": item.id, "audio_start_ms": self._ms(at)}
        return [started] if announced and not self.manual else []

    def _end_item(self, at: float) -> list[ServerEvent]:
        item = self._items[-1]
        item.end = self._reached = max(at, item.start)
        if item.dropped:
            return []
        place = {"previous_item_id": self.names.committed}
        self.names.committed = item.id
        stopped = {"type": "input_audio_buffer.speech_stopped", "item_id": item.id, "audio_end_ms": self._ms(item.end)}
        return [
            *([] if self.manual else [stopped]),
            {"type": "input_audio_buffer.committed", "item_id": item.id, **place},
            {"type": "conversation.item.added", "item": _message(item), **place},
            {"type": "conversation.item.done", "item": _message(item), **place},
        ]

    def _add_word(self, word: Frame) -> list[ServerEvent]:
        middle = (word["start"] + word["end"]) / 2
        events: list[ServerEvent] = []
        while self._items and self._has_all_words(self._items[0], middle):
            events += self._completion_events(self._items.popleft())
        if not self._items:
            events += self._begin_item(self._reached if self.manual else word["start"])
        item = self._items[0]
        space = " " if item.text and word.get("spaced", True) else ""
        item.text += space + word["word"]
        if (language := word.get("language")) is not None:
            item.languages[language] = item.languages.get(language, 0.0) + word["end"] - word["start"]
        return events if item.dropped else [*events, _transcription("delta", item, delta=space + word["word"])]

    def _has_all_words(self, first: Item, middle: float) -> bool:
        """Whether a word whose middle is at *middle* belongs to a later item than *first*, the oldest."""
        if self.manual:
            return first.end is not None and first.end < middle
        return len(self._items) > 1 and self._items[1].start <= middle

    def _complete_decided(self) -> list[ServerEvent]:
        return self._complete_while(lambda item: item.end is not None and item.end <= self._decided)

    def _complete_while(self, holds: Callable[[Item], bool]) -> list[ServerEvent]:
        """Complete items from the oldest on while they have ended and *holds* is true of them."""
        events: list[ServerEvent] = []
        while self._items and self._items[0].end is not None and holds(self._items[0]):
            events += self._completion_events(self._items.popleft())
        return events

    def _completion_events(self, item: Item) -> list[ServerEvent]:
        if item.dropped:
            return []
        length_s = round((item.end or item.start) - item.start, 3)
        announced = _transcription(
            "completed", item, transcript=item.text, usage={"type": "duration", "seconds": length_s}
        )
        found = sorted(item.languages, key=lambda code: -item.languages[code])
        if not found and self.language is not None:
            found = [self.language]
        return [{**announced, "languages": [{"code": code} for code in found]} if found else announced]

    def _ms(self, at: float) -> int:
        return round((self.offset_s + at) * 1000)


def _message(item: Item) -> Mapping[str, Any]:
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_audio", "transcript": None}],
    }


def _transcription(kind: str, item: Item, **members: Any) -> ServerEvent:
    name = f"conversation.item.input_audio_transcription.{kind}"
    return {"type": name, "item_id": item.id, "content_index": 0, **members}
