"""The turns of a live stream: finds stretches of speech, keeps the undecided ones, and decides when each is over.

If only silence counts, every turn ends after the same pause, whatever was said. If meaning counts too, a short pause is
enough after a sentence that sounds finished, and a longer one is needed otherwise. So each pause is checked while it is
short, and once or twice again later, because a speaker who stays silent has probably finished. If no check finds an
end, the turn ends after TurnOptions.endpointing.

A check estimates from the sound, with the weights of smart-turn, whether the speaker has finished. The model takes
Whisper's features of the last eight seconds and answers with a probability. That takes 0.05 s of CPU, so it runs on a
thread of its own and never on the event loop. All streams share one TurnEndDetector.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnxruntime

from pipeline.audio import RATE, WINDOW, Pcm, Samples, floats_of, position
from pipeline.errors import EngineFailed
from pipeline.events import SpeechEnded, SpeechStarted, TurnEnded
from pipeline.ingest.speech import Segmenter, SegmenterOptions
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.whisper.mel import FRAMES_PER_S, LogMel
from pipeline.weights import TURN_ENDS

_USUAL = SegmenterOptions()

ENTER, LEAVE = _USUAL.enter, _USUAL.leave
"""The probabilities that start speech and continue it."""

ONSET, ENDPOINTING = _USUAL.min_speech, position(0.5)
"""The shortest speech, a tenth of a second, and the silence that ends a turn."""

APART = position(1.5)
"""Speech before a longer silence does not help to understand what follows it."""

LONGEST_CHECK = position(8)
"""The most audio of a check: the model takes no more."""


WINDOW_S = LONGEST_CHECK // RATE
"""Seconds of audio that the model takes; a shorter turn is preceded by silence."""

_MELS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """All lengths in samples."""

    onset: int = ONSET
    endpointing: int = ENDPOINTING


@dataclass(slots=True)
class Turn:
    """One stretch of speech. *voiced* is the end of its last window with speech, which grows while the turn is open."""

    start: int
    voiced: int
    ended: int | None = None  # where the silence became long enough, or end() was called
    over: float | None = None  # the probability that its speaker has finished, if a check looked

    @property
    def open(self) -> bool:
        return self.ended is None


class Turns:
    """Holds the turns that are not decided yet, oldest first. Only the newest can be open."""

    def __init__(self, options: TurnOptions, start: int = 0) -> None:
        """*start* is the position of the first window."""
        self._segmenter = Segmenter(
            SegmenterOptions(
                enter=ENTER,
                leave=LEAVE,
                min_speech=options.onset,
                silence=options.endpointing,
                pad=0,  # stream.py itself keeps the audio around speech
            ),
            start,
        )
        self._turns: deque[Turn] = deque()

    @property
    def first(self) -> Turn | None:
        return self._turns[0] if self._turns else None

    @property
    def last(self) -> Turn | None:
        return self._turns[-1] if self._turns else None

    @property
    def steady(self) -> int:
        """The position before which no window can end with an event, whatever the windows contain."""
        return self._segmenter.steady

    def add_window(self, now: int, speech: float) -> list[SpeechStarted | SpeechEnded]:
        """Take the speech probability of the window that ends at *now*; return the starts and ends of turns."""
        events = self._segmenter.add_window(speech)
        self._follow(events, now)
        return events

    def end(self, now: int) -> list[SpeechStarted | SpeechEnded]:
        """End the open turn, if any, and return its end."""
        events = self._segmenter.end()
        self._follow(events, now)
        return events

    def split_first(self, at: int, voiced: int) -> None:
        """Make two turns of the first one: one whose speech ends at *voiced*, and one that begins at *at*."""
        turn = self._turns[0]
        self._turns[0] = Turn(turn.start, voiced, ended=at)
        self._turns.insert(1, replace(turn, start=at))

    def remove_first(self) -> None:
        """Forget the first turn, which is decided."""
        self._turns.popleft()

    def _follow(self, events: list[SpeechStarted | SpeechEnded], now: int) -> None:
        for event in events:
            if isinstance(event, SpeechStarted):
                self._turns.append(Turn(start=event.at, voiced=now))
            else:
                self._turns[-1].ended = now
        if self._segmenter.speaking:
            self._turns[-1].voiced = self._segmenter.voiced


@dataclass(frozen=True, slots=True)
class Eagerness:
    """How soon a turn counts as over. Lengths are in samples."""

    looks: tuple[tuple[int, float], ...]  # silences in a pause, each with the probability that ends the turn there
    longest: int  # pause, after which it ends whatever was said


# After a tenth of a second and half a second. With more silence the model is less sure (area under the curve 0.87 after
# 0.1 s, 0.80 after 0.8 s), except for very short turns such as "Hello": 0.32 after 0.1 s, 0.96 after half a second.
MEDIUM = Eagerness(((ONSET, 0.7), (ENDPOINTING, 0.95)), position(3))

EAGERNESS: Mapping[str, Eagerness] = {
    "low": Eagerness(((ONSET, 0.9),), position(5)),
    "medium": MEDIUM,
    "high": Eagerness(((ONSET, 0.5), (ENDPOINTING, 0.9)), APART),
    "auto": MEDIUM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCheckOptions:
    """How turns end by meaning. Lengths are in samples."""

    eagerness: Eagerness = MEDIUM
    # Longer silences are cut to this. A clause is a whole sentence without the one before it: of 23 pauses in sentences
    # 7 ended a turn so, 10 with silences as they were, 18 with the turn alone.
    gap: int = 9 * WINDOW


@dataclass(frozen=True, slots=True, eq=False)
class TurnCheck:
    """The question whether *turn* is over, and the audio by which it is answered."""

    turn: Turn
    samples: Samples
    end: int  # of the audio
    voiced: int  # where the speech of the turn ended then
    enough: float  # with this probability the turn is over


class TurnChecks:
    """Chooses the checks of one stream, at most one at a time, and reports the ends of its turns."""

    def __init__(self, options: TurnCheckOptions | None, open_turn: int | None = None) -> None:
        """Without *options* turns end by silence alone: no turn is checked, and no end is reported.

        *open_turn*: as in StreamStart.
        """
        self._options = options
        self._in_flight: TurnCheck | None = None
        self._pause: tuple[Turn, int] | None = None  # the turn and its end of speech of the pause that was looked at
        self._looks = 0  # at that pause
        self._last_word_end = open_turn

    def next_look(self, turn: Turn | None) -> int:
        """Return the position in the pause after *turn* at which it is checked next, if the pause lasts that long."""
        if self._options is None or turn is None or not turn.open or self._in_flight is not None:
            return sys.maxsize
        done = self._looks if self._pause == (turn, turn.voiced) else 0
        looks = self._options.eagerness.looks
        return turn.voiced + looks[done][0] if done < len(looks) else sys.maxsize

    def begin(self, turn: Turn, audio: Pcm, voiced: bytes, *, start: int) -> TurnCheck:
        """Return the check of the newest turn, which next_look() said is due. It is in flight then.

        *audio* begins at *start* and ends now. *voiced* has a byte for each of its windows: 1 if it has speech, else 0.

        Half of a sentence often sounds like a whole one. So a turn that closely follows another is checked together
        with the speech before it. Long silences are made short; the pause that is being checked keeps its length.
        """
        assert self._options is not None
        looks, end = self._options.eagerness.looks, start + len(audio)
        self._pause = turn, turn.voiced
        self._looks = sum(turn.voiced + silence <= end for silence, _ in looks)
        silent = np.frombuffer(voiced, np.uint8) == 0
        frame = np.arange(len(silent))
        silence = frame - np.maximum.accumulate(np.where(silent, -1, frame))  # frames since the last with speech
        before = max(0, (turn.start - start) // WINDOW)
        apart = np.flatnonzero(silence[:before] * WINDOW > APART)
        included = (silence * WINDOW <= self._options.gap) | (frame >= (turn.voiced - start) // WINDOW)
        included[: apart[-1] + 1 if len(apart) else 0] = False
        newest = floats_of(audio.reshape(-1, WINDOW)[included][-LONGEST_CHECK // WINDOW :].ravel())
        self._in_flight = TurnCheck(turn, newest, end, turn.voiced, looks[self._looks - 1][1])
        return self._in_flight

    def is_late(self, now: int, patience: int) -> bool:
        """Return whether the check in flight, if any, began more than *patience* samples ago."""
        return self._in_flight is not None and now >= self._in_flight.end + patience

    def receive(self, probability: float | None) -> bool:
        """Take the answer to the check in flight, None if it failed. Return whether its turn ends because of it."""
        check, self._in_flight = self._in_flight, None
        if check is None:
            raise ValueError("no check is in flight")
        turn = check.turn
        if probability is None or not turn.open or turn.voiced != check.voiced:
            return False  # the speaker went on
        turn.over = probability
        return probability >= check.enough

    def note_word(self, until: int) -> None:
        """Note the end of the last word so far."""
        self._last_word_end = until

    def conclude(self, turn: Turn | None = None) -> list[TurnEnded]:
        """Return TurnEnded for *turn*, if it has words. All of them are known. None: a turn from before this stream."""
        until, self._last_word_end = self._last_word_end, None
        if self._options is None or until is None:
            return []
        return [TurnEnded(until, turn.over if turn is not None else None)]


class TurnEndModel:
    """smart-turn, loaded. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights, which takes 0.1 s. Raises ModelUnavailable."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            TURN_ENDS.read(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        bootstrap.prepare()
        from faster_whisper.feature_extractor import FeatureExtractor  # noqa: PLC0415  after prepare()

        self._features = LogMel(FeatureExtractor(feature_size=_MELS).mel_filters)

    def __call__(self, turn: Samples) -> float:
        """Return the probability that the *turn*, which ends with a short pause, is over."""
        length = WINDOW_S * RATE
        newest = turn[-length:]
        padded = np.zeros(length, np.float32)
        padded[length - len(newest) :] = newest
        padded = (padded - padded.mean()) / np.sqrt(padded.var() + np.float32(1e-7))
        (answer,) = self._session.run(None, {self._input: self._features(padded, WINDOW_S * FRAMES_PER_S)[np.newaxis]})
        return float(answer[0, 0])


class TurnEndDetector:
    """A TurnEndModel for all streams of one event loop: it answers one question after the other, on a thread."""

    def __init__(self) -> None:
        """Load the model. Raises ModelUnavailable."""
        self._model = TurnEndModel()
        self._thread = ThreadPoolExecutor(1, "turn ends")

    async def probability(self, turn: Samples) -> float:
        """Return the probability that *turn* is over. Raises EngineFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(self._model, turn))
        except Exception as error:
            raise EngineFailed(f"the end of a turn could not be found: {type(error).__name__}") from error

    def close(self) -> None:
        """Wait for the question that is being answered, and answer no more."""
        self._thread.shutdown(cancel_futures=True)
