"""Words of one decode job -> segments: what a reader takes in as one phrase."""

from collections.abc import Iterator

from pipeline.audio import RATE
from pipeline.recognition.engine import Heard
from pipeline.words import Segment, Word

LONG_PAUSE = round(0.8 * RATE)  # a new phrase whatever the words say
SENTENCE_PAUSE = round(0.2 * RATE)  # enough after a full stop; less is an abbreviation or a number
SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")  # noqa: RUF001  the full-width marks are meant


def phrases(heard: Heard) -> tuple[Segment, ...]:
    """The words of *heard*, all of them in order, cut at sentence ends and long pauses."""
    return tuple(Segment(tuple(run), heard.avg_logprob, heard.no_speech_prob) for run in _runs(heard.words))


def _runs(words: tuple[Word, ...]) -> Iterator[list[Word]]:
    run: list[Word] = []
    for word in words:
        if run and _parted(run[-1], word):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _parted(before: Word, after: Word) -> bool:
    pause = after.start - before.end
    return pause >= (SENTENCE_PAUSE if before.text.endswith(SENTENCE_ENDS) else LONG_PAUSE)
