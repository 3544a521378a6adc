"""Speech with numbers, and the many ways in which recognisers write it, for tests of what is heard twice."""

import random
from collections.abc import Sequence
from itertools import groupby

from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.spoken_form import units_of
from pipeline.words import Word
from tests.pipeline.scripted_streams import result_of

FIGURES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = ("please", "call", "after", "lunch", "the", "shop", "was", "closed", "thank", "you")
SEPARATORS = ("", "-", ",", ".", " ")


@st.composite
def dictations(draw: st.DrawFn) -> tuple[Word, ...]:
    """Make speech: words and figures of 0.2 to 0.6 s, with pauses of up to 0.4 s, and longer ones after words.

    No word is equal to one of the three before it: times within a number are guessed, so only their count would tell
    such figures apart.
    """
    words: list[Word] = []
    at = draw(st.integers(0, position(1)))
    for text in draw(st.lists(st.sampled_from((*FIGURES, *FIGURES, *WORDS)), min_size=1, max_size=30)):
        if any(word.text == text for word in words[-3:]):
            continue
        length = draw(st.integers(position(0.2), position(0.6)))
        words.append(Word(text, at, at + length, 0.9))
        pauses = (0, 0, 800, 3000, 6000) if text in FIGURES else (0, 0, 800, 3000, 6000, 16_000, 30_000)
        at += length + draw(st.sampled_from(pauses))
    return tuple(words)


def respell(words: Sequence[Word], seed: int) -> tuple[Word, ...]:
    """Return *words* with their figures written in other ways: as words or figures, apart or several in one."""
    chance = random.Random(seed)
    written: list[Word] = []
    for is_figure, run in groupby(words, key=lambda word: word.text in FIGURES):
        rest = list(run)
        while rest:
            count = chance.randint(1, len(rest)) if is_figure else 1
            taken, rest = rest[:count], rest[count:]
            style = chance.choice(SEPARATORS)
            if not is_figure or (count == 1 and chance.random() < 0.5):
                written.append(taken[0])
            elif style == " ":
                written += [Word(str(FIGURES.index(word.text)), word.start, word.end, 0.9) for word in taken]
            else:
                text = style.join(str(FIGURES.index(word.text)) for word in taken)
                written.append(Word(text, taken[0].start, taken[-1].end, 0.9))
    return tuple(written)


def units_in(words: Sequence[Word]) -> list[str]:
    """Return the units of *words*, to compare what was said."""
    return [unit.text for unit in units_of(words)]


class Respelling:
    """A recogniser that hears every word in its window, and writes the figures otherwise each time.

    Like bigger models it may write a number as "830-166-1318". A word that the end of the window cuts is not heard.
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words

    def __call__(self, request: DecodeRequest) -> RecognitionResult:
        end = request.start + len(request.samples)
        inside = [word for word in self._words if request.start <= (word.start + word.end) // 2 and word.end <= end]
        return result_of(respell(inside, request.start * 31 + len(request.samples)))
