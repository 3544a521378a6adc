"""Counts word errors with published tools: OpenAI's normaliser for Whisper, and jiwer's alignment of words."""

from collections.abc import Sequence

from jiwer import process_words
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

_ENGLISH, _ANY_LANGUAGE = EnglishTextNormalizer(), BasicTextNormalizer()


def spoken_words(text: str, language: str | None = None) -> list[str]:
    """Return the words of *text* in the form in which they are compared.

    *language*: English ("en", "en-GB") gets numbers as figures, contractions in full and American spelling. Every other
    language, or None, only gets lower case without punctuation.
    """
    english = language is not None and language.partition("-")[0] == "en"
    normalised: str = (_ENGLISH if english else _ANY_LANGUAGE)(text)
    return normalised.split()


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return how many words of *heard* must be inserted, deleted or replaced to get *said*. No word has a space."""
    found = process_words(" ".join(said), " ".join(heard))
    return int(found.substitutions + found.deletions + found.insertions)


def matches(said: Sequence[str], heard: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of indices of equal words, in order, on the alignment with the fewest errors."""
    [chunks] = process_words(" ".join(said), " ".join(heard)).alignments
    return [
        (chunk.ref_start_idx + at, chunk.hyp_start_idx + at)
        for chunk in chunks
        if chunk.type == "equal"
        for at in range(chunk.ref_end_idx - chunk.ref_start_idx)
    ]
