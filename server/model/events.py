"""Entries of a job's event log. The log gives each job's events the numbers 1, 2, 3, ... without a gap."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event about to be logged; its sequence number is given by the log."""

    type: str
    body: bytes  # JSON object without seq


@dataclass(frozen=True, slots=True)
class Event:
    stream: str
    seq: int  # 1, 2, 3, ... without holes
    at: int
    type: str
    body: bytes
