"""Turns a Chunk into bytes and back. Checkpoints store these bytes, so that another worker can continue a job.

The bytes are JSON with an array for each word. That takes a third of the space of objects, and is readable.
"""

import math
from collections.abc import Iterator
from dataclasses import astuple
from typing import Annotated, Literal, TypeAlias

import orjson
from msgspec import DecodeError, Meta, Struct, structs
from msgspec.json import Decoder

from pipeline.errors import PipelineError
from pipeline.words import Chunk, Segment, SpeakerTurn, Word

VERSION = 1
"""The version of the shape below. Chunks of other versions are refused."""

_Whole: TypeAlias = Annotated[int, Meta(ge=0)]


class _Word(Struct, array_like=True):
    """The fields of Word. The last ones are left out if the text stage has not changed the word."""

    text: str
    start: _Whole
    end: _Whole
    probability: float
    spaced: bool
    heard: str | None = None
    redacted: bool = False
    language: str | None = None


class _Segment(Struct):
    avg_logprob: float
    no_speech_prob: float
    words: Annotated[list[_Word], Meta(min_length=1)]
    language_probability: float | None = None


class _Turn(Struct, array_like=True):
    speaker: str
    start: _Whole
    end: _Whole
    channel: _Whole | None


class _Chunk(Struct):
    version: Literal[1]
    index: _Whole
    jobs_done: _Whole
    start: _Whole
    end: _Whole
    language: str | None
    language_probability: float | None
    notes: tuple[str, ...]
    segments: list[_Segment]
    channel: _Whole | None = None
    turns: list[_Turn] | None = None


_decode = Decoder(_Chunk).decode


class DamagedChunk(PipelineError):
    """These bytes are not a stored chunk of this version. Continue from the checkpoint before it."""


def pack_chunk(chunk: Chunk) -> bytes:
    """Return *chunk* as bytes from which unpack_chunk() makes an equal one, to the last bit of every float.

    Raises ValueError if a probability is not finite, because JSON cannot hold it.
    """
    if not all(number is None or math.isfinite(number) for number in _probabilities(chunk)):
        raise ValueError("a probability that is not finite cannot be stored")
    turns = None if chunk.turns is None else [astuple(turn) for turn in chunk.turns]
    return orjson.dumps(
        {
            "version": VERSION,
            "index": chunk.index,
            "jobs_done": chunk.jobs_done,
            "start": chunk.start,
            "end": chunk.end,
            "language": chunk.language,
            "language_probability": chunk.language_probability,
            "notes": chunk.notes,
            **_without_none(channel=chunk.channel, turns=turns),
            "segments": [
                {
                    "avg_logprob": segment.avg_logprob,
                    "no_speech_prob": segment.no_speech_prob,
                    **_without_none(language_probability=segment.language_probability),
                    "words": [_array(word) for word in segment.words],
                }
                for segment in chunk.segments
            ],
        }
    )


def _probabilities(chunk: Chunk) -> Iterator[float | None]:
    yield chunk.language_probability
    for segment in chunk.segments:
        yield from (segment.avg_logprob, segment.no_speech_prob, segment.language_probability)
        yield from (word.probability for word in segment.words)


def _without_none(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _array(word: Word) -> tuple[object, ...]:
    usual = (word.text, word.start, word.end, word.probability, word.spaced)
    more = (word.heard, word.redacted, word.language)
    return usual if more == (None, False, None) else (*usual, *more)


def unpack_chunk(data: bytes) -> Chunk:
    """Return the chunk that pack_chunk() made *data* of. Raises DamagedChunk for anything else."""
    try:
        stored = _decode(data)
    except (DecodeError, ValueError) as error:
        raise DamagedChunk(f"{len(data)} bytes are no stored chunk: {error}") from error
    fields = structs.asdict(stored)
    del fields["version"]
    turns = stored.turns
    fields["turns"] = None if turns is None else tuple(SpeakerTurn(*structs.astuple(turn)) for turn in turns)
    fields["segments"] = tuple(
        Segment(
            tuple(Word(*structs.astuple(word)) for word in segment.words),
            segment.avg_logprob,
            segment.no_speech_prob,
            stored.channel,
            language_probability=segment.language_probability,
        )
        for segment in stored.segments
    )
    return Chunk(**fields)
