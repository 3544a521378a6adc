"""Three settings of a session: the sooner a live word is final, the more often it is wrong. Pure.

A final word can never be taken back. A word that waits is more often right, because the words after it make it clear,
or because a second hypothesis has it too.

- *low* waits less than StreamOptions say.
- *balanced* waits as they say.
- *accurate* lets every word wait until its turn is over or some seconds have passed, and recognises every window as
  carefully as a final. A short pause does not end a turn.

Readers see waiting words as partials. Of 835 words in conditions on which nothing was chosen, low had 15 wrong (final
after 0.45 s in the median), balanced 14 (0.67 s), accurate 6 (3.05 s).
"""

from dataclasses import replace

from pipeline.audio import position
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import APART

LOW, BALANCED, ACCURATE = LATENCIES = ("low", "balanced", "accurate")

LOW_SHARE = 0.6
"""With LOW words wait for this share of what StreamOptions say."""

SETTLED, STEP = position(2.7), position(1)
"""With ACCURATE a word waits at most as long as both together and a short pause: 4 s."""


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
