"""Which languages the words of a recording are in, and how sure that is. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

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


def probability_of(language: str | None, segments: Iterable[Segment]) -> float | None:
    """Return how sure it is that *language* is spoken: the mean over all speech in it; None if that is unknown."""
    known = [
        (_length(segment), segment.language_probability)
        for segment in segments
        if segment.language == language and segment.language_probability is not None
    ]
    whole = sum(length for length, _ in known)
    return sum(length * sure for length, sure in known) / whole if whole else None


def doubtful(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments whose language is doubtful."""
    known = ((segment, segment.language_probability) for segment in segments)
    return [segment for segment, probability in known if probability is not None and probability < DOUBT]


def doubtful_languages(segments: Iterable[Segment]) -> list[str]:
    """Return a note for each language that is doubtful in more than MUCH of speech."""
    return [
        f"{LANGUAGE_DOUBTFUL}: {seconds(spoken):.1f} s of speech may be in another language than {language}; "
        "language or languages in the request say which are spoken"
        for language, spoken in speech_by_language(doubtful(segments)).items()
        if spoken > MUCH
    ]


def without_only_language(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments; if they have only one language, it is that of the recording, and no word names it."""
    if len({word.language for segment in segments for word in segment.words} - {None}) != 1:
        return list(segments)
    return [
        replace(segment, words=tuple(replace(word, language=None) for word in segment.words)) for segment in segments
    ]


def _length(segment: Segment) -> int:
    return sum(word.end - word.start for word in segment.words)
