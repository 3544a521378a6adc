"""Sentences as decided words, for tests of the text stage."""

from collections.abc import Sequence

from pipeline.audio import position
from pipeline.text.options import TextOptions
from pipeline.text.stage import TextStage
from pipeline.words import Word, join_words

LENGTH, GAP = position(0.3), position(0.05)


def words_of(text: str) -> list[Word]:
    """Return the words of *text*, said without pauses. "(1.5)" stands for a pause in seconds."""
    words: list[Word] = []
    at = 0
    for part in text.split():
        if part.startswith("(") and part.endswith(")") and "." in part:
            at += position(float(part[1:-1]))
            continue
        words.append(Word(part, at, at + LENGTH, 0.9))
        at += LENGTH + GAP
    return words


def rewrite(words: Sequence[Word], options: TextOptions, *, language: str = "en", patient: bool = False) -> list[Word]:
    """Return what the text stage makes of *words*."""
    stage = TextStage(options, language=language, patient=patient)
    decided = [placed for word in words for placed in stage.add(word, 0)]
    return [word for word, _ in [*decided, *stage.release()]]


def text_of(text: str, options: TextOptions, *, language: str = "en", patient: bool = False) -> str:
    return join_words(rewrite(words_of(text), options, language=language, patient=patient))
