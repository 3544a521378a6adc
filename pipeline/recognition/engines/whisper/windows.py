"""The windows in which a model recognises speech: full ones suit every Whisper model, shorter ones cost less.

This module lists the windows of published models that were measured. Any other model uses full ones until
`scribewire doctor` has measured it (fitting.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.audio import LONGEST_JOB, RATE
from pipeline.recognition.engines.whisper.prompts import WINDOWS_S, window_for

JOBS_S = (4, 9, 14, 19, 28)
"""The lengths of jobs that a file may be cut into. Each fills one of WINDOWS_S except for its padding."""


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Which windows suit one model. All in seconds."""

    partial_s: int  # the shortest window of a partial, one of WINDOWS_S
    final_s: int  # the shortest window of a final, one of WINDOWS_S
    job_s: int  # the longest job that a file is cut into

    @property
    def longest_job(self) -> int:
        """The longest job, in samples."""
        return min(self.job_s * RATE, LONGEST_JOB)

    def window_s(self, samples: int, *, final: bool) -> int:
        """Return the length of the window for *samples* samples, in seconds."""
        return window_for(samples, self.final_s if final else self.partial_s)


FULL = WindowSizes(WINDOWS_S[-1], WINDOWS_S[-1], JOBS_S[-1])

KNOWN_SIZES: Mapping[str, WindowSizes] = {
    # tiny.en
    "2b3bddd7473a3cbd7cdf52203a6162195a8a9cfb0c0259dd0a98a117bb30cde7": WindowSizes(7, 15, 19),
    # base
    "a6571c2e2a0525f32feb426f8e8f4eedf063b7aef2141d4635d12ba4a87c2a96": WindowSizes(7, 15, 28),
    # the test model
    "3c347cc50f6e39b0177c7f861eb72e8e82452feb3dd5698dfa1cb45170cb6f1d": WindowSizes(5, 5, 4),
}
"""What suits a model, by the SHA-256 of the first and last MiB of its weights."""
