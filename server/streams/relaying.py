"""Sends partials from the node that runs a session to the nodes that have readers of it.

A node with readers asks for the partials of their jobs every few seconds. The node that runs such a job answers with
the newest partial of each channel, and then sends each new one. A lost partial is replaced by the next one.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from server.storage.ports import Relay
from server.streams.feed import Partials
from server.waiting import set_within

PAUSE_S = 0.1  # between two rounds: the shortest time between two partials of a job
ASK_S = 3.0  # how often a node asks for the partials that it needs
WANTED_S = 8.0  # how long partials are sent after a node asked for them
ASKED_AT_ONCE = 100  # jobs in one message


@dataclass(slots=True)
class PartialRelay:
    """Asks for partials and answers other nodes. run() is a task of the server."""

    partials: Partials
    relay: Relay
    _wanted: dict[str, float] = field(init=False, default_factory=dict)  # by job, until when others want its partials
    _changed: set[str] = field(init=False, default_factory=set)
    _asked: set[str] = field(init=False, default_factory=set)
    _ask_at: float = field(init=False, default=0.0)
    _receiving: bool = field(init=False, default=False)

    async def run(self, closing: asyncio.Event) -> None:
        """Relay until *closing* is set."""
        self.relay.listen(self._on_message)
        self.partials.on_change = self._note_change
        while not await set_within(closing, PAUSE_S):
            await self._ask()
            changed, self._changed = self._changed, set()
            for job_id in changed:
                for message in self._partial_messages(job_id):
                    await self.relay.send(orjson.dumps(message))

    async def _ask(self) -> None:
        """Ask for the partials of jobs with readers here: at once for new jobs, for all of them every ASK_S."""
        watched, now = set(self.partials.watched_jobs), time.monotonic()
        due = now >= self._ask_at
        if due:
            self._ask_at = now + ASK_S
        asking = sorted(watched if due else watched - self._asked)
        self._asked = watched
        for first in range(0, len(asking), ASKED_AT_ONCE):
            await self.relay.send(orjson.dumps({"want": asking[first : first + ASKED_AT_ONCE]}))

    def _partial_messages(self, job_id: str) -> list[dict[str, object]]:
        """A message for each partial of the job. Each lists the channels with a partial, so that others are dropped."""
        partials = self.partials.newest(job_id)
        standing = [partial.channel for partial in partials]
        return [
            {
                "job": job_id,
                "standing": standing,
                "channel": partial.channel,
                "after": partial.after,
                "body": partial.body.decode(),
            }
            for partial in partials
        ] or [{"job": job_id, "standing": []}]

    def _note_change(self, job_id: str) -> None:
        """Note that a partial of the job changed on this node, if another node wants it."""
        if self._receiving or (until := self._wanted.get(job_id)) is None:
            return
        if time.monotonic() < until:
            self._changed.add(job_id)
        else:
            del self._wanted[job_id]

    def _on_message(self, message: bytes) -> None:
        content = orjson.loads(message)
        self._receiving = True
        try:
            if "want" in content:
                self._note_wanted(content["want"])
            elif content.get("job") in self.partials.watched_jobs:
                self._show_partial(content["job"], content)
        finally:
            self._receiving = False

    def _note_wanted(self, jobs: list[str]) -> None:
        now = time.monotonic()
        self._wanted = {job_id: until for job_id, until in self._wanted.items() if until > now}
        for job_id in jobs:
            if job_id not in self._wanted and self.partials.newest(job_id):
                self._changed.add(job_id)
            self._wanted[job_id] = now + WANTED_S

    def _show_partial(self, job_id: str, content: Mapping[str, Any]) -> None:
        """Show another node's partial here, and drop the partials that it has withdrawn.

        A node of an older version names no channel, and sends one partial or none.
        """
        channel = content.get("channel")
        standing = content.get("standing", [channel] if "body" in content else [])
        here = {partial.channel: partial for partial in self.partials.newest(job_id)}
        for gone in here.keys() - set(standing):
            self.partials.clear(job_id, channel=gone)
        if "body" not in content:
            return
        body, after = content["body"].encode(), content["after"]
        if channel in here and here[channel].body == body:
            self.partials.move(job_id, after=after)
        else:
            self.partials.show(job_id, body, after=after, channel=channel)
