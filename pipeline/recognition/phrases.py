"""Cuts the words of one decode job into segments, each a phrase for readers. pipeline/batch.py calls it for files."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.audio import RATE
from pipeline.language_profiles import SENTENCE_ENDS
from pipeline.recognition.engine import RecognitionResult
from pipeline.words import Segment, Word

LONG_PAUSE = round(0.8 * RATE)  # begins a new segment after any word
SENTENCE_PAUSE = round(0.2 * RATE)  # enough after a full stop; less follows an abbreviation or a number


def phrases(result: RecognitionResult) -> tuple[Segment, ...]:
    """Return the words of *result* in order, cut at ends of sentences, long pauses and changes of the language."""
    return tuple(segment_of(run, result) for run in _runs(result.words))


def segment_of(words: Sequence[Word], result: RecognitionResult) -> Segment:
    """Return *words* as a segment with the scores of *result*, the last answer about them."""
    sure = result.language_probability if words[0].language in {result.language} - {None} else None
    return Segment(tuple(words), result.avg_logprob, result.no_speech_prob, language_probability=sure)


def without_end(word: Word) -> Word:
    """Return *word* without marks that end a sentence."""
    return replace(word, text=word.text.rstrip("".join(SENTENCE_ENDS)) or word.text)


def _runs(words: tuple[Word, ...]) -> Iterator[list[Word]]:
    run: list[Word] = []
    for word in words:
        if run and _is_cut(run[-1], word):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _is_cut(before: Word, after: Word) -> bool:
    if before.language != after.language:
        return True
    pause = after.start - before.end
    return pause >= (SENTENCE_PAUSE if before.text.endswith(SENTENCE_ENDS) else LONG_PAUSE)
