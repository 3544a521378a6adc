"""Packs what was heard of a live stream, so that after a restart its voices are known as before.

A window takes about 4 kB: the probabilities as bytes, and half the precision of the embeddings. A second of samples
takes 16 kB, eight bits each on the mu-law scale.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.frames import SIZE, VOICES, Array, LocalTurn, Piece, Window, turn_of_pieces, unit


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of a channel."""

    windows: Sequence[Window]  # in order of their starts
    begin: int = 0  # the position of the first of the samples
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))


HeardByChannel: TypeAlias = Mapping[int | None, Heard]
"""By channel, or None for all mixed."""


@dataclass(frozen=True, slots=True)
class NewlyHeard:
    """What a stream has to store once more."""

    lasting: Mapping[int | None, Sequence[Window]]  # one of each five seconds; they stay
    last: HeardByChannel  # the last window and samples, until something newer is stored


_CERTAIN = 255  # the byte of a probability of 1
_MU = 255  # of the mu-law


def pack_stream(heard: HeardByChannel) -> bytes:
    """Return all as an archive of numpy."""
    each = [(number, window) for number, own in enumerate(heard.values()) for window in own.windows]
    channels = [(channel, own.begin, len(own.samples)) for channel, own in heard.items()]
    rows = [
        (
            number,
            window.start,
            len(window.speech),
            [
                (turn.voice, turn.first, [(piece.after, piece.seconds) for piece in turn.pieces])
                for turn in window.turns
            ],
        )
        for number, window in each
    ]
    embeddings = [piece.embedding for _, window in each for turn in window.turns for piece in turn.pieces]
    speech = [np.zeros((0, VOICES), np.float16), *(window.speech for _, window in each)]
    archive = BytesIO()
    np.savez(
        archive,
        rows=np.frombuffer(orjson.dumps((channels, rows), option=orjson.OPT_SERIALIZE_NUMPY), np.uint8),
        samples=_compress(np.concatenate([own.samples for own in heard.values()])),
        speech=np.round(np.concatenate(speech).astype(np.float32) * _CERTAIN).astype(np.uint8),
        embeddings=np.array(embeddings, np.float16).reshape(-1, SIZE),
    )
    return archive.getvalue()


def unpack_stream(body: bytes) -> dict[int | None, Heard]:
    """Return what pack_stream() was given."""
    with np.load(BytesIO(body), allow_pickle=False) as archive:
        channels, rows = orjson.loads(archive["rows"].tobytes())
        samples = _expand(archive["samples"])
        speech = archive["speech"].astype(np.float32) / _CERTAIN
        embeddings = iter(unit(archive["embeddings"].astype(np.float32)))
    windows: list[list[Window]] = [[] for _ in channels]
    reached = 0
    for number, start, frames, turns in rows:
        own = speech[reached : reached + frames].astype(np.float16)
        reached += frames
        windows[number].append(Window(start, own, _turns(turns, embeddings)))
    ends = np.cumsum([length for *_, length in channels])
    return {
        channel: Heard(own, begin, samples[end - length : end])
        for (channel, begin, length), own, end in zip(channels, windows, ends, strict=True)
    }


def _turns(rows: Sequence[Any], embeddings: Iterator[Array]) -> tuple[LocalTurn, ...]:
    """Return the turns of a window, whose pieces have the next embeddings."""
    return tuple(
        turn_of_pieces(voice, first, [Piece(after, seconds, next(embeddings)) for after, seconds in pieces])
        for voice, first, pieces in rows
    )


def _compress(samples: Samples) -> NDArray[np.int8]:
    levels = np.log1p(_MU * np.abs(samples).clip(max=1)) / np.log1p(_MU)
    return np.asarray(np.round(np.sign(samples) * levels * 127), np.int8)


def _expand(levels: NDArray[np.int8]) -> Samples:
    size = np.expm1(np.abs(levels.astype(np.float32)) / 127 * np.log1p(_MU)) / _MU
    return np.asarray(np.sign(levels) * size, np.float32)
