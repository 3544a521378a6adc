"""How soon a live word is final against how surely it is right: three settings that a session may choose. Pure.

A final word can never be taken back, so how soon it becomes final is a choice. The words after it often make it clear,
and a word that two hypotheses have is more often right. *low* waits for less of both. *accurate* waits until the end of
the sentence, which is recognised in the longer window of a final, or until SETTLED after the word. Readers see the word
as a partial before. *balanced* leaves StreamOptions unchanged. decisions.md has the measurements behind the numbers.
"""

from dataclasses import replace

from pipeline.audio import position
from pipeline.recognition.stream_options import StreamOptions

LOW, BALANCED, ACCURATE = LATENCIES = ("low", "balanced", "accurate")

SETTLED = position(3)
"""With ACCURATE a word waits for no more than this and one step: 4 s."""


def with_latency(options: StreamOptions, latency: str) -> StreamOptions:
    """Return *options* with the numbers of one of LATENCIES."""
    agreement = options.agreement
    match latency:
        case "low":
            sooner = replace(agreement, guard=position(0.25), sure_guard=position(0.5), settled=position(1.5))
            return replace(options, step=position(0.3), agreement=sooner)
        case "accurate":
            later = replace(agreement, guard=SETTLED, sure_guard=SETTLED, settled=SETTLED)
            return replace(options, step=position(1), partial=options.final, agreement=later)
        case _:
            return options
