"""Which languages the words of a recording are in, and how sure that is. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pipeline.audio import position, seconds
from pipeline.words import Segment

DOUBT = 0.5
"""A language that is less probable than this is doubtful."""

MUCH = position(3)
"""Speech in a doubtful language is worth a warning if there is more of it than this."""

LANGUAGE_DOUBTFUL = "language_doubtful"
"""The code of that warning."""


def speech_by_language(segments: Iterable[Segment]) -> dict[str, int]:
    """Return how many samples of speech each language has that was found, most first."""
    spoken: dict[str, int] = {}
    for segment in segments:
        for word in segment.words:
            if word.language is not None:
                spoken[word.language] = spoken.get(word.language, 0) + word.end - word.start
    return dict(sorted(spoken.items(), key=lambda pair: (-pair[1], pair[0])))


def certainty(
    segments: Iterable[Segment], before: Mapping[str, tuple[int, float]] = MappingProxyType({})
) -> dict[str, tuple[int, float]]:
    """Return for each language that was found in how much speech, in samples, and how sure it is there on average.

    *before*: that of earlier segments, which are counted too.
    """
    found = dict(before)
    for segment in segments:
        length, sure = sum(word.end - word.start for word in segment.words), segment.language_probability
        if segment.language is not None and sure is not None and length:
            spoken, mean = found.get(segment.language, (0, 0.0))
            found[segment.language] = spoken + length, mean + (sure - mean) * length / (spoken + length)
    return found


def probability_of(language: str | None, segments: Iterable[Segment]) -> float | None:
    """Return how sure it is that *language* is spoken: the mean over all speech in it; None if that is unknown."""
    return certainty(segments).get(language or "", (0, None))[1]


def doubtful_languages(found: Mapping[str, tuple[int, float]]) -> list[str]:
    """Return a note for each language that is doubtful on average in more than MUCH of speech. *found*: certainty()."""
    return [
        _note(f"{seconds(spoken):.1f} s of speech", language)
        for language, (spoken, sure) in found.items()
        if spoken > MUCH and sure < DOUBT
    ]


def wordless_language(language: str | None, probability: float | None, duration: int) -> list[str]:
    """Return a note if a recording in which no word was found was heard in a doubtful language."""
    doubtful = duration > MUCH and probability is not None and probability < DOUBT
    return [_note("no words were found, and what is said", language)] if doubtful else []


def _note(what: str, language: str | None) -> str:
    wish = "language or languages in the request say which are spoken"
    return f"{LANGUAGE_DOUBTFUL}: {what} may be in another language than {language}; {wish}"


def without_only_language(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments; if they have only one language, it is that of the recording, and no word names it."""
    if len({word.language for segment in segments for word in segment.words} - {None}) != 1:
        return list(segments)
    return [
        replace(segment, words=tuple(replace(word, language=None) for word in segment.words)) for segment in segments
    ]
