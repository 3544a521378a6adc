"""Entries of a job's event log, numbered 1, 2, 3, ... without a gap."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be logged. The log gives it its number."""

    type: str
    body: bytes  # JSON object without seq


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of a job's log. *stream* is the job's id."""

    stream: str
    seq: int  # 1, 2, 3, ... without gaps
    at: int
    type: str
    body: bytes
