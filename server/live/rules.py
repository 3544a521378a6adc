"""How long live sessions wait for their writers, and how often they check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRules:
    """How long things may take in a live session, in seconds."""

    lease_s: float = 15.0  # the longest that writers wait after the death of a server
    renew_s: float = 5.0
    look_s: float = 1.0  # how often to look for a cancel and a missing writer
    pause_s: float = 2.0  # a writer that is there without audio for this long has nothing to say: words are decided
    idle_s: float = 30.0  # without audio and keep_alive for this long, the session ends
    audioless_s: float = 600.0  # without audio for this long, the session ends, whatever else the writer sends
    margin_s: float = 3600.0  # the session ends when it is older than the plan's longest audio and this time
    writerless_s: float = 60.0  # without a writer for this long, the session ends
    seat_s: float = 1.0  # how long a new writer waits for the one before it to leave
    takeover_s: float = 10.0  # a writer that sent nothing for this long may be replaced by a new one
    ack_s: float = 1.0  # how often a writer gets an ack
    frame_s: float = 30.0  # longest audio in one message; more is not live
    stale_s: float = 5.0  # how often to look for jobs that lost their process and their writer
