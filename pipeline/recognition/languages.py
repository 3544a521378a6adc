"""Chooses the language of an utterance from what was detected in it and in its neighbours. Pure.

Single phrases are mistaken for other languages: Spanish for Italian with 0.7, Dutch for Arabic with 0.8. So a language
that differs from the neighbours' is taken at once only where it is certain and there is enough speech, and not at all
where theirs is nearly as probable. Between, the caller hears the utterance in both and takes the surer words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MIN_SPEECH_S = 1.5
"""The shortest speech whose language can be detected. In shorter speech, languages sound alike."""

CERTAIN = 0.9
"""A language is taken at once from this probability on."""

PLAIN, RIVAL = 0.8, 0.15
"""Without neighbours, a language below PLAIN is compared with the next one, if that one has RIVAL or more."""

UNTESTED = frozenset(
    ("ba", "bo", "br", "eu", "fo", "ht", "haw", "la", "mg", "nn", "sa", "si", "sq", "su", "tk", "tt", "yi")
)
"""Languages of Whisper that FLEURS lacks, so that nobody published how well they are heard.

Others that sound alike are mistaken for them: Spanish for Latin with 0.93. So they are found only where they are
CERTAIN, and beside neighbours only where the words are surer."""

PRIOR = 2.0
"""How much more probable the neighbours' language is: most utterances continue in it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A language, how probable it is, and the one that it is to be compared with by hearing both, if any.

    *others*: how probable all others that may be found are together.
    """

    language: str
    probability: float
    rival: str | None = None
    others: float = 0.0


def likeliest(probabilities: Mapping[str, float]) -> tuple[str, float]:
    """Return the language and its probability."""
    language = max(probabilities, key=lambda code: (probabilities[code], code))
    return language, round(probabilities[language], 3)


def without_untested(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return the probabilities of the languages that may be found, or of all if no other ones are left."""
    least = CERTAIN * sum(probabilities.values())
    known = {code: one for code, one in probabilities.items() if code not in UNTESTED or one >= least}
    return known or dict(probabilities)


def choose_language(probabilities: Mapping[str, float], *, neighbour: str | None, speech_s: float) -> Choice:
    """Return the language of an utterance, one of *probabilities*, which has those that may be found.

    *neighbour* is the one around it or before it; None: there is none.
    """
    every = sum(probabilities.values())
    shares = {code: one / every if every else 1 / len(probabilities) for code, one in probabilities.items()}
    language, rival = _choose(shares, neighbour=neighbour, speech_s=speech_s)
    found = probabilities[language]
    return Choice(language, round(found, 3), rival, round(every - found, 3))


def _choose(shares: Mapping[str, float], *, neighbour: str | None, speech_s: float) -> tuple[str, str | None]:
    """Return the language and its rival, if any. All *shares* together are 1."""
    language, share = likeliest(shares)
    certain = share >= CERTAIN and language not in UNTESTED
    if certain and (speech_s >= MIN_SPEECH_S or neighbour is None or neighbour not in shares):
        return language, None
    if neighbour is not None and neighbour in shares and neighbour != language:
        theirs = shares[neighbour]
        if not certain and (speech_s < MIN_SPEECH_S or theirs * PRIOR >= share):
            return neighbour, None
        return language, neighbour
    others = {code: share for code, share in shares.items() if code != language}
    next_one = likeliest(others)[0] if others else language
    compared = neighbour is None and share < PLAIN and speech_s >= MIN_SPEECH_S and others.get(next_one, 0.0) >= RIVAL
    return language, next_one if compared else None
