"""Finds speech for which an answer of the model has no words, so that it can be recognised again.

Whisper may end its answer after the first of several sentences, or leave one out. Nothing in the answer shows that, but
the voice detector does. Whisper also stretches words over pauses, so each word is first shortened to the longest time
that it can take, and to the first pause in it if it is longer. If there is then at least UNHEARD of speech between
two words, or after the last one, it was missed.

The voice detector often reports speech for a moment after a word has ended. Less than REST of it is not missed speech.
If the audio to recognise again began there, its first word would get that time and seem to be there already.

People pause between the groups of a number, so a stretch shorter than UNHEARD is joined with its neighbour, however
long the pause between them. Longer stretches are recognised one by one, because the model may leave out the same
sentence again if it gets several. engine.py calls missed_speech() for files and finals; with_missed() joins the two
answers. misses_turn() tells a live stream whether to ask again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from pipeline.audio import position
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.merging import select_of_turn
from pipeline.recognition.spoken_form import longest_time, plain
from pipeline.words import Word

Span: TypeAlias = tuple[int, int]
"""Start and end, as positions."""

UNHEARD = position(0.8)
"""The least speech without a word that is worth recognising again. Less is a drawn-out vowel or a breath.

tiny.en lost 85 of 1,600 words of joined clips in blocks of three and more. With this it lost none, and 5.8 instead of
10.6 % of the words were wrong.
"""

ANSWER = position(0.2)
"""The least speech between two pauses that is worth recognising again if no word is there: "No." takes 0.3 s."""

PAUSE = position(0.5)
"""A stretch of missed speech that has UNHEARD of speech ends at a silence of this length."""

REST = position(0.2)
"""Less speech than this between a word and a pause is the end of that word."""


TAIL = 2 * REST
"""Speech this close to the end of the audio may belong to a word that has yet to end."""


def misses_turn(request: DecodeRequest, words: Sequence[Word]) -> bool:
    """Return whether *words*, the answer to a live *request*, leave out speech of the turn: they may end before it.

    In a final, speech without words was recognised by itself. So it only counts where a word that was said before the
    turn is placed on it.
    """
    if request.turn is None:
        return False
    end = request.start + len(request.samples) - TAIL
    voiced = request.between(max(request.turn, request.start), end).voiced
    own = select_of_turn(words, [word for word in request.decided if word.end <= request.turn], request.turn)
    return bool(missed_speech(own, voiced)) and not (request.final and missed_speech(words, voiced))


def skips_speech(request: DecodeRequest, words: Sequence[Word]) -> bool:
    """Return whether *words*, which begin with the decided ones of *request*, go on after speech that has none.

    Told that "the" was said last, Whisper may go on after a later "the".
    """
    last = len(request.decided)
    return 0 < last < len(words) and request.speech_between(request.decided[-1].end, words[last].start) >= UNHEARD


def missed_speech(words: Sequence[Word], voiced: Sequence[Span], since: int = 0, *, short: bool = False) -> list[Span]:
    """Return the spans after *since* with at least UNHEARD of speech and no word. Each begins and ends with speech.

    *voiced* has the spans in which somebody speaks. Words and spans are in order.
    *short*: also spans with at least ANSWER of speech between pauses.
    """
    stretches: list[list[int]] = []  # start, end, and the samples of speech between them
    for start, end in _subtract(voiced, [(0, since), *_word_spans(words, voiced)]):
        if end - start < REST and any(first < start and end == last for first, last in voiced):
            continue
        if stretches and not _word_begins(words, stretches[-1][1], start) and not _is_apart(stretches[-1], start):
            stretches[-1][1] = end
            stretches[-1][2] += end - start
        else:
            stretches.append([start, end, end - start])
    joined: list[list[int]] = []
    for start, end, voice in stretches:
        if joined and voice < UNHEARD and not _word_begins(words, joined[-1][1], start):
            joined[-1][1] = end
            joined[-1][2] += voice
        else:
            joined.append([start, end, voice])
    apart = _between_pauses(voiced) if short else ()
    return [
        (start, end)
        for start, end, voice in joined
        if voice >= UNHEARD or (voice >= ANSWER and any(first == start and last <= end for first, last in apart))
    ]


def _between_pauses(voiced: Sequence[Span]) -> list[Span]:
    """Return the spans from one pause to the next."""
    spans = list(voiced[:1])
    for first, last in voiced[1:]:
        if first - spans[-1][1] < PAUSE:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return spans


def _is_apart(stretch: Sequence[int], start: int) -> bool:
    """Return whether a new stretch begins at *start*: *stretch* is long enough, and a pause follows it."""
    return stretch[2] >= UNHEARD and start - stretch[1] >= PAUSE


def _end_in_pauses(words: Sequence[Word], voiced: Sequence[Span]) -> list[Word]:
    """Return *words*. One that lasts too long ends at its first pause, if it has any."""
    pauses = [last for (_, last), (first, _) in pairwise(voiced) if first - last >= PAUSE]
    ended: list[Word] = []
    for word in words:
        end, longest = word.end, word.start + longest_time(word.text)
        if end > longest:
            end = next((pause for pause in pauses if word.start < pause < longest), end)
        ended.append(word.at(word.start, end))
    return ended


def with_missed(words: Sequence[Word], missed: Sequence[Word], stretch: Span) -> tuple[tuple[Word, ...], int]:
    """Return *words* and those of *missed* whose middle lies in *stretch*, in order, and where the last of them begins.

    *missed* is a second answer about *stretch* and a little audio around it, in which the first word or the last may
    be one that *words* have already. If it has none of *stretch*, the place is the end of that: it was heard in vain.
    """
    found = [word for word in missed if stretch[0] <= (word.start + word.end) // 2 < stretch[1]]
    before = [word for word in words if word.start < stretch[0]]
    after = list(words[len(before) :])
    if found and before and plain(found[0].text) == plain(before[-1].text):
        found = found[1:]
    if found and after and plain(found[-1].text) == plain(after[0].text):
        found = found[:-1]
    placed: list[Word] = []
    for word in (*before, *found, *after):
        if placed and placed[-1].end > word.start:
            placed[-1] = replace(placed[-1], end=max(placed[-1].start, word.start))
        start = max(word.start, placed[-1].end if placed else 0)
        placed.append(word.at(start, max(word.end, start)))
    return tuple(placed), max(found[-1].start, stretch[0] + UNHEARD) if found else stretch[1]


def _word_spans(words: Sequence[Word], voiced: Sequence[Span]) -> Iterator[Span]:
    """Yield the span that each word can cover. It begins with the first speech in or after the word."""
    for word in _end_in_pauses(words, voiced):
        start = next((max(word.start, first) for first, last in voiced if last > word.start), word.start)
        start = min(start, word.end)
        yield start, min(word.end, start + longest_time(word.text))


def _subtract(spans: Sequence[Span], holes: Sequence[Span]) -> Iterator[Span]:
    """Yield *spans* without *holes*. Both are in order."""
    for start, end in spans:
        at = start
        for first, last in holes:
            if last <= at or first >= end:
                continue
            if first > at:
                yield at, first
            at = max(at, last)
        if at < end:
            yield at, end


def _word_begins(words: Sequence[Word], start: int, end: int) -> bool:
    return any(start <= word.start < end for word in words)
