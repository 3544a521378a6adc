"""The numbers of a Whisper request: window lengths, the length of its prompt, and the most tokens of its answer.

CTranslate2 decodes several requests in one pass only if their prompts have equal length. The user's hint stands before
<|startoftranscript|>; the model reads it in one step, which costs almost nothing. An answer may begin with the tokens
of decided words. Each of them costs as much as a token that the model generates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest
from pipeline.words import join_words

Encode: TypeAlias = Callable[[str], tuple[int, ...]]
"""Turns text into tokens."""

WINDOWS_S = (5, 7, 10, 15, 20, 30)
"""The lengths that windows are padded to. None gives an encoder output of exactly 80 or 128 positions (1.6 s, 2.56 s),
which CTranslate2 would take for features and encode a second time without an error."""

PAD_S = 1
"""The least silence at the end of a window, except the longest one: Whisper was trained on speech that ends."""

HINT_TOKENS = 128
"""The most tokens of a vocabulary hint that are used, because prompt and answer share 448 positions."""

_MAX_ANSWER = 224  # tokens, half of Whisper's positions: the most that it was trained to say in 30 s


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests in one call must have in common."""

    window_s: int
    hint_tokens: int  # tokens before <|startoftranscript|>, its own marker not counted
    final: bool
    prefix_tokens: int = 0  # tokens of the request with which the answer begins

    @property
    def max_tokens(self) -> int:
        """The most tokens of the answer. It limits the cost of endless repetition; speech has fewer than 8 a second."""
        return min(_MAX_ANSWER, (12 if self.final else 8) * self.window_s + 8)


def window_for(samples: int, min_s: int = WINDOWS_S[0]) -> int:
    """Return the shortest of WINDOWS_S that holds *samples* and PAD_S of silence, in seconds; else the longest.

    It is never below *min_s*.
    """
    needed = max(samples + PAD_S * RATE, min_s * RATE)
    return next((window for window in WINDOWS_S if needed <= window * RATE), WINDOWS_S[-1])


def max_length(prompt: int, answer: int) -> int:
    """Return CTranslate2's max_length for *answer* tokens after *prompt* tokens. The answer gets at most half of it."""
    return max(2 * answer, prompt + answer)


def hint_tokens(request: DecodeRequest, encode: Encode) -> tuple[int, ...]:
    """Return what the model reads before the audio: as many keywords as fit into HINT_TOKENS, then the prompt's end.

    It continues in the style of what it has read: without a full stop its answers would begin in lower case.
    """
    hints = request.hints
    first = encode(", ".join(hints.keywords) + ".")[:HINT_TOKENS] if hints.keywords else ()
    rest = encode(" ".join(hints.prompt_in(request.language).split()))
    return first + rest[max(0, len(first) + len(rest) - HINT_TOKENS) :]


def prefix_text(request: DecodeRequest) -> str:
    """Return the text that the answer to *request* begins with: in a partial the decided words, else nothing."""
    return "" if request.final else join_words(request.decided)
