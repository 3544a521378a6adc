"""Judging what a decoder said: is this text anything that can have been spoken in this audio?

Silence, noise and music make a speech model write subtitles it has seen ("Thank you."), and any decoder can fall into
a loop. Each gate is a plain property of the answer; thresholds and their sources are in the README two folders up.
"""

import zlib

NO_SPEECH = 0.6  # the model's own doubt ...
UNLIKELY = -1.0  # ... counts together with a mean log-probability below this (openai/whisper)
REPETITION = 2.4  # zlib ratio above which a text is a loop (openai/whisper)
LETTERS_PER_S = 30.0  # faster than anybody speaks, in any script; English at 8 tokens a second
LETTERS_FREE = 12  # a word or two may sit in a very short window
DOUBT = -0.4  # mean log-probability below which a second look is worth its cost


def compression_ratio(text: str) -> float:
    """Bytes of the text over bytes of its zlib form; plain speech stays below 2."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def failed_gate(text: str, *, seconds: float, avg_logprob: float, no_speech_prob: float, cut_off: bool) -> str | None:
    """The first gate that this answer fails, by name; None when it may stand.

    *seconds* is the length of the real audio without padding, *cut_off* says that the decoder was stopped by its
    length cap rather than by its own end token.
    """
    letters = sum(character.isalnum() for character in text)
    if not letters:
        return "no_words"
    if no_speech_prob > NO_SPEECH and avg_logprob < UNLIKELY:
        return "no_speech"
    if cut_off or compression_ratio(text) > REPETITION:
        return "repetition"
    if letters > LETTERS_PER_S * seconds + LETTERS_FREE:
        return "too_fast"
    return None
