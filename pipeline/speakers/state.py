"""Packs what is known of the speakers of a live stream, so that another process goes on exactly as this one would have.

Nothing is rounded. A window takes about 8 kB, a second of samples 32 kB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.frames import SIZE, VOICES, LocalTurn, Piece, Window, turn_of_pieces
from pipeline.words import SpeakerTurn

Array = NDArray[np.float32]

_EMPTY = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What is known of the speakers of one channel. Positions are in samples of the stream."""

    lasting: Sequence[Window] = ()  # one of each five seconds, in order; they stay
    newest: Sequence[Window] = ()  # the last ones, which the next ones replace
    analysed_to: int = 0  # where the last window ends
    begin: int = 0  # the position of the first of the samples
    samples: Samples = field(default_factory=lambda: _EMPTY)  # for the next windows, each exact in 16 bits of float
    clustered: int = 0  # how much had been heard when the voices were found; 0: they never were
    voices: Array = field(default_factory=lambda: np.zeros((0, SIZE), np.float32))  # (voices, SIZE)
    names: Mapping[int, str] = field(default_factory=dict)  # the labels of voices, by index
    next_label: int = 1  # the number of the label that the next new voice gets
    first_labels: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    """(seconds,): the number of the label that each second had first; 0 for a known person, or where nobody spoke."""
    turns: Sequence[SpeakerTurn] = ()  # the last ones; the speaker is the index of the voice

    @property
    def end(self) -> int:
        """The position after the last of the samples."""
        return self.begin + len(self.samples)


StateByChannel: TypeAlias = Mapping[int | None, ChannelState]
"""By channel, or None for all mixed."""


def pack_states(states: StateByChannel) -> bytes:
    """Return all as an archive of numpy."""
    windows = [window for state in states.values() for window in [*state.lasting, *state.newest]]
    pieces = [piece for window in windows for turn in window.turns for piece in turn.pieces]
    embeddings = {id(piece.embedding): piece.embedding for piece in pieces}  # windows that overlap share them
    rows = {key: row for row, key in enumerate(embeddings)}
    heads = [_head(channel, state, rows) for channel, state in states.items()]
    archive = BytesIO()
    np.savez_compressed(
        archive,
        heads=np.frombuffer(orjson.dumps(heads, option=orjson.OPT_SERIALIZE_NUMPY), np.uint8),
        samples=np.concatenate([_EMPTY, *(state.samples for state in states.values())]).astype(np.float16),
        speech=np.concatenate([np.zeros((0, VOICES), np.float16), *(window.speech for window in windows)]),
        embeddings=np.array([*embeddings.values()], np.float32).reshape(-1, SIZE),
        first_labels=np.concatenate([np.zeros(0, np.uint16), *(state.first_labels for state in states.values())]),
        voices=np.concatenate([np.zeros((0, SIZE), np.float32), *(state.voices for state in states.values())]),
    )
    return archive.getvalue()


def _head(channel: int | None, state: ChannelState, rows: Mapping[int, int]) -> Mapping[str, Any]:
    """Return what is not in arrays, with the lengths of what is. *rows* has the row of each embedding."""
    return {
        "channel": channel,
        "lasting": [_window_head(window, rows) for window in state.lasting],
        "newest": [_window_head(window, rows) for window in state.newest],
        "analysed_to": state.analysed_to,
        "begin": state.begin,
        "samples": len(state.samples),
        "clustered": state.clustered,
        "voices": len(state.voices),
        "names": [*state.names.items()],
        "next_label": state.next_label,
        "first_labels": len(state.first_labels),
        "turns": [(turn.speaker, turn.start, turn.end) for turn in state.turns],
    }


def _window_head(window: Window, rows: Mapping[int, int]) -> Sequence[Any]:
    turns = [
        (
            turn.voice,
            turn.first,
            [(piece.after, piece.seconds, rows[id(piece.embedding)]) for piece in turn.pieces],
        )
        for turn in window.turns
    ]
    return window.start, len(window.speech), turns


def unpack_states(body: bytes) -> dict[int | None, ChannelState]:
    """Return what pack_states() was given."""
    with np.load(BytesIO(body), allow_pickle=False) as archive:
        heads = orjson.loads(archive["heads"].tobytes())
        embeddings = [*archive["embeddings"]]
        samples = _split(archive["samples"].astype(np.float32), [head["samples"] for head in heads])
        voices = _split(archive["voices"], [head["voices"] for head in heads])
        first_labels = _split(archive["first_labels"], [head["first_labels"] for head in heads])
        windows = [row for head in heads for row in [*head["lasting"], *head["newest"]]]
        speech = _split(archive["speech"], [frames for _, frames, _ in windows])
    return {
        head["channel"]: ChannelState(
            lasting=[_window(row, next(speech), embeddings) for row in head["lasting"]],
            newest=[_window(row, next(speech), embeddings) for row in head["newest"]],
            analysed_to=head["analysed_to"],
            begin=head["begin"],
            samples=next(samples),
            clustered=head["clustered"],
            voices=next(voices),
            names=dict(head["names"]),
            next_label=head["next_label"],
            first_labels=next(first_labels),
            turns=[SpeakerTurn(*turn) for turn in head["turns"]],
        )
        for head in heads
    }


def _split(whole: NDArray[Any], lengths: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Yield the parts of an array, which have these lengths."""
    return (whole[start:end] for start, end in pairwise([0, *accumulate(lengths)]))


def _window(row: Sequence[Any], speech: NDArray[np.float16], embeddings: Sequence[Array]) -> Window:
    start, _, turns = row
    return Window(start, speech, tuple(_turn(turn, embeddings) for turn in turns))


def _turn(row: Sequence[Any], embeddings: Sequence[Array]) -> LocalTurn:
    voice, first, pieces = row
    each = [Piece(after, seconds, embeddings[number]) for after, seconds, number in pieces]
    return turn_of_pieces(voice, first, each)
