"""Chooses the language of an utterance from what was detected in it and in its neighbours. Pure.

Related languages are confused in single phrases: Italian is found amid Spanish with 0.7. So one that differs from its
neighbours' is taken at once only where it is certain, and not at all where theirs is nearly as probable. Between, the
caller hears the utterance in both and takes the surer words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MIN_SPEECH_S = 1.5
"""The shortest speech whose language can be detected. In shorter speech, languages sound alike."""

CERTAIN, POSSIBLE = 0.9, 0.02
"""A language is taken at once from CERTAIN on, and the neighbours' is no rival of it below POSSIBLE."""

PLAIN, RIVAL = 0.8, 0.15
"""Without neighbours, a language below PLAIN is compared with the next one, if that one has RIVAL or more."""

PRIOR = 2.0
"""How much more probable the neighbours' language is: most utterances continue in it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A language, how probable it is, and the one that it is to be compared with by hearing both, if any."""

    language: str
    probability: float
    rival: str | None = None


def likeliest(probabilities: Mapping[str, float]) -> tuple[str, float]:
    """Return the language and its probability."""
    language = max(probabilities, key=lambda code: (probabilities[code], code))
    return language, round(probabilities[language], 3)


def choose_language(probabilities: Mapping[str, float], *, neighbour: str | None, speech_s: float) -> Choice:
    """Return the language of an utterance. *neighbour* is the one around it or before it; None: there is none."""
    language, probability = likeliest(probabilities)
    if probability >= CERTAIN:
        return Choice(language, probability)
    if neighbour is not None and neighbour in probabilities and neighbour != language:
        share = probabilities[neighbour]
        if speech_s < MIN_SPEECH_S or share * PRIOR >= probability:
            return Choice(neighbour, round(share, 3))
        return Choice(language, probability, neighbour if share >= POSSIBLE else None)
    others = {code: share for code, share in probabilities.items() if code != language}
    next_one = likeliest(others)[0] if others else language
    compared = (
        neighbour is None and probability < PLAIN and speech_s >= MIN_SPEECH_S and others.get(next_one, 0.0) >= RIVAL
    )
    return Choice(language, probability, next_one if compared else None)
