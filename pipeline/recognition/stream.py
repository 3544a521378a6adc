"""The heart of a live stream, without clock or I/O: audio and hypotheses in, events and decode requests out.

    core.receive_audio(frame, speech=0.9)      # every WINDOW samples, with the probability that they hold speech
    request = core.decode_wanted()             # at most one is in flight
    core.receive_hypothesis(heard)             # its answer, at any later time
    for event in core.events_received(): ...

Speech probabilities cut the stream into turns. The words of the first turn are decided while later audio is kept:
partial requests at every step of new speech, a speculative final as soon as the speaker pauses, published when the
pause is long enough to end the turn and dropped when the speaker goes on. Every decision is a function of audio
positions alone, so the same audio in other chunks, or at another speed, gives the same words as long as each answer
comes before the next request is due. The numbers below are measured: see the README of this package.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import pairwise

from pipeline.audio import LONGEST_JOB, WINDOW, Samples, position
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
from pipeline.recognition.agreement import Agreement, AgreementOptions
from pipeline.recognition.coverage import unheard
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.turns import Turn, TurnOptions, Turns
from pipeline.recognition.voicing import Voicing
from pipeline.recognition.window import Window
from pipeline.words import Segment, Word, written

ATTEMPTS = 3
"""Failed decodes of one final before the words of the last good hypothesis are taken instead."""

ROOM = position(5)
"""Decided audio that is given up at a time when the window is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a session may set, and the measured constants of the policy."""

    language: str | None = None  # None: detected once
    hint: str = ""  # vocabulary the user expects
    longest: int = position(15)  # samples of one segment; longer speech is cut and goes on in the next
    turns: TurnOptions = field(default_factory=TurnOptions)
    agreement: AgreementOptions = field(default_factory=AgreementOptions)
    first_step: int = position(0.3)  # speech heard before the first partial is asked for
    step: int = position(0.5)  # speech heard between partials, unless pace() says otherwise
    pause: int = position(0.2)  # silence that is worth a speculative final ...
    hush: int = position(0.1)  # ... and silence before which a partial is still worth asking
    lead: int = position(0.4)  # audio kept before speech was noticed: first sounds are soft
    speech: float = 0.3  # frames with this speech probability hold words
    partial: int = position(9)  # audio in which a partial is heard: what was decided before the turn fills it up
    final: int = position(14)  # the same for a final
    apart: int = position(1.5)  # silence after which what was said before is no longer heard with a turn
    known: float = 0.5  # probability that settles the language ...
    known_after: int = position(1.5)  # ... of so much speech, or of any that ended: of less, languages sound alike

    def __post_init__(self) -> None:
        """Raise ValueError where a turn and its silence would not fit into one decode job."""
        if self.longest + self.turns.endpointing > LONGEST_JOB - position(3):
            raise ValueError("the longest utterance and its endpointing silence must fit into 27 s together")


class _Aim(Enum):
    PARTIAL = auto()  # the turn goes on
    FINAL = auto()  # the speaker pauses, or stopped
    CUT = auto()  # the segment is too long


@dataclass(frozen=True, slots=True)
class _Ask:
    aim: _Aim
    end: int  # of the audio asked about
    voiced: int  # where the turn's speech ended when it was asked


@dataclass(slots=True)
class StreamCounts:
    """What a stream has done so far, for the metrics page."""

    partials: int = 0  # answers received
    finals: int = 0
    rejected: int = 0  # answers that a gate of the engine emptied
    unvoiced: int = 0  # words of hypotheses not believed because nobody spoke where they were said to be
    failures: int = 0  # requests the engine failed to answer
    words: int = 0
    segments: int = 0
    forced: int = 0  # segments cut by length


class StreamCore:
    """One live stream: decides when to ask, what to believe, and when a word is final.

    Raises ValueError where its caller breaks the protocol: audio after finish() or into a full window, an answer to
    nothing.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.counts = StreamCounts()
        self._options = options
        self._window = Window()
        self._turns = Turns(options.turns)
        self._agreement = Agreement(options.agreement)
        self._events: list[Event] = []
        self._step = options.step
        self._language = options.language
        self._in_flight: _Ask | None = None
        self._answered: _Ask | None = None  # the last ask about the first turn that was answered
        self._last_words: Heard | None = None  # the answer to it, when it was a final
        self._asked_from = 0  # where the audio of the request in flight, or of the last one, begins
        self._alone = False  # the turn is heard without the speech before it, of which the model made an end
        self._failed = 0  # in a row
        self._segment: list[Word] = []
        self._segment_start = 0
        self._shown: tuple[str, ...] = ()
        self._finished = False
        self._end: int | None = None  # of the real audio, once that is known

    @property
    def position(self) -> int:
        """Samples received."""
        return self._window.end

    @property
    def full(self) -> bool:
        """No more audio can be taken before an answer comes."""
        return self._window.full

    @property
    def finished(self) -> bool:
        """finish() was called and everything is decided: no event and no request will come any more."""
        return self._finished and self._turns.first is None

    @property
    def decode_due(self) -> bool:
        """There is something to ask, or something newer than what is in flight."""
        return self._next() is not None

    @property
    def behind(self) -> bool:
        """The request in flight should be answered before more audio is taken, if the sender can wait.

        With a caller that waits here, words depend on the audio alone and not on its speed or the decoder's.
        """
        ask = self._in_flight
        return ask is not None and (self.decode_due or self.position >= ask.end + self._options.pause)

    def pace(self, step: int) -> None:
        """Ask for partials after *step* samples of new speech, if that is more than usual: wider under load."""
        self._step = max(step, self._options.step)

    def receive_audio(self, window: Samples, *, speech: float) -> None:
        """Take the next WINDOW samples (float32, -1..1). Ask events_received() and decode_wanted() after each call."""
        if self._finished:
            raise ValueError("audio after finish()")
        self._window.append(window, speech=speech)
        idle = self._turns.first is None
        self._tell(self._turns.receive(self.position, speech))
        if idle and self._turns.first is not None:
            self._begin(self._turns.first)
        elif idle:
            self._forget(self.position - self._options.final)
        if self._window.full:  # decided speech is only company: it makes room for what is not decided
            self._forget(min(self._agreement.end - self._options.lead, self._window.start + ROOM))

    def finalize(self) -> None:
        """Decide everything heard so far as if the speaker had stopped here. The stream goes on."""
        self._tell(self._turns.end(self.position))

    def finish(self, end: int | None = None) -> None:
        """No more audio will come; what was received after *end* was padding. Ask until finished."""
        self._end = end
        self._finished = True
        self.finalize()

    def decode_wanted(self) -> DecodeRequest | None:
        """The next window to hear, or None. Once given it is in flight until it is answered, failed or withdrawn."""
        ask = self._next() if self._in_flight is None else None
        if ask is None:
            return None
        self._in_flight = ask
        start = self._asked_from = self._start(ask)
        return DecodeRequest(
            samples=self._window.samples(start, ask.end),
            start=start,
            language=self._language,
            hint=self._options.hint,
            said=written(self._decided(start)) if ask.aim is _Aim.PARTIAL else "",
            final=ask.aim is not _Aim.PARTIAL,
            voiced=self._window.voiced(start, ask.end, self._options.turns.enter),
        )

    def withdraw(self) -> None:
        """The request in flight was taken back before anybody began to hear it; a newer one can take its place."""
        self._land()

    def receive_failure(self) -> None:
        """The request in flight could not be heard. It is asked again; a final only ATTEMPTS times."""
        ask = self._land()
        self.counts.failures += 1
        self._failed += 1
        if ask.aim is _Aim.PARTIAL:
            self._answered, self._last_words = ask, None  # the next step asks again
        elif self._failed >= ATTEMPTS:
            self._failed = 0
            self._events.append(Warned("engine_failed", "the end of an utterance was taken from an earlier hypothesis"))
            self._answer(ask, Heard(self._agreement.pending, self._language, None, 0.0, 0.0))

    def receive_hypothesis(self, heard: Heard) -> None:
        """Take the answer to the request in flight."""
        ask = self._land()
        self.counts.partials += ask.aim is _Aim.PARTIAL
        self.counts.finals += ask.aim is not _Aim.PARTIAL
        self._failed = 0
        if heard.rejected is not None:
            self.counts.rejected += 1
            heard = replace(heard, words=())
        heard = replace(heard, words=self._spoken(ask, heard))
        if ask.aim is _Aim.PARTIAL and not self._alone and self._missed(ask, heard):
            self._alone = True  # and the next request is for the same audio, with nothing before it
            return
        self._learn_language(heard, ask)
        self._answer(ask, heard)

    def events_received(self) -> list[Event]:
        """Everything that happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _tell(self, events: list[SpeechStarted | SpeechEnded]) -> None:
        self._events += events
        if any(isinstance(event, SpeechEnded) for event in events):
            self._conclude_if_known()

    def _next(self) -> _Ask | None:
        """What to ask about the first turn, if anything, beyond what was asked."""
        turn = self._turns.first
        if turn is None:
            return None
        options, now, last = self._options, self.position, self._in_flight or self._answered
        asked = last.end if last else 0
        tail = min(_whole(turn.voiced + options.pause), turn.ended or now)
        limit = _whole(self._segment_start + options.longest)
        cut = _Ask(_Aim.CUT, limit, turn.voiced)
        final = _Ask(_Aim.FINAL, tail, turn.voiced)
        if tail > limit:
            return None if self._in_flight == cut else cut
        quiet = now - turn.voiced >= options.pause
        if not turn.open or quiet:
            known = last is not None and last.aim is _Aim.FINAL and last.voiced == turn.voiced
            return None if known else final
        due = last.end + self._step if last else turn.start + options.first_step
        if now >= due and turn.voiced > max(asked, now - options.hush):
            return _Ask(_Aim.PARTIAL, now, turn.voiced)
        return None

    def _land(self) -> _Ask:
        ask, self._in_flight = self._in_flight, None
        if ask is None:
            raise ValueError("no request is in flight")
        return ask

    def _answer(self, ask: _Ask, heard: Heard) -> None:
        self._answered = ask
        self._last_words = heard if ask.aim is _Aim.FINAL else None
        if ask.aim is _Aim.CUT:
            self._cut(ask, heard)
            return
        if not self._conclude_if_known():
            paused = ask.aim is _Aim.FINAL
            doubted = self._language is None
            words = self._agreement.receive(heard.words, until=self._until(ask), paused=paused, doubted=doubted)
            self._commit(words)
            self._show()

    def _conclude_if_known(self) -> bool:
        """Close the first turn when it has ended and its last words were heard to the end."""
        turn, ask, heard = self._turns.first, self._answered, self._last_words
        if turn is None or turn.open or ask is None or heard is None or ask.voiced < turn.voiced:
            return False
        self._commit(self._agreement.conclude(heard.words, until=self._until(ask)))
        self._close(heard, forced=False)
        self._agreement.settle(ask.end)
        self._agreement.part()
        self._forget(ask.end - self._options.final)
        self._turns.done()
        if self._turns.first is not None:
            self._begin(self._turns.first)
        return True

    def _cut(self, ask: _Ask, heard: Heard) -> None:
        """End a segment that grew too long: commit what is safe, go on with the rest in the next."""
        guard = self._options.agreement.guard
        self._commit(self._agreement.conclude(heard.words, until=self._until(ask), guard=guard))
        rest, edge = self._agreement.pending, ask.end - guard
        # A word that only seems to last long must not stop the stream from going on.
        self._agreement.settle(min(edge, max(rest[0].start, edge - position(2))) if rest else edge)
        self._close(heard, forced=True)
        self._segment_start = self._agreement.end
        self._forget(self._agreement.end - self._options.final)
        self._show()

    def _begin(self, turn: Turn) -> None:
        """*turn* is the first one now."""
        self._answered = self._last_words = None
        self._alone = False
        self._segment_start = max(turn.start, self._agreement.end)
        self._agreement.settle(turn.start - self._options.lead)

    def _close(self, heard: Heard, *, forced: bool) -> None:
        """Close the segment, if it has words. Its numbers are those of its last hypothesis."""
        if not self._segment:
            self._show()
            return
        segment = Segment(tuple(self._segment), heard.avg_logprob, heard.no_speech_prob)
        self._events.append(SegmentClosed(self.counts.segments, segment, forced))
        self.counts.segments += 1
        self.counts.forced += forced
        self._segment.clear()
        self._shown = ()

    def _commit(self, words: tuple[Word, ...]) -> None:
        if words:
            self._events.append(WordsCommitted(words, self.counts.words, self.counts.segments))
            self.counts.words += len(words)
            self._segment.extend(words)
            self._shown = ()

    def _show(self) -> None:
        """Say what is pending if that is news."""
        shown = self._agreement.shown
        texts = tuple(word.text for word in shown)
        if texts != self._shown:
            self._events.append(Partial(shown, self.counts.segments))
            self._shown = texts

    def _until(self, ask: _Ask) -> int:
        """Where the audio asked about ends, without padding."""
        return ask.end if self._end is None else min(ask.end, self._end)

    def _spoken(self, ask: _Ask, heard: Heard) -> tuple[Word, ...]:
        """The words of *heard* that somebody spoke, where the voice was."""
        start = max(self._asked_from, self._window.start)
        speech = self._window.speech(start, ask.end)
        voicing = Voicing(start, [probability >= self._options.speech for probability in speech])
        words = tuple(voicing.placed(heard.words))
        self.counts.unvoiced += len(heard.words) - len(words)
        turn = self._turns.first
        assert turn is not None
        edge = turn.start - self._options.lead
        return tuple(word for word in words if word.start + word.end >= 2 * edge)  # earlier turns are decided

    def _learn_language(self, heard: Heard, ask: _Ask) -> None:
        """Settle the language on a final, or once enough speech was heard, if the engine is sure of it."""
        if self._language is not None or heard.language is None or not heard.words:
            return
        probability = heard.language_probability or 0.0
        enough = ask.aim is not _Aim.PARTIAL or ask.voiced - self._segment_start >= self._options.known_after
        if enough and probability >= self._options.known:
            self._language = heard.language
            self._events.append(LanguageDetected(heard.language, probability))

    def _decided(self, start: int) -> Sequence[Word]:
        """The committed words that audio from *start* on holds."""
        return [word for word in self._agreement.kept if word.start + word.end > 2 * start]

    def _start(self, ask: _Ask) -> int:
        """Where the audio of a request begins: as early as its length allows, at a pause between decided words."""
        options, turn, kept = self._options, self._turns.first, self._agreement.kept
        assert turn is not None
        length = options.partial if ask.aim is _Aim.PARTIAL else options.final
        begin = max(turn.start - options.lead, self._window.start)
        before = [word for word in kept if word.end <= turn.start]
        alone = self._alone or not before or turn.start - before[-1].end > options.apart
        earliest = begin if alone else max(before[0].start - options.lead, self._window.start)
        if ask.end - earliest <= length:
            return earliest
        cuts = [((word.end + after.start) // 2, after.start - word.end) for word, after in pairwise(kept)]
        if len(before) == len(kept):
            cuts.append((begin, options.pause))
        cuts = [(at, pause) for at, pause in cuts if at >= earliest] or [(earliest, 0)]
        short = [(at, pause) for at, pause in cuts if ask.end - at <= length] or cuts[-1:]
        return next((at for at, pause in short if pause >= options.pause), short[0][0])

    def _missed(self, ask: _Ask, heard: Heard) -> bool:
        """Whether *heard* began before the first turn and has no words for speech in it."""
        turn = self._turns.first
        assert turn is not None
        if self._asked_from >= turn.start - self._options.lead:
            return False  # it was heard alone already
        begin = max(turn.start, self._asked_from)
        voiced = self._window.voiced(begin, ask.end - self._options.agreement.guard, self._options.turns.enter)
        return bool(unheard(heard.words, voiced))

    def _forget(self, position: int) -> None:
        """Cut the window, and give up the words whose audio is gone."""
        self._window.cut(position)
        self._agreement.release(self._window.start)


def _whole(position: int) -> int:
    """The end of the frame that holds *position*."""
    return -(-position // WINDOW) * WINDOW
