"""Finds where a live session goes on after its server died, from what its timeline says. Pure.

Words that were committed stay as they are. Each separate channel goes on after its own last word, and the audio is
needed again from the earliest of these positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from pipeline.audio import WINDOW, position
from pipeline.recognition.stream_options import StreamStart
from pipeline.transcription import ChannelState, Continuation, Transcription
from pipeline.translation.translator import needed_from
from pipeline.words import Word
from server.model.orders import Order
from server.translation.targets import Translation

LEAD = position(0.3)
"""The least audio before the end of the last word that is recognised again. The end of a word is known only to 0.1 or
0.2 s, and a new word without its first sound would be recognised as another word."""

REPEATED = 2
"""How many of the last words are recognised again, whole. A model would take the rest of a word for the next word."""

LONGEST_REPEATED = position(2)  # words that begin earlier before the end of the last word are not recognised again
MARGIN = position(0.1)  # before the first word that is recognised again


def starts(place: Continuation, order: Order) -> Mapping[int | None, StreamStart]:
    """Where the recognition of each channel goes on, and after which words."""
    return {channel: _start(place.channel(channel), order.language) for channel in order.live_channels}


def resumes_at(place: Continuation, order: Order) -> int:
    """The position from which the audio is needed again: that of the first of the channels."""
    return min(resume_position(place.channel(channel)) for channel in order.live_channels)


def audio_resumes_at(past: Transcription, order: Order, translation: Translation | None) -> int:
    """The position from which a session that died needs its audio again."""
    settled = resumes_at(past.place, order)
    if translation is None or not translation.listens or not order.translate_to:
        return settled
    begins = [target.begins for target in translation.targets(order, tenant="", past=past)]
    return needed_from(settled, min((one for one in begins if one is not None), default=None))


def redacted_spans(place: Continuation) -> list[tuple[int, int]]:
    """Where the words that are recognised again are redacted: starts and ends."""
    last = [word for state in place.channels.values() for word in state.last_words[-REPEATED:]]
    return [(word.start, word.end) for word in last if word.redacted]


def resume_position(state: ChannelState) -> int:
    """The position at which the audio of a channel must go on.

    It is rounded up to whole windows, because those of all channels have the same borders. Redacted words are not
    recognised again on purpose.
    """
    settled = begin = state.settled
    first = settled - LEAD
    for word in reversed(state.last_words[-REPEATED:]):
        if word.redacted and begin < settled:
            first = max(first, min(word.end, begin))
        if word.redacted or word.start < settled - LONGEST_REPEATED:
            break
        begin = word.start
        first = min(first, begin - MARGIN)
    return max(0, min(-(-first // WINDOW), settled // WINDOW) * WINDOW)


def _start(state: ChannelState, language: str | None) -> StreamStart:
    at = resume_position(state)
    return StreamStart(
        at=at,
        settled=state.settled,
        said=tuple(_words_as_heard(state.last_words[-REPEATED:], at)),
        written=tuple(state.last_words),
        language=state.language or language,
        open_turn=state.open_turn,
    )


def _words_as_heard(words: Sequence[Word], after: int) -> list[Word]:
    """The words that end after that position, as they were heard: "cooper netties" is two."""
    parts: list[Word] = []
    for word in words:
        texts, length = (word.heard or word.text).split(), word.end - word.start
        ends = [word.start + length * count // len(texts) for count in range(len(texts) + 1)]
        parts += [
            replace(word, text=text, start=at, end=end) for text, (at, end) in zip(texts, pairwise(ends), strict=True)
        ]
    return [part for part in parts if part.end > after]
