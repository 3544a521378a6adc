"""What of a recording was not heard, or not as it stands in the file, and the notes that say so to readers."""

from dataclasses import dataclass, field

from pipeline.audio import position, seconds
from pipeline.ingest.tracks import OTHER_TRACKS, UNDECODABLE_TRACK

TRUNCATED = "audio_truncated"
"""Note: the file ends before the end that its header states."""
SKIPPED = "frames_skipped"
"""Note: frames that could not be decoded were left out."""
FILLED = "gaps_filled"
"""Note: gaps in the recording were filled with silence."""
SHIFTED = "times_shifted"
"""Note: the time stamps jump ahead where nothing says that time passed, so what follows is earlier than they say."""
HEADER_FOUND = "header_found"
"""Note: what was declared as raw audio has the header of a container, which was believed instead."""
UNHEARD = "bytes_not_heard"
"""Note: bytes of the file are no part of a recording that can be decoded."""


@dataclass(slots=True)
class Ledger:
    """The parts of a recording that were not heard, in samples, packets and bytes, over all its parts."""

    header_found: bool = False
    cut: bool = False  # did one end before its stated end?
    cut_off: int = 0  # samples that are missing of the stated ones; 0: unknown
    cut_bytes: int = 0  # that are missing of the stated ones; 0: unknown
    skipped: int = 0  # packets that could not be decoded, with frames behind them
    skipped_s: float = 0.0  # their length
    gaps: int = 0
    filled: int = 0  # samples of silence in them
    shifted_s: float = 0.0  # by which time stamps jumped ahead in vain
    damaged: list[str] = field(default_factory=list)  # tracks that cannot be decoded, which players would choose rather
    unknown_tracks: set[int] = field(default_factory=set)  # not heard of recordings behind the first
    unheard: int = 0  # bytes
    unheard_why: str = ""  # of the first of them

    def leave_out(self, count: int, why: str) -> None:
        """Note that *count* bytes were not heard."""
        if count > 0:
            self.unheard += count
            self.unheard_why = self.unheard_why or why

    @property
    def notes(self) -> tuple[str, ...]:
        """A note for each kind of loss: "code: message"."""
        found = (
            (
                self.header_found,
                HEADER_FOUND,
                "the file has a header, which was believed instead of the encoding given",
            ),
            (self.cut, TRUNCATED, self._missing()),
            (self.skipped, SKIPPED, f"{self.skipped} packets ({self.skipped_s:.2f} s) could not be decoded"),
            (self.gaps, FILLED, f"silence was put into gaps: {self.gaps}, {seconds(self.filled)} s in all"),
            (
                self.shifted_s,
                SHIFTED,
                (
                    f"the time stamps jump ahead by {self.shifted_s:.1f} s, as if a clock was set. This was not filled "
                    "with silence: what follows is so much earlier"
                ),
            ),
            (self.unknown_tracks, OTHER_TRACKS, self._unknown()),
            (self.unheard, UNHEARD, f"{self.unheard} bytes of the file could not be read: {self.unheard_why}"),
        )
        notes = [f"{code}: {message}" for happened, code, message in found if happened]
        return (*notes, *(f"{UNDECODABLE_TRACK}: Track {name} cannot be decoded." for name in self.damaged))

    def _unknown(self) -> str:
        listed = ", ".join(map(str, sorted(self.unknown_tracks)))
        return f"A later recording in the file also has track {listed}, which was not transcribed: send it by itself."

    def _missing(self) -> str:
        if self.cut_off >= position(0.01):
            return f"the recording ends {seconds(self.cut_off)} s before the end that its header states"
        if self.cut_bytes:
            return f"the recording ends {self.cut_bytes} bytes before the end that its header states"
        return "the recording breaks off before its end"
