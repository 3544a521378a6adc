"""Counts each client's failures within the last minute: wrong keys by address, bad files by account."""

from dataclasses import dataclass, field, replace

from server.accounts.limits import RateTable
from server.clock import now_ms
from server.model.accounts import WindowUse
from server.storage.ports import RateCounter

MAX_REFUSED = 10_000  # clients at their limit in memory; beyond it all are dropped


@dataclass(slots=True, kw_only=True)
class Failures:
    """Counts the failures called *what*: in memory, or with *shared* for all nodes together.

    A shared count costs a write for each failure. look() costs nothing, because each node remembers the clients that
    its own writes found at their limit. So each further node allows a client one failure more than the limit.
    """

    what: str
    shared: RateCounter | None
    _own: RateTable = field(init=False, default_factory=RateTable)
    _refused: dict[str, WindowUse] = field(init=False, default_factory=dict)  # clients at their limit, until it resets

    def look(self, client: str, *, limit: int) -> WindowUse:
        """Whether this node allows *client* another failure."""
        now = now_ms()
        if self.shared is None:
            return self._own.look(client, now=now, limit=limit)
        window = self._refused.get(client)
        if window is not None and window.resets_at > now:
            return window
        return WindowUse("minute", limit, 0, 60, now)

    async def count(self, client: str, *, limit: int) -> WindowUse:
        """Count a failure of *client* if fewer than *limit* are counted. Raises StorageError."""
        if self.shared is None:
            return self._own.hit(client, now=now_ms(), limit=limit)
        window = await self.shared.hit(f"{self.what} of {client}", limit=limit)
        if window.used >= limit:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            self._refused[client] = replace(window, allowed=False)
        return window
