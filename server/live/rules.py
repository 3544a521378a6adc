"""How patient live sessions are with their writers, and how often they look."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRules:
    """How long things may take in a live session, in seconds."""

    lease_s: float = 15.0  # the longest that writers wait after the death of a server
    renew_s: float = 5.0
    look_s: float = 1.0  # how often to check for a cancel and for a missing writer
    idle_s: float = 30.0  # without audio and keep_alive for this long, the session ends
    audioless_s: float = 600.0  # without audio for this long, the session ends, whatever else the writer sends
    margin_s: float = 3600.0  # a session ends so long after its start, and the plan's longest audio besides
    writerless_s: float = 60.0  # without a writer for this long, the session ends
    seat_s: float = 1.0  # how long a new writer waits for the one before it to leave
    takeover_s: float = 10.0  # a writer silent for this long may be a dead connection, and the next one takes its place
    ack_s: float = 1.0  # how often a writer gets an ack
    frame_s: float = 30.0  # audio in one message; more than this is not live
    stale_s: float = 5.0  # how often to look for jobs that lost their process and their writer
