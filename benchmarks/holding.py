"""How long the documents of hours of speech keep the event loop from running: python -m benchmarks.holding

Makes the stored chunks of a session of 36,000 words (--words), then its transcript, every output and its record, as the
server does when the session ends and when somebody reads it. Each is made on a thread, once like any computation
(`usual`) and once by server/background.py (`background`). Meanwhile the main thread, in place of the event loop, tries
to run every half millisecond. The processor time that the process uses between two of its turns is the least that it
waits, however busy the machine is. Writes benchmarks/results/holding.json: for each document the most processor time
between two turns, how often it was more than 20 ms, and the sum.
"""

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import write
from pipeline.audio import RATE
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import OUTPUT_FORMATS, Heading
from pipeline.documents.stored import pack_chunk, unpack_chunk
from pipeline.text.options import TextOptions
from pipeline.words import Chunk, Segment, SpeakerTurn, Transcript, Word
from server.background import compute, share_interpreter, total_bytes
from server.model.orders import Order
from server.records.records import search_members_of

WORDS_EACH = 36  # of a segment
SPACING = RATE * 2 // 5  # from word to word
TURN = 8 * RATE
TERMS = ("word1", "word5")
LOOK_S = 0.0005
LONG_MS = 20.0


def stored_chunks(words: int) -> list[bytes]:
    """The stored chunks of a session in which two people take turns."""
    count = words // WORDS_EACH
    length = WORDS_EACH * SPACING
    turns = tuple(SpeakerTurn(f"S{n % 2 + 1}", n * TURN, (n + 1) * TURN) for n in range(count * length // TURN))
    return [pack_chunk(_chunk(n, length, turns if n == count - 1 else None)) for n in range(count)]


def _chunk(number: int, length: int, turns: tuple[SpeakerTurn, ...] | None) -> Chunk:
    start = number * length
    words = tuple(
        Word(f"word{n % 10}" + "." * (n % 12 == 11), start + n * SPACING, start + n * SPACING + SPACING // 2, 0.9)
        for n in range(WORDS_EACH)
    )
    segments = (Segment(words, -0.1, 0.1),)
    return Chunk(number, number, start, start + length, segments, "en", 0.9, turns=turns)


def works(bodies: list[bytes]) -> dict[str, Callable[[], object]]:
    """Return the computations to measure, by name."""

    def transcript() -> Transcript:
        chunks = [unpack_chunk(body) for body in bodies]
        return assemble(chunks, duration=chunks[-1].end, engine="made", model="made")

    made = transcript()
    heading = Heading(job_id="job_made", created_at="2026-11-24T00:00:00Z", words=True, paragraphs=True, search=TERMS)
    order = Order(word_timestamps=True, text=TextOptions(paragraphs=True, search=TERMS))
    outputs = {name: lambda kind=kind: kind.render(made, heading) for name, kind in OUTPUT_FORMATS.items()}
    return {"transcript": transcript, **outputs, "record": lambda: search_members_of(bodies, order)}


async def measure(work: Callable[[], object], *, size: int) -> dict[str, float]:
    """Compute *work* on a thread, and return how long the event loop waited. *size* decides how it is computed."""
    held, before = [0.0], time.process_time()
    task = asyncio.create_task(compute("made", size, work))
    await asyncio.sleep(0)
    while not task.done():
        since = time.process_time()
        time.sleep(LOOK_S)  # noqa: ASYNC251  the loop waits for the network like this, without the interpreter
        await asyncio.sleep(0)
        held.append(1000 * (time.process_time() - since))
    await task
    return {
        "longest_ms": round(max(held), 1),
        "more_than_20_ms": sum(one > LONG_MS for one in held),
        "all_ms": round(1000 * (time.process_time() - before)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=36_000)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    gc.collect()
    gc.freeze()  # as serve does
    bodies = stored_chunks(given.words)
    found: dict[str, Any] = {"usual": {}, "background": {}}
    for name, work in works(bodies).items():
        found["usual"][name] = asyncio.run(measure(work, size=0))
    share_interpreter()
    for name, work in works(bodies).items():
        found["background"][name] = asyncio.run(measure(work, size=total_bytes(bodies)))
    for way, rows in found.items():
        for name, row in rows.items():
            print(way, name, row)
    if not given.no_write:
        write("holding", {"words": given.words, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
