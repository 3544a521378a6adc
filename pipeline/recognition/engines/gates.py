"""Judging what a decoder said: is this text anything that can have been spoken in this audio?

Silence, noise and music make a speech model write subtitles it has seen ("Thank you."), and any decoder can fall into
a loop. Each gate is a plain property of the answer; thresholds and their sources are in the README two folders up.
"""

import zlib
from collections.abc import Sequence

NO_SPEECH = 0.6  # the model's own doubt ...
UNLIKELY = -1.0  # ... counts together with a mean log-probability below this (openai/whisper)
FEW_LETTERS = 12  # the word or two that noise and music are given ...
NO_SPEECH_IN_FEW, UNLIKELY_FEW = 0.5, -0.5  # ... need less doubt ...
VOICE_S = 0.4  # ... unless the voice detector heard somebody speak for so long
REPETITION = 2.4  # zlib ratio above which a text is a loop (openai/whisper)
LETTERS_PER_S = 30.0  # faster than anybody speaks, in any script; English at 8 tokens a second
HURRIED = 16.0  # letters a second of voice; people who repeat a phrase speak more slowly, a model that does is faster
DOUBT = -0.4  # mean log-probability below which a second look is worth its cost


def compression_ratio(text: str) -> float:
    """Bytes of the text over bytes of its zlib form; plain speech stays below 2."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def failed_gate(
    text: str,
    *,
    seconds: float,
    avg_logprob: float,
    no_speech_prob: float,
    cut_off: bool,
    voiced_s: float = 0.0,
) -> str | None:
    """The first gate that this answer fails, by name; None when it may stand.

    *seconds* is the length of the real audio without padding, *cut_off* says that the decoder was stopped by its
    length cap rather than by its own end token, *voiced_s* what is known of how long somebody speaks in it.
    """
    letters = _letters(text)
    if not letters:
        return "no_words"
    if is_no_speech(text, avg_logprob=avg_logprob, no_speech_prob=no_speech_prob, voiced_s=voiced_s):
        return "no_speech"
    if cut_off or compression_ratio(text) > REPETITION:
        return "repetition"
    if letters > LETTERS_PER_S * seconds + FEW_LETTERS:
        return "too_fast"
    return None


def without_echo(words: Sequence[str], *, voiced_s: float) -> int:
    """How many of *words* are left when the end of a text that says one phrase over and over is cut to its first time.

    After a short utterance a Whisper fills what is left of its window with the last sentence again. All words are left
    where nothing is repeated, or where *voiced_s* seconds of voice were enough to say it all. *words* are as spoken().
    """
    letters = sum(map(_letters, words))
    if letters <= HURRIED * voiced_s:
        return len(words)
    kept = len(words)
    for size in range(1, len(words) // 2 + 1):
        tail = size  # words at the end that repeat with this period
        while tail < len(words) and words[-tail - 1] == words[-tail - 1 + size]:
            tail += 1
        if tail >= 2 * size and sum(map(_letters, words[-tail:])) > FEW_LETTERS:
            kept = min(kept, len(words) - tail + size)
    return kept


def is_no_speech(text: str, *, avg_logprob: float, no_speech_prob: float, voiced_s: float = 0.0) -> bool:
    """The model doubts that anybody spoke, and does not believe its own text either."""
    few = _letters(text) <= FEW_LETTERS and voiced_s < VOICE_S
    most, least = (NO_SPEECH_IN_FEW, UNLIKELY_FEW) if few else (NO_SPEECH, UNLIKELY)
    return no_speech_prob > most and avg_logprob < least


def _letters(text: str) -> int:
    return sum(sign.isalnum() for sign in text)
