"""Counts each client's failures within the last minute: wrong keys by address, bad files by account."""

from dataclasses import dataclass, field, replace

from server.clock import now_ms
from server.keyed_limits import MINUTE_MS
from server.model.accounts import WindowUse
from server.storage.ports import RateCounter

MAX_REFUSED = 10_000  # clients at their limit in memory; beyond it all are dropped


@dataclass(slots=True, kw_only=True)
class Failures:
    """Counts the failures called *what*.

    look() costs nothing, because this process remembers the clients that it found at their limit. So each further node
    allows a client one failure more than the limit.
    """

    what: str
    rates: RateCounter
    _refused: dict[str, WindowUse] = field(init=False, default_factory=dict)  # clients at their limit, until it resets

    def look(self, client: str, *, limit: int) -> WindowUse:
        """Whether this node allows *client* another failure."""
        now = now_ms()
        window = self._refused.get(client)
        if window is not None and now < window.resets_at <= now + MINUTE_MS:  # unless the clock went back
            return window
        return WindowUse("minute", limit, 0, MINUTE_MS // 1000, now)

    async def count(self, client: str, *, limit: int) -> WindowUse:
        """Count a failure of *client* if fewer than *limit* are counted. Raises StorageError."""
        window = await self.rates.hit(f"{self.what} of {client}", limit=limit)
        if window.used >= limit:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            self._refused[client] = replace(window, allowed=False)
        return window
