"""The core of a live stream: takes audio and hypotheses, and makes events and decode requests. No clock, no I/O.

    core.receive_audio(windows, [0.9, 0.8])    # of WINDOW samples, each with the probability that it holds speech
    request = core.decode_wanted()             # at most one is in flight
    core.receive_hypothesis(result)            # its answer, at any later time
    for event in core.events_received(): ...

pipeline/live_stream.py drives it.

Theory. Speech probabilities cut the stream into turns. Turns are decided one after the other; later audio is kept
meanwhile. At every step of new speech a partial is requested, and a final as soon as the speaker pauses. The final is
used if the pause becomes long enough to end the turn, and dropped if the speaker goes on. Every decision depends on
positions in the audio alone. So the same audio gives the same words, in whatever pieces and at whatever speed it comes,
if each answer comes before the next request is due.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pipeline.audio import WINDOW, Pcm, Windows, position
from pipeline.events import (
    Event,
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    Warned,
    WordsCommitted,
)
from pipeline.ingest.gain import InputLevel
from pipeline.ingest.notes import QUIET_INPUT
from pipeline.recognition.agreement import Agreement, find_new_words
from pipeline.recognition.engine import DecodeRequest, RecognitionResult, segment_of, without_end
from pipeline.recognition.stream_options import BEGINNING, StreamCounts, StreamOptions, StreamStart
from pipeline.recognition.turns import ENTER, LEAVE, Turn, TurnCheck, TurnChecks, Turns
from pipeline.recognition.voicing import Voicing, may_pause
from pipeline.recognition.window import Aim, AudioWindow, RequestStarts, WindowRequest, end_of_frame
from pipeline.words import Word, without_language

ATTEMPTS = 3
"""After this many failed decodes of one final, the words of the last good hypothesis are taken instead."""

RELEASED_AT_ONCE = position(5)
"""How much decided audio is dropped at once, and the room in the window below which it is dropped."""


class StreamCore:
    """One live stream: decides when to request recognition, and when a word is final.

    Raises ValueError if its caller breaks the protocol: audio after finish() or into a full window, or an answer
    without a request.
    """

    def __init__(self, options: StreamOptions, start: StreamStart = BEGINNING) -> None:
        self.counts = StreamCounts()
        self.start = start
        self._options = options
        self._window = AudioWindow(start.at)
        self._turns = Turns(options.turns, start.at)
        self._checks = TurnChecks(options.checks, start.open_turn)
        self._level = InputLevel() if options.warn_if_quiet else None  # also None once no warning can follow
        self._agreement = Agreement(options.agreement)
        self._agreement.settle(start.settled)
        self._events: list[Event] = list(options.notes)
        self._step = options.step
        self._seen = without_language if options.language else tuple  # a requested language is said once
        self._language = options.language or start.language  # that is known to be spoken
        self._heard = self._language  # the language of the newest answer, which may be wrong
        self._detected: tuple[int, int] | None = None  # the speech of the turn on which that language was detected
        self._probability: float | None = None  # how probable that language is
        self._next: str | None = None  # the language of the turn that begins where the first one was split
        self._mixed = False  # whether more than one language was spoken
        self._in_flight: WindowRequest | None = None
        self._answered: WindowRequest | None = None  # the last request about the first turn that was answered
        self._last_words: RecognitionResult | None = None  # the answer to it, if it was a final
        self._starts = RequestStarts(options, self._window, self._agreement)
        self._failed = 0  # in a row
        self._segment: list[Word] = []
        self._segment_start = 0
        self._shown: tuple[str, ...] = ()
        self._finalizing: deque[int] = deque()  # positions of finalize() before which not everything is decided
        self._finished = False
        self._end: int | None = None  # of the real audio, once that is known

    @property
    def position(self) -> int:
        """The end of the audio that was received."""
        return self._window.end

    @property
    def decided(self) -> int:
        """The position before which everything is decided, silence included: no later word will begin before it."""
        quiet = self.position - self._options.turns.onset - self._options.early - self._options.lead
        return self._agreement.end if self._turns.first is not None else max(self._agreement.end, quiet)

    @property
    def room(self) -> int:
        """How many samples can be taken before an answer comes."""
        return self._window.room

    @property
    def finished(self) -> bool:
        """Whether finish() was called and everything is decided, so that no event and no request will come any more."""
        return self._finished and self._turns.first is None

    @property
    def steady(self) -> int:
        """The position up to which windows can be fed together, because none of them can cause an event or a request.

        It changes with an answer. Windows that came before the answer must be fed before it.
        """
        turn, last = self._turns.first, self._answered
        steady = min(self._turns.steady, self._checks.next_look(self._turns.last))
        if turn is None or self._in_flight is not None:
            return steady
        partial = turn.start + self._options.step if last is None else last.end + self._step
        final = steady if last is not None and last.has_all_of(turn) else turn.voiced + self._options.pause
        return min(steady, partial, final, self._segment_start + self._options.longest)

    @property
    def decode_due(self) -> bool:
        """Whether there is a window to recognise that is newer than the request in flight."""
        return self._choose_ask() is not None

    @property
    def late(self) -> bool:
        """Whether to wait for the answer to what is in flight before more audio is taken, if the sender can wait.

        If the caller waits, the words depend on the audio alone, and not on the speed of the sender or the engine.
        """
        ask, pause = self._in_flight, self._options.pause
        late = ask is not None and (self.decode_due or self.position >= ask.end + pause)
        return late or self._checks.is_late(self.position, pause)

    def pace(self, step: int) -> None:
        """Request partials after *step* samples of new speech, or after options.step if that is more."""
        self._step = max(step, self._options.step)

    def receive_audio(self, windows: Windows, speech: Sequence[float]) -> None:
        """Take the next windows, each with its probability of speech; of several, only the last may reach *steady*.

        Call events_received() and decode_wanted() after it.
        """
        if self._finished:
            raise ValueError("audio after finish()")
        self._warn_if_quiet(windows, speech)
        begin, idle = self.position, self._turns.first is None
        self._window.append(windows, speech)
        for number, probability in enumerate(speech, 1):
            self._report(self._turns.add_window(begin + number * WINDOW, probability))
        if idle and self._turns.first is not None:
            self._begin(self._turns.first)
        elif idle:
            self._forget(self.position - self._options.lead - self._options.final)
            if self.position >= self._options.turns.endpointing:
                self._events += self._checks.conclude()
        self._make_room(WINDOW)

    def finalize(self) -> None:
        """Decide all audio so far as if the speaker had stopped here, then continue. The event Finalized reports it."""
        self._finalizing.append(self.position)
        self._end_turns()
        self._report_finalized()

    def finish(self, end: int | None = None) -> None:
        """End the audio; what came after *end* was padding. Continue to call decode_wanted() until *finished*."""
        self._end = end
        self._finished = True
        self._end_turns()

    def turn_check_wanted(self) -> TurnCheck | None:
        """Return what to find out about the newest turn, or None. It is in flight until receive_turn_check()."""
        turn, window = self._turns.last, self._window
        if self._finished or turn is None or window.end < self._checks.next_look(turn):
            return None
        audio, voiced = window.samples(window.start, window.end), window.voiced(window.start, window.end, LEAVE)
        return self._checks.begin(turn, audio, voiced, start=window.start)

    def receive_turn_check(self, probability: float | None) -> None:
        """Take the probability that the turn in flight is over; None if it could not be found out."""
        self.counts.failures += probability is None
        if self._checks.receive(probability):
            self._report(self._turns.end(self.position))

    def decode_wanted(self) -> DecodeRequest | None:
        """Return the next window to recognise, or None. It is in flight until answered, failed or withdrawn."""
        ask = self._choose_ask() if self._in_flight is None else None
        if ask is None:
            return None
        self._forget(self._starts.unused(ask))  # now, with nothing in flight: words must not depend on an answer's time
        self._make_room(RELEASED_AT_ONCE)
        self._in_flight = ask
        start = self._starts.choose(ask, None if self._options.language else self._heard)
        options, known = self._options, self._language is not None
        samples, voiced = self._audio(start, ask.end)
        return DecodeRequest(
            samples=samples,
            start=start,
            language=options.language,
            languages=options.languages,
            before=self._heard if known else None,  # until then each answer is a new guess
            detected=self._detected if known else None,
            turn=self._starts.edge,
            task=options.task,
            hints=options.hints,
            final=ask.aim is not Aim.PARTIAL or options.thorough or options.translates,
            decided=self._decided_from(start),  # nothing of the text of a translation
            voiced=voiced,
        )

    def _audio(self, start: int, end: int) -> tuple[Pcm, tuple[tuple[int, int], ...]]:
        """Return the audio between two positions, and where somebody speaks in it.

        The first window of a stream that goes on contains whole words that an earlier stream has decided. Later ones
        begin with the rest of one, which a model would take for the beginning of the next word. So it is silenced.
        """
        samples, voiced = self._window.samples(start, end), self._window.voiced_spans(start, end, ENTER)
        settled = self.start.settled
        if self.start.at < start < settled:
            samples = samples.copy()
            samples[: settled - start] = 0
            voiced = tuple((max(first, settled), last) for first, last in voiced if last > settled)
        return samples, voiced

    def _decided_from(self, start: int) -> tuple[Word, ...]:
        """Return the final words after *start*, in an open segment without a full stop at their end, which is a guess.

        After it a model would begin a new sentence, and leave out the next word if no sentence begins with it.
        """
        words = tuple(self._agreement.committed_from(start))
        return (*words[:-1], without_end(words[-1])) if words and self._segment else words

    def withdraw(self) -> None:
        """Take back the request in flight, which the engine has not begun. A newer one can take its place."""
        self._take_in_flight()

    def receive_failure(self) -> None:
        """Note that the request in flight has failed. It is repeated, a final only ATTEMPTS times."""
        ask = self._take_in_flight()
        self.counts.failures += 1
        self._failed += 1
        if ask.aim is Aim.PARTIAL:
            self._answered, self._last_words = ask, None  # the next step is a new request
        elif self._failed >= ATTEMPTS:
            self._failed = 0
            self._events.append(Warned("engine_failed", "the end of an utterance was taken from an earlier hypothesis"))
            self._answer(ask, RecognitionResult(self._agreement.pending, self._language))

    def receive_hypothesis(self, result: RecognitionResult) -> None:
        """Take the answer to the request in flight."""
        ask = self._take_in_flight()
        self.counts.partials += ask.aim is Aim.PARTIAL
        self.counts.finals += ask.aim is not Aim.PARTIAL
        self._failed = 0
        if result.changed is not None and self._split_turn(*result.changed):
            return
        result = replace(result, words=self._not_said_before(result.words))
        result = replace(result, words=self._select_spoken(ask, result))
        if self._starts.misses_speech(ask, result, begun=bool(self._segment)) and self._starts.begin_later(ask):
            return  # the next request has the same audio, with less of what came before the turn
        self._learn_language(result, ask)
        self._answer(ask, result)

    def events_received(self) -> list[Event]:
        """Return all events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _warn_if_quiet(self, windows: Windows, speech: Sequence[float]) -> None:
        """Warn once of an input that stays very quiet."""
        for number, probability in enumerate(speech):
            if self._level is None:
                return
            self._level.measure(windows[number : number + 1], [probability])
            if self._level.fine:
                self._level = None
            elif message := self._level.quiet_speech or (None if self._options.one_of_several else self._level.silence):
                self._events.append(Warned(QUIET_INPUT, message))
                self._level = None

    def _end_turns(self) -> None:
        """End the open turn, if any, or report the end of one that began before this stream."""
        self._report(self._turns.end(self.position))
        if self._turns.first is None:
            self._events += self._checks.conclude()

    def _report(self, events: list[SpeechStarted | SpeechEnded]) -> None:
        self._events += events
        if events and isinstance(events[-1], SpeechEnded):
            self._conclude_if_complete()

    def _choose_ask(self) -> WindowRequest | None:
        """Return the next request about the first turn, or None if there is nothing new."""
        turn = self._turns.first
        if turn is None:
            return None
        options, now, last = self._options, self.position, self._in_flight or self._answered
        tail = min(end_of_frame(turn.voiced + options.pause), turn.ended or now)
        limit = end_of_frame(self._segment_start + options.longest)
        if tail > limit:
            cut = WindowRequest(Aim.CUT, limit, turn.voiced)
            return None if self._in_flight == cut else cut
        if not turn.open or now - turn.voiced >= options.pause:
            return None if last and last.has_all_of(turn) else WindowRequest(Aim.FINAL, tail, turn.voiced)
        due, requested = (last.end + self._step, last.end) if last else (turn.start + options.step, 0)
        return WindowRequest(Aim.PARTIAL, now, turn.voiced) if now >= due and turn.voiced > requested else None

    def _take_in_flight(self) -> WindowRequest:
        ask, self._in_flight = self._in_flight, None
        if ask is None:
            raise ValueError("no request is in flight")
        return ask

    def _answer(self, ask: WindowRequest, result: RecognitionResult) -> None:
        self._answered = ask
        self._last_words = result if ask.aim is Aim.FINAL else None
        if ask.aim is Aim.CUT:
            self._cut(ask, result)
            return
        if not self._conclude_if_complete():
            self._commit(
                self._agreement.receive(
                    result.words,
                    until=self._audio_end(ask),
                    paused=ask.aim is Aim.FINAL,
                    doubted=self._language is None,
                    held=self._options.translates or self._language_is_open(result),
                )
            )
            self._report_pending()

    def _conclude_if_complete(self) -> bool:
        """Close the first turn if it has ended and its last words were recognised. Return whether it was closed."""
        turn, ask, result = self._turns.first, self._answered, self._last_words
        if turn is None or turn.open or ask is None or result is None or ask.voiced < turn.voiced:
            return False
        self._commit(self._agreement.conclude(result.words, until=self._audio_end(ask)))
        wordless = not self._segment
        self._close(result, forced=False)
        self._events += self._checks.conclude(turn)
        self._agreement.settle(ask.end)
        self._agreement.part()
        self._turns.remove_first()
        if self._turns.first is not None:
            self._begin(self._turns.first)
        if wordless and turn.ended is not None and turn.ended not in self._finalizing:
            self._events.append(Finalized(turn.ended))  # no segment tells that this turn is decided
        self._report_finalized()
        return True

    def _report_finalized(self) -> None:
        """Report the calls of finalize() before which nothing is undecided any more."""
        turn = self._turns.first
        while self._finalizing and (turn is None or turn.start >= self._finalizing[0]):
            self._events.append(Finalized(self._finalizing.popleft()))

    def _cut(self, ask: WindowRequest, result: RecognitionResult) -> None:
        """End a segment that is too long: commit the words that are safe, and keep the rest for the next segment."""
        guard = self._options.agreement.guard
        self._commit(self._agreement.conclude(result.words, until=self._audio_end(ask), guard=guard))
        rest, edge = self._agreement.pending, ask.end - guard
        # A word with a wrong, very long time must not stop the stream.
        self._agreement.settle(min(edge, max(rest[0].start, edge - position(2))) if rest else edge)
        self._close(result, forced=True)
        self._segment_start = self._agreement.end
        self._forget(self._agreement.end - self._options.final)
        self._report_pending()

    def _begin(self, turn: Turn) -> None:
        """Start to decide *turn*, which is the first one now."""
        self._answered = self._last_words = None
        self._detected = self._probability = None
        self._heard, self._next = self._next or self._heard, None
        self._segment_start = max(turn.start, self._agreement.end)
        self._agreement.settle(self._starts.begin(turn))
        self._forget(turn.start - self._options.final)

    def _close(self, result: RecognitionResult, *, forced: bool) -> None:
        """Close the segment, if it has words. Its scores are those of the last hypothesis that has them."""
        if not self._segment:
            self._report_pending()
            return
        segment = segment_of(self._segment, replace(result, language_probability=self._probability))
        self._events.append(SegmentClosed(self.counts.segments, segment, forced))
        self.counts.segments += 1
        self.counts.forced += forced
        self._segment.clear()
        self._shown = ()

    def _commit(self, words: tuple[Word, ...]) -> None:
        if words:
            self._events.append(WordsCommitted(self._seen(words), self.counts.words, self.counts.segments))
            self.counts.words += len(words)
            self._segment.extend(self._seen(words))
            self._checks.note_word(words[-1].end)
            self._shown = ()

    def _report_pending(self) -> None:
        """Report the pending words that are shown, if they have changed."""
        shown = self._seen(self._agreement.shown)
        if (texts := tuple(word.text for word in shown)) != self._shown:
            self._events.append(Partial(shown, self.counts.segments))
            self._shown = texts

    def _audio_end(self, ask: WindowRequest) -> int:
        """Return where the audio of a request ends, without padding."""
        return ask.end if self._end is None else min(ask.end, self._end)

    def _select_spoken(self, ask: WindowRequest, result: RecognitionResult) -> tuple[Word, ...]:
        """Return the words of *result* at places where somebody spoke, moved to the time of the speech."""
        start = max(self._starts.newest, self._window.start)
        if self._options.translates:  # the times of the words only show roughly where they were said
            return self._starts.select_of_turn(result.words)
        voicing = Voicing(start, self._window.voiced(start, ask.end, self._options.speech))
        return self._starts.select_of_turn(tuple(voicing.place(result.words)))

    def _not_said_before(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return *words* without those that an earlier stream has decided, which may come in another spelling.

        A word is new if most of it, or a part of a number, lies after what is decided.
        """
        settled = self.start.settled
        if not settled:
            return words
        after = [w for w in words if w.start + w.end > 2 * settled or (w.end > settled and may_pause(w.text))]
        fresh = find_new_words(self.start.said, after, settled)
        return tuple(word if word.start >= settled else word.at(settled, word.end) for word in fresh)

    def _split_turn(self, at: int, language: str) -> bool:
        """End the first turn in the pause before *at*, where another language begins, if that is still possible."""
        turn = self._turns.first
        if turn is None or not turn.start < at < turn.voiced or at < self._agreement.end:
            return False
        before = self._window.voiced_spans(turn.start, at, LEAVE)
        self._turns.split_first(at, before[-1][1] if before else at)
        self._answered = self._last_words = None
        self._next = language
        return True

    def _language_is_open(self, result: RecognitionResult) -> bool:
        """Return whether the words of an answer must wait because they may be of another language.

        Where one language was spoken so far, it is believed until an answer says otherwise, so that words are quick.
        Before that only a language that is assumed is, because its words are sure.
        """
        options, detected = self._options, self._detected
        if options.language is not None:
            return False
        early = detected is None or detected[1] - detected[0] < options.known_after
        if self._language is None:
            return early and result.language_probability is not None
        doubtful = result.language_probability is not None and result.language_probability < options.known
        return result.language != self._language or doubtful or (self._mixed and early)

    def _learn_language(self, result: RecognitionResult, ask: WindowRequest) -> None:
        """Note the language of an answer, and settle it if the answer is a final or has enough speech."""
        if self._options.language is not None or result.language is None or not result.words:
            return
        self._heard, probability = result.language, result.language_probability
        if probability is None:
            return
        self._probability, self._detected = probability, result.detected or (self._starts.edge, ask.voiced)
        enough = ask.aim is not Aim.PARTIAL or ask.voiced - self._detected[0] >= self._options.known_after
        if result.language != self._language and enough and probability >= self._options.known:
            self._mixed = self._language is not None
            self._language = result.language
            self._events.append(LanguageDetected(result.language, probability))

    def _make_room(self, room: int) -> None:
        """Drop some decided speech, which only helps the model, if fewer than *room* samples can be appended."""
        if self._window.room < room:
            self._forget(min(self._agreement.end - self._options.lead, self._window.start + RELEASED_AT_ONCE))

    def _forget(self, position: int) -> None:
        """Drop audio before *position*, and the kept words that were in it."""
        self._window.cut(position)
        self._agreement.release(self._window.start)
