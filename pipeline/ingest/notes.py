"""The notes about a recording: what of it was not transcribed, or not as it stands in the file.

A note is "code: message". Readers of a transcript get it as a warning. The ledger of a recording collects what is lost
while it is decoded.
"""

from dataclasses import dataclass, field

from pipeline.audio import position, seconds

TRUNCATED = "audio_truncated"
"""The file ends before the end that its header states."""
SKIPPED = "frames_skipped"
"""Frames that could not be decoded were left out."""
FILLED = "gaps_filled"
"""Gaps in the recording were filled with silence."""
SHIFTED = "times_shifted"
"""The time stamps jump ahead where nothing says that time passed, so what follows is earlier than they say."""
HEADER_FOUND = "header_found"
"""What was declared as raw audio has the header of a container, which was believed instead."""
UNHEARD = "bytes_not_heard"
"""Bytes of the file are not part of a recording that can be decoded."""
OTHER_TRACKS = "other_tracks"
"""Somebody speaks on a track that was not transcribed."""
UNDECODABLE_TRACK = "undecodable_track"
"""A track holds nothing that can be decoded, so others were used."""
IDENTICAL_CHANNELS = "identical_channels"
"""A separate channel holds the same as another one, which was transcribed for both."""
TWO_TALKS = "two_talks"
"""Different people talk at the same time on two channels that were mixed."""
QUIET_INPUT = "quiet_input"
"""Speech is very quiet, or nothing but silence arrives."""


def identical_channel(copy: int, original: int) -> str:
    """Return the message of IDENTICAL_CHANNELS."""
    return f"Channel {copy} holds the same as channel {original}."


def undecodable_track(name: str) -> str:
    """Return the note about the track of this name."""
    return f"{UNDECODABLE_TRACK}: Track {name} cannot be decoded."


@dataclass(slots=True)
class Ledger:
    """What of a recording is lost, in samples, packets and bytes, over all containers of its file."""

    header_found: bool = False
    cut: bool = False  # did a container end before its stated end?
    cut_off: int = 0  # samples that are missing from the stated ones; 0: unknown
    cut_bytes: int = 0  # that are missing from the stated ones; 0: unknown
    skipped: int = 0  # packets that could not be decoded, with frames after them
    skipped_s: float = 0.0  # their length
    gaps: int = 0
    filled: int = 0  # samples of silence in them
    shifted_s: float = 0.0  # by which time stamps jumped ahead in vain
    damaged: list[str] = field(default_factory=list)  # undecodable tracks that players would prefer
    unknown_tracks: set[int] = field(default_factory=set)  # of containers after the first, and not transcribed
    unheard: int = 0  # bytes
    unheard_why: str = ""  # of the first of them

    def leave_out(self, count: int, why: str) -> None:
        """Note that *count* bytes are lost, and *why*."""
        if count > 0:
            self.unheard += count
            self.unheard_why = self.unheard_why or why

    @property
    def notes(self) -> tuple[str, ...]:
        """A note for each kind of loss."""
        if self.cut_off >= position(0.01):
            missing = f"The recording ends {seconds(self.cut_off)} s before the end that its header states."
        elif self.cut_bytes:
            missing = f"The recording ends {self.cut_bytes} bytes before the end that its header states."
        else:
            missing = "The recording breaks off before its end."
        shifted = (
            f"The time stamps jump ahead by {self.shifted_s:.1f} s, as if a clock was set. This was not filled with "
            "silence, so all later times are earlier by that."
        )
        tracks = ", ".join(map(str, sorted(self.unknown_tracks)))
        unknown = (
            f"A later recording in the file also has track {tracks}, which was not transcribed. Send it by itself."
        )
        found = (
            (
                self.header_found,
                HEADER_FOUND,
                "The file has a header, which was used instead of the encoding given.",
            ),
            (self.cut, TRUNCATED, missing),
            (self.skipped, SKIPPED, f"{self.skipped} packets ({self.skipped_s:.2f} s) could not be decoded."),
            (self.gaps, FILLED, f"Silence was put into {self.gaps} gaps, {seconds(self.filled)} s in all."),
            (self.shifted_s, SHIFTED, shifted),
            (self.unknown_tracks, OTHER_TRACKS, unknown),
            (self.unheard, UNHEARD, f"{self.unheard} bytes of the file could not be read. {self.unheard_why}"),
        )
        notes = [f"{code}: {message}" for happened, code, message in found if happened]
        return (*notes, *map(undecodable_track, self.damaged))
