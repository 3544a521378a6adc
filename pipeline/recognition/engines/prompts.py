"""What is put before the decoder's first token, and how much it may say.

CTranslate2 decodes a batch in one pass only when all its prompts have equal length. The text before
<|startoftranscript|>, a hint of the user's, is read in one step and costs almost nothing. Each token of the answer that
is given beforehand costs as much as one that the model finds.
"""

from dataclasses import dataclass

from pipeline.audio import RATE

WINDOWS_S = (5, 7, 10, 15, 20, 30)
"""Lengths a window is padded to. None gives an encoder output of exactly 80 or 128 positions (1.6 s, 2.56 s): those
CTranslate2 takes for features and encodes a second time, without a word."""

PAD_S = 1
"""Silence that a window shorter than the longest has at its end at least: Whisper learned that speech ends."""

HINT_TOKENS = 128
"""The most of a vocabulary hint that is shown: prompt and answer share 448 positions."""

_SAID_AT_MOST = 224  # tokens: half of Whisper's positions, what it was trained to say in 30 s


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests must share to be decoded in one call."""

    window_s: int
    prefix: int  # tokens before <|startoftranscript|>, its own marker not counted
    final: bool
    said: int = 0  # tokens that the answer begins with

    @property
    def most_tokens(self) -> int:
        """Tokens the answer may have. It bounds what a runaway loop costs; speech stays below 8 a second."""
        return min(_SAID_AT_MOST, (12 if self.final else 8) * self.window_s + 8)


def window_for(samples: int, least_s: int = WINDOWS_S[0]) -> int:
    """The shortest of WINDOWS_S, in seconds, that holds so many samples and PAD_S of silence; else the longest.

    It is never below *least_s*.
    """
    needed = max(samples + PAD_S * RATE, least_s * RATE)
    return next((window for window in WINDOWS_S if needed <= window * RATE), WINDOWS_S[-1])


def max_length(prompt: int, said: int) -> int:
    """CTranslate2's max_length that allows *said* tokens after a prompt of *prompt*: it takes half of it at most."""
    return max(2 * said, prompt + said)
