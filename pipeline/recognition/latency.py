"""Three settings of a session: the sooner a live word is final, the more often it is wrong. Pure.

A final word can never be taken back. A word that waits is more often right, because the words after it make it clear,
or because a second hypothesis has it too.

- *low* waits less than StreamOptions say.
- *balanced* waits as they say, and longer in the opening of a stream, where most errors are, because no earlier speech
  helps the model. In an opening a word that is not very probable waits until its turn is over or some seconds have
  passed, and so do the words after it. The first word may be less probable, because a text may begin in many ways. A
  short pause does not end a turn, so that the words after it are recognised together with those before it.
- *accurate* treats the whole stream as an opening. Every word waits, and every window is recognised as carefully as a
  final.

Readers see waiting words as partials. Of 835 words in conditions on which nothing was chosen, low had 15 wrong (final
after 0.45 s in the median), balanced 14 (0.67 s), accurate 6 (3.05 s).
"""

import sys
from dataclasses import replace

from pipeline.audio import position
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import APART

LOW, BALANCED, ACCURATE = LATENCIES = ("low", "balanced", "accurate")

LOW_SHARE = 0.6
"""With LOW words wait for this share of what StreamOptions say."""

SETTLED, STEP = position(2.7), position(1)
"""With ACCURATE a word waits at most as long as both together and a short pause: 4 s."""

OPENING, SURE, FIRST_SURE = position(4), 0.55, 0.45
"""With BALANCED: the length of an opening, and the probability from which a word, or the first word, does not wait.

If nothing waits, 10 of 20 starts of one recording had a wrong word; if every word waits, p95 of short sessions is
3.4 s. The first word is mostly right where it is doubtful: how a text begins is unclear, not what was said.
"""

PATIENCE = position(1.2)
"""The silence that ends a turn in an opening. Shorter pauses are common there. With ACCURATE it is APART."""


def with_latency(options: StreamOptions, latency: str, *, patient: bool = False) -> StreamOptions:
    """Return *options* with the numbers of one of LATENCIES.

    *patient*: nobody waits for the end of a turn, so turns may end later; with BALANCED also first words may be final
    later.
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
            turns = replace(turns, opening=sys.maxsize, opening_endpointing=APART if patient else 0)
            agreement = replace(agreement, settled=SETTLED, shown=agreement.often)
            return replace(options, step=STEP, partial=options.final, thorough=True, turns=turns, agreement=agreement)
        case _ if patient:
            turns = replace(turns, opening=OPENING, opening_endpointing=PATIENCE)
            agreement = replace(agreement, opening_sure=SURE, first_sure=FIRST_SURE)
            return replace(options, turns=turns, agreement=agreement)
        case _:
            return options
