"""Turns a Chunk into bytes and back. Checkpoints store these bytes, so that another worker can continue a job.

The bytes are JSON with an array for each word. That takes a third of the space of objects, and is readable.
"""

import math
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

import orjson

from pipeline.errors import PipelineError
from pipeline.words import Chunk, Segment, SpeakerTurn, Word

VERSION = 1
"""The version of the shape below. Chunks of other versions are refused."""


class DamagedChunk(PipelineError):
    """These bytes are not a stored chunk of this version. Continue from the checkpoint before it."""


def pack_chunk(chunk: Chunk) -> bytes:
    """Return *chunk* as bytes from which unpack_chunk() makes an equal one, to the last bit of every float.

    Raises ValueError if a probability is not finite, because JSON cannot hold it.
    """
    return orjson.dumps(
        {
            "version": VERSION,
            "index": chunk.index,
            "jobs_done": chunk.jobs_done,
            "start": chunk.start,
            "end": chunk.end,
            "language": chunk.language,
            "language_probability": _finite(chunk.language_probability),
            "notes": chunk.notes,
            **({} if chunk.channel is None else {"channel": chunk.channel}),
            **({} if chunk.turns is None else {"turns": [astuple(turn) for turn in chunk.turns]}),
            "segments": [
                {
                    "avg_logprob": _finite(segment.avg_logprob),
                    "no_speech_prob": _finite(segment.no_speech_prob),
                    **(
                        {}
                        if segment.language_probability is None
                        else {"language_probability": _finite(segment.language_probability)}
                    ),
                    "words": [_array(word) for word in segment.words],
                }
                for segment in chunk.segments
            ],
        }
    )


def _array(word: Word) -> tuple[object, ...]:
    """Return a word as an array. Its last members are left out if the text stage has not changed the word."""
    usual = (word.text, word.start, word.end, _finite(word.probability), word.spaced)
    more = (word.heard, word.redacted, word.language)
    return usual if more == (None, False, None) else (*usual, *more)


def unpack_chunk(data: bytes) -> Chunk:
    """Return the chunk that pack_chunk() made *data* of. Raises DamagedChunk for anything else."""
    try:
        return _chunk(orjson.loads(data))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise DamagedChunk(f"{len(data)} bytes are no stored chunk: {error}") from error


def _finite(number: float | None) -> float | None:
    if number is not None and not math.isfinite(number):
        raise ValueError(f"{number} cannot be stored")
    return None if number is None else float(number)


def _chunk(fields: dict[str, Any]) -> Chunk:
    if fields["version"] != VERSION:
        raise ValueError(f"not of version {VERSION}")
    probability = fields["language_probability"]
    channel = None if fields.get("channel") is None else _whole(fields["channel"])
    return Chunk(
        index=_whole(fields["index"]),
        jobs_done=_whole(fields["jobs_done"]),
        start=_whole(fields["start"]),
        end=_whole(fields["end"]),
        segments=tuple(_segment(segment, channel) for segment in _each(fields["segments"])),
        language=None if fields["language"] is None else _text(fields["language"]),
        language_probability=None if probability is None else _real(probability),
        notes=tuple(_text(note) for note in _each(fields["notes"])),
        channel=channel,
        turns=tuple(_turn(*turn) for turn in _each(fields["turns"])) if "turns" in fields else None,
    )


def _turn(speaker: object, start: object, end: object, channel: object) -> SpeakerTurn:
    return SpeakerTurn(_text(speaker), _whole(start), _whole(end), None if channel is None else _whole(channel))


def _segment(fields: dict[str, Any], channel: int | None) -> Segment:
    words = tuple(_word(*word) for word in _each(fields["words"]))
    if not words:
        raise ValueError("a segment without words")
    sure = fields.get("language_probability")
    return Segment(
        words,
        _real(fields["avg_logprob"]),
        _real(fields["no_speech_prob"]),
        channel,
        language_probability=None if sure is None else _real(sure),
    )


def _word(  # noqa: PLR0917  arrays have no names
    text: object,
    start: object,
    end: object,
    probability: object,
    spaced: object,
    heard: object = None,
    redacted: object = False,  # noqa: FBT002  a row of a chunk, by position
    language: object = None,
) -> Word:
    if not isinstance(spaced, bool) or not isinstance(redacted, bool):
        raise TypeError("something else instead of a boolean")
    original, code = (None if one is None else _text(one) for one in (heard, language))
    return Word(_text(text), _whole(start), _whole(end), _real(probability), spaced, original, redacted, code)


def _each(value: object) -> Iterable[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of an array")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{type(value).__name__} instead of a whole number >= 0")
    return value


def _real(value: object) -> float:
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} instead of a number with a fraction")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value
