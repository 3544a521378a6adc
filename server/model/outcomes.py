"""How a job ended, and the files that it left."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.model.events import NewEvent
from server.model.jobs import JobError, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One finished output file."""

    kind: str  # json | srt | vtt | txt | audio
    blob: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended. Written with its usage, outbox rows and terminal event in one commit."""

    state: State  # a terminal one
    error: JobError | None = None
    duration_s: float | None = None
    language: str | None = None
    language_probability: float | None = None
    engine: str | None = None
    model: str | None = None
    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    warnings: tuple[Mapping[str, str], ...] = ()
    return_quota: bool = False  # True: the allowance goes back (canceled while queued, our own fault)
    events: tuple[NewEvent, ...] = ()  # logged before the terminal event
