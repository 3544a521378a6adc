"""Finds a sentence that an answer left out, where words of the next sentence stand in its place, and puts both right.

Theory. Where Whisper leaves out a sentence between two pauses, it stretches the first words of the next one over it:
"the" takes 1.4 s, and "address is 225" comes after the pause. coverage.py does not see that, because any word may be
drawn out. But people do not speak all words between two pauses so much more slowly than usual. So if these have too
little usual time for the speech there, it is recognised once more by itself. If the second answer has enough words, and
none of those that stand there or next to them, they belong behind the pause. Otherwise nothing changes, and so a
drawn-out "not" remains as it is, also if it comes back as "ask not". whisper.py calls these functions for files and
finals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pipeline.audio import RATE, position
from pipeline.recognition.coverage import PAUSE, UNHEARD
from pipeline.recognition.merging import Span
from pipeline.recognition.spoken_form import units_of, usual_time
from pipeline.words import Word

SPARSE = 0.45
"""Words whose usual time is a smaller part than this of the speech between two pauses are too few for it."""

LACKING = position(0.7)
"""The least speech beyond their usual time."""

NEXT = 2
"""Words before and after them that are compared, too: a model may place a word on the wrong side of a pause."""


@dataclass(frozen=True, slots=True)
class SparseSpeech:
    """Speech between two pauses for which there are too few words."""

    span: Span  # positions, from the first speech to the last
    voice: int  # samples of speech in it
    run: Span  # indices of the words that begin in it
    following: int  # position of the first speech after the pause


def find_sparse_speech(words: Sequence[Word], voiced: Sequence[Span]) -> Iterator[SparseSpeech]:
    """Yield the speech between two pauses that has words, but too few, the last one first.

    The speech after the last pause is left out, because no word can belong behind it. Words and spans are in order.
    """
    groups: list[list[int]] = []  # start, end, and the samples of speech between them
    for start, end in voiced:
        if groups and start - groups[-1][1] < PAUSE:
            groups[-1][1] = end
            groups[-1][2] += end - start
        else:
            groups.append([start, end, end - start])
    begin = [sum(word.start < end for word in words) for _, end, _ in [[0, 0, 0], *groups]]
    for at in range(len(groups) - 2, -1, -1):
        (start, end, voice), run = groups[at], (begin[at], begin[at + 1])
        usual = _usual_samples(words[slice(*run)])
        few = voice >= UNHEARD and usual < SPARSE * voice and voice - usual >= LACKING
        if run[0] < run[1] < len(words) and few:
            yield SparseSpeech((start, end), voice, run, groups[at + 1][0])


def fill_sparse_speech(words: Sequence[Word], again: Sequence[Word], sparse: SparseSpeech) -> tuple[Word, ...]:
    """Return *words* with the words of *again*, a second answer about *sparse* alone, if these are enough and new."""
    begin, end = sparse.run
    near, found = ({unit.text for unit in units_of(part)} for part in (words[max(0, begin - NEXT) : end + NEXT], again))
    if _usual_samples(again) < SPARSE * sparse.voice or near & found:
        return tuple(words)
    start = min(sparse.following, words[end].start)
    return (*words[:begin], *again, *_spread(words[begin : end + 1], start), *words[end + 1 :])


def _spread(words: Sequence[Word], start: int) -> Iterator[Word]:
    """Yield *words* with the time from *start* to the end of the last one, parted by their usual times."""
    length = words[-1].end - start
    usual = [_usual_samples([word]) + 1 for word in words]
    ends = [start + length * end // sum(usual) for end in accumulate(usual, initial=0)]
    for word, (first, last) in zip(words, pairwise(ends), strict=True):
        yield replace(word, start=first, end=last)


def _usual_samples(words: Sequence[Word]) -> int:
    return round(usual_time(" ".join(word.text for word in words)) * RATE)
