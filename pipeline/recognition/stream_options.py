"""What can be set about a live stream, where it starts, and what it counts. Lengths are in samples.

Three settings say how much readers give up for speed. A final word can never be taken back, and a word that waits is
more often right, because the words after it make it clear, or because a second hypothesis has it too:

- *low* waits less than StreamOptions say.
- *balanced* waits as they say.
- *accurate* lets every word wait until its turn is over or some seconds have passed, and recognises every window as
  carefully as a final. A short pause does not end a turn.

Readers see waiting words as partials. Of 835 words in conditions on which nothing was chosen, low had 15 wrong (final
after 0.45 s in the median), balanced 14 (0.67 s), accurate 6 (3.05 s).
"""

from dataclasses import dataclass, field, replace

from pipeline.audio import LONGEST_JOB, position
from pipeline.events import Warned
from pipeline.recognition.agreement import AgreementOptions
from pipeline.recognition.engine import MIN_SPEECH_S, NO_HINTS, TRANSCRIBE, TRANSLATE, Hints
from pipeline.recognition.turns import APART, Eagerness, TurnCheckOptions, TurnOptions
from pipeline.words import Word

LOW, BALANCED, ACCURATE = LATENCIES = ("low", "balanced", "accurate")

LOW_SHARE = 0.6
"""With LOW words wait for this share of what StreamOptions say."""

SETTLED, STEP = position(2.7), position(1)
"""With ACCURATE a word waits at most as long as both together and a short pause: 4 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What can be set, and measured numbers."""

    language: str | None = None  # of all that is said; None: it is found turn by turn
    languages: frozenset[str] = frozenset()  # those that may be found; empty: all
    task: str = TRANSCRIBE  # one of TASKS of engine.py
    hints: Hints = NO_HINTS  # what the user said about the speech
    longest: int = position(15)  # of one segment; longer speech is cut and continues in the next segment
    turns: TurnOptions = field(default_factory=TurnOptions)
    agreement: AgreementOptions = field(default_factory=AgreementOptions)
    # Speech between two partials, unless pace() has set more, and before the first of a turn. 0.3 s makes words final
    # 0.2 s sooner for a third more CPU, and two hypotheses so close to each other make the same errors more often.
    step: int = position(0.5)
    pause: int = position(0.2)  # silence after which a final is requested, and no partial any more
    lead: int = position(0.4)  # audio kept before the start of speech, because first sounds are soft
    early: int = position(1)  # a turn may begin this long before the start of speech, with a faint frame
    faint: float = 0.15  # the least probability of speech in a faint frame
    speech: float = 0.3  # frames with this probability of speech may hold words
    # Audio in the window of a partial, and of a final. Decided speech before the turn fills it up: Whisper hears a
    # phrase alone worst: 8.8 % wrong words, 12.9 if the window begins at the turn.
    partial: int = position(6)
    final: int = position(14)
    thorough: bool = False  # partials are recognised with the care of finals
    known: float = 0.5  # the language is settled with this probability ...
    known_after: int = position(MIN_SPEECH_S)  # ... after this much speech or at the end of a turn
    checks: TurnCheckOptions | None = None  # None: turns end by silence alone
    notes: tuple[Warned, ...] = ()  # for the reader, before anything else
    warn_if_quiet: bool = False  # the reader gets a warning of an input that stays very quiet ...
    one_of_several: bool = False  # ... but not of silence on one of several channels, where it is usual

    @property
    def translates(self) -> bool:
        """Whether the text is a translation. It reorders words, so they are final at the end of their turn."""
        return self.task == TRANSLATE

    def __post_init__(self) -> None:
        """Raise ValueError if a segment and the silence after it would not fit into one decode job."""
        if self.longest + self.turns.endpointing > LONGEST_JOB - position(3):
            raise ValueError("the longest utterance and its endpointing silence must fit into 27 s together")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """Where a stream begins, and what an earlier stream of the same recording has decided.

    All positions count from the first sample of the recording.
    """

    at: int = 0  # the position of the first sample, in whole windows
    settled: int = 0  # everything before this position is decided
    said: tuple[Word, ...] = ()  # the last words before *settled*, as recognised, if they come again after *at*
    written: tuple[Word, ...] = ()  # the last words, as readers have them
    language: str | None = None  # that was spoken last; None: nothing was said
    open_turn: int | None = None  # the end of the last word of a turn whose end was not reported


BEGINNING = StreamStart()
"""The start of a recording: nothing is decided yet."""


def with_turn_checks(options: StreamOptions, eagerness: Eagerness) -> StreamOptions:
    """Return *options* of a stream whose turns end by meaning.

    A final is requested together with the first check of a pause, so that its words are there when the turn is over.
    """
    turns = replace(options.turns, endpointing=eagerness.longest)
    checks = TurnCheckOptions(eagerness=eagerness)
    return replace(options, turns=turns, checks=checks, pause=min(silence for silence, _ in eagerness.looks))


@dataclass(slots=True)
class StreamCounts:
    """What a stream has done so far, for the metrics page."""

    partials: int = 0  # answers received
    finals: int = 0
    failures: int = 0  # requests and checks that were not answered
    words: int = 0
    segments: int = 0
    forced: int = 0  # segments cut by length


def with_latency(options: StreamOptions, latency: str, *, patient: bool = False) -> StreamOptions:
    """Return *options* with the numbers of one of LATENCIES.

    *patient*: nobody waits for the end of a turn, so with ACCURATE it ends after a silence of APART.
    """
    agreement, turns = options.agreement, options.turns
    match latency:
        case "low":
            guard, sure_guard, settled = (
                round(LOW_SHARE * length) for length in (agreement.guard, agreement.sure_guard, agreement.settled)
            )
            sooner = replace(agreement, guard=guard, sure_guard=sure_guard, settled=settled)
            return replace(options, step=round(LOW_SHARE * options.step), agreement=sooner)
        case "accurate":
            turns = replace(turns, endpointing=max(turns.endpointing, APART if patient else 0))
            agreement = replace(agreement, settled=SETTLED, shown=agreement.often, patient=True)
            return replace(options, step=STEP, partial=options.final, thorough=True, turns=turns, agreement=agreement)
        case _:
            return options
