"""How a job ended, and the files that it left."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pipeline.timeline import Entry
from server.model.jobs import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One finished output file."""

    kind: str  # json | srt | vtt | txt | docx | audio
    blob: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Result):
    """How a job ended. It is written with its usage, outbox rows and last event in one commit."""

    artifacts: tuple[Artifact, ...] = ()
    heard_s: float | None = None  # seconds of audio that count as used, summed over channels; None: the duration
    translated_characters: int = 0
    return_quota: bool = False  # True: the account gets its allowance back (canceled while queued, our own fault)
    revision: int = 0  # of the corrections that the text has
    again: "Callable[[], Awaitable[Outcome]] | None" = None  # makes it anew, with newer corrections
    entries: tuple[Entry, ...] = ()  # of the timeline, before its last one
