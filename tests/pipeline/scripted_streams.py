"""Speech and listeners that are made up, and whole streams through StreamCore, for tests."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, cycle, pairwise

import numpy as np
from hypothesis import strategies as st

from pipeline.audio import WINDOW, position
from pipeline.events import (
    Event,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    Warned,
    WordsCommitted,
)
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BEGINNING, StreamOptions, StreamStart
from pipeline.words import Word, join_words

QUIET = np.zeros((1, WINDOW), np.float32)

ScriptedRecogniser = Callable[[DecodeRequest], RecognitionResult | None]


def result_of(words: tuple[Word, ...] = (), *, incomplete: bool = False) -> RecognitionResult:
    return RecognitionResult(words, "en", 0.9, avg_logprob=-0.2, no_speech_prob=0.05, incomplete=incomplete)


def timed_words(*words: tuple[str, float, float]) -> tuple[Word, ...]:
    """Return words of (text, start, end) in seconds."""
    return tuple(Word(text, position(start), position(end), 0.9) for text, start, end in words)


def talk(count: int, *, start: float = 0.5, each: float = 0.4, gap: float = 0.0) -> tuple[Word, ...]:
    """Return *count* different words, evenly spaced."""
    return timed_words(*((f"w{n}", start + n * (each + gap), start + n * (each + gap) + each) for n in range(count)))


def voice(words: tuple[Word, ...], end: int) -> Iterator[float]:
    """Return the speech probability of every frame up to *end* if *words* are spoken."""
    for frame in range(end // WINDOW):
        start, stop = frame * WINDOW, (frame + 1) * WINDOW
        yield 0.95 if any(word.start < stop and word.end > start for word in words) else 0.02


def perfect(words: tuple[Word, ...]) -> ScriptedRecogniser:
    """Recognise every word whose middle is in the window, or its beginning if it is not over yet."""

    def listen(request: DecodeRequest) -> RecognitionResult:
        end = request.start + len(request.samples)
        inside = [word for word in words if request.start <= (word.start + word.end) // 2 < end]
        return result_of(
            tuple(word if word.end <= end else replace(word, text=word.text[:1], end=end) for word in inside)
        )

    return listen


@dataclass
class Run:
    core: StreamCore
    events: list[Event]
    requests: list[DecodeRequest]

    @property
    def committed(self) -> tuple[Word, ...]:
        return tuple(chain.from_iterable(event.words for event in self.events if isinstance(event, WordsCommitted)))

    @property
    def text(self) -> str:
        return join_words(self.committed)

    def only(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def stream(
    speech: Iterator[float],
    listen: ScriptedRecogniser,
    *,
    options: StreamOptions | None = None,
    start: StreamStart = BEGINNING,
    delays: Iterable[int] = (2,),
    finalize_at: frozenset[int] = frozenset(),
    patient: bool = False,
) -> Run:
    """Run a whole stream. Each answer comes after so many frames of audio. The sender waits while the core is full,
    and a *patient* one also while it is behind. An answer of None is a failure.

    Where the core says that nothing can come of the next frame, nothing does.
    """
    core = StreamCore(options or StreamOptions(), start)
    run, waits = Run(core, [], []), cycle(delays)
    request, due = None, 0

    def ask(number: int) -> None:
        nonlocal request, due
        if request is None and (request := core.decode_wanted()) is not None:
            run.requests.append(request)
            due = number + next(waits)

    def answer() -> None:
        nonlocal request
        assert request is not None
        answered, request = request, None
        core.receive_failure() if (said := listen(answered)) is None else core.receive_hypothesis(said)

    number = 0
    for number, probability in enumerate(speech):
        while not core.room:
            assert request is not None, "a full core must have something in flight"
            answer()
            ask(number)
        run.events += core.events_received()
        before, steady = len(run.requests), core.steady
        core.receive_audio(QUIET, [probability])
        run.events += (fresh := core.events_received())
        if number in finalize_at:
            core.finalize()
        ask(number)
        came = bool(fresh) or len(run.requests) > before
        assert core.position >= steady or number in finalize_at or not came
        while request is not None and (due <= number or (patient and core.late)):
            answer()
            ask(number)
        run.events += core.events_received()
    core.finish()
    ask(number)
    while request is not None:
        answer()
        ask(number)
    run.events += core.events_received()
    assert core.finished
    return run


def assert_well_formed(run: Run) -> None:
    """Check what readers may rely on, whatever the recogniser says."""
    count, segment, current, open_turn, last_end = 0, 0, [], False, 0
    for event in run.events:
        match event:
            case WordsCommitted(words, index, number):
                assert words
                assert (index, number) == (count, segment)
                for word in words:
                    assert last_end <= word.start <= word.end <= run.core.position
                    last_end = word.end
                count += len(words)
                current += words
            case SegmentClosed(number, closed, _):
                assert number == segment
                assert closed.words == tuple(current)
                segment, current = segment + 1, []
            case Partial(words, number):
                assert number == segment
                assert all(last_end <= word.start <= word.end for word in words)
                assert all(before.end <= after.start for before, after in pairwise(words))
            case SpeechStarted():
                assert not open_turn
                open_turn = True
            case SpeechEnded():
                assert open_turn
                open_turn = False
            case LanguageDetected() | Warned():
                pass
    assert not current, "every committed word belongs to a closed segment"
    assert not open_turn
    assert run.core.counts.words == count
    assert run.core.counts.segments == segment


@st.composite
def speeches(draw: st.DrawFn) -> tuple[Word, ...]:
    """Make speech: words of 0.15 to 0.7 s, pauses of up to two seconds, some words repeated."""
    words, at = [], draw(st.integers(0, position(1)))
    for _ in range(draw(st.integers(1, 60))):
        length = draw(st.integers(position(0.15), position(0.7)))
        words.append(Word(draw(st.sampled_from(("so", "my", "fellow", "ask", "not", "what"))), at, at + length, 0.9))
        at += length + draw(st.sampled_from((0, 0, 0, 800, 3000, 6000, 12_000, 32_000)))
    return tuple(words)


ANY_DELAYS = st.lists(st.integers(0, 60), min_size=1, max_size=5)
