"""Chooses the language of a turn where people may change their language. Pure."""

from collections.abc import Mapping

MIN_SPEECH_S = 1.5
"""The shortest speech whose language can be detected. In shorter speech, languages sound alike."""

MIN_PROBABILITY = 0.8
"""A language that is as probable as this is believed after any speech."""

PRIOR = 2.0
"""How much more probable the language of the turn before is: most turns continue in it."""


def likeliest(
    probabilities: Mapping[str, float], *, before: str | None = None, speech_s: float = 0.0
) -> tuple[str, float]:
    """Return the language and its probability. *before* is the language of the turn before, if it may change."""
    weights = {code: share * (PRIOR if code == before else 1.0) for code, share in probabilities.items()}
    language = max(weights, key=lambda code: (weights[code], code))
    sure = speech_s >= MIN_SPEECH_S or probabilities[language] >= MIN_PROBABILITY
    if before is not None and before in probabilities and not sure:
        language = before
    return language, round(probabilities[language], 3)
