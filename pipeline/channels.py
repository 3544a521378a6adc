"""Puts the chunks of a recording's channels, each of which is heard by itself, in one order that never varies.

batch.py calls it for files whose channels are separate speakers, such as the two sides of a telephone call.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from pipeline.words import Chunk


async def in_time(channels: Mapping[int, AsyncGenerator[Chunk]], done: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
    """Yield the chunks that follow *done*, always one of the channel that is farthest behind.

    The order depends on the chunks alone. So it is the same after a crash, when *done* holds those that were stored.
    """
    reached = dict.fromkeys(channels, 0) | {chunk.channel: chunk.end for chunk in done if chunk.channel is not None}
    index = len(done)
    while reached:
        channel = min(reached, key=lambda one: (reached[one], one))
        chunk = await anext(channels[channel], None)
        if chunk is None:
            del reached[channel]
            continue
        reached[channel] = chunk.end
        segments = tuple(replace(segment, channel=channel) for segment in chunk.segments)
        yield replace(chunk, index=index, channel=channel, segments=segments)
        index += 1
