"""Speech probabilities -> turns: stretches of speech that end where the speaker pauses for long enough."""

from collections import deque
from dataclasses import dataclass

from pipeline.audio import WINDOW, position


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    enter: float = 0.5  # probability that starts speech ...
    onset: int = 2  # ... when so many frames in a row reach it: a click is shorter
    leave: float = 0.35  # probability that continues speech, lower than *enter*: a breath does not end a sentence
    endpointing: int = position(0.5)  # silence that ends a turn


@dataclass(slots=True)
class Turn:
    """One stretch of speech. *voiced* is the end of its last frame with speech: it grows while the turn is open."""

    start: int
    voiced: int
    ended: int | None = None  # where the silence was long enough, or the audio was said to end

    @property
    def open(self) -> bool:
        return self.ended is None


class Turns:
    """The turns that are not decided yet, oldest first. Only the newest can be open."""

    def __init__(self, options: TurnOptions) -> None:
        self._options = options
        self._run = 0  # frames in a row that may be the beginning of speech
        self._turns: deque[Turn] = deque()

    @property
    def first(self) -> Turn | None:
        return self._turns[0] if self._turns else None

    @property
    def speaking(self) -> bool:
        return bool(self._turns) and self._turns[-1].open

    def receive(self, now: int, speech: float) -> Turn | None:
        """Take the frame that ends at *now*; give the turn that began or ended with it."""
        if not self.speaking:
            self._run = self._run + 1 if speech >= self._options.enter else 0
            if self._run < self._options.onset:
                return None
            self._turns.append(Turn(start=now - self._run * WINDOW, voiced=now))
            return self._turns[-1]
        if speech >= self._options.leave:
            self._turns[-1].voiced = now
        return self.end(now) if now - self._turns[-1].voiced >= self._options.endpointing else None

    def end(self, now: int) -> Turn | None:
        """End the open turn and give it; None when nobody speaks."""
        self._run = 0
        if not self.speaking:
            return None
        self._turns[-1].ended = now
        return self._turns[-1]

    def done(self) -> None:
        """The first turn is decided."""
        self._turns.popleft()
