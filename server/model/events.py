"""The events of a job that readers get, numbered 1, 2, 3, ... without a gap: renderings of its timeline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that has no number yet."""

    type: str
    body: bytes  # JSON object without seq


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job. *stream* is the job's id."""

    stream: str
    seq: int  # 1, 2, 3, ... without gaps
    at: int
    type: str
    body: bytes
