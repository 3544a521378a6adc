"""Joins the chunks of one recording to its Transcript. Batch jobs and live sessions call it at their end."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pipeline.attribution import (
    by_speaker,
    certainty,
    doubtful_languages,
    final_turns,
    speech_by_language,
    without_only_language,
    wordless_language,
)
from pipeline.audio import RATE, seconds
from pipeline.errors import PipelineError
from pipeline.words import Chunk, Segment, Transcript, Word

GRID = RATE
"""How far after the recording's last sample a word may start before its times count as wrong."""


class BrokenSequence(PipelineError):
    """These chunks are not one whole recording: some are missing, repeated, or have wrong times.

    The program is at fault, not the audio. Transcribe the recording again from its start.
    """


def assemble(
    chunks: Iterable[Chunk], *, duration: int, engine: str, model_of: Callable[[str | None], str]
) -> Transcript:
    """Return *chunks* as one Transcript of *duration* samples.

    The chunks must come in order and cover 0..duration without gap or overlap, and their words must start in order. If
    each channel was recognised separately, this holds for each channel, and the segments of all channels are sorted by
    their starts. A live session passes its stored chunks and a last one without words that reaches to its end.

    Word times are clipped to the duration; nothing else is changed. Recognisers time words on a grid of 10 or 20 ms
    over a padded window, so the last word may end a step after the last sample. The API promises end <= duration.

    *model_of* names the model of a language.

    If a chunk has turns, segments are cut where the speaker changes, and each part has its speaker.

    The language is that of most speech. If only one was found, words and segments do not name it. Each note is kept
    once, in order of appearance; one more says where a language is doubtful.

    Raises BrokenSequence if the chunks or words are out of order, or a word starts more than GRID after the end.
    """
    ordered = _in_sequence(chunks, duration)
    segments = [_inside(segment, duration) for chunk in ordered for segment in chunk.segments]
    for channel in {segment.channel for segment in segments}:
        _check_order(word for segment in segments if segment.channel == channel for word in segment.words)
    segments.sort(key=lambda segment: segment.start)
    spoken, sure = speech_by_language(segments), certainty(segments)
    segments = without_only_language(segments)
    turns = final_turns(ordered)
    if turns is not None:
        clipped = (replace(turn, end=min(turn.end, duration)) for turn in turns)
        turns = tuple(turn for turn in clipped if turn.start < turn.end)
        segments = by_speaker(segments, turns)
    language, probability = next(
        ((chunk.language, chunk.language_probability) for chunk in reversed(ordered) if chunk.language is not None),
        (None, None),
    )
    doubts = doubtful_languages(sure) if segments else wordless_language(language, probability, duration)
    if spoken:
        language = next(iter(spoken))
        probability = sure.get(language, (0, probability))[1]
    return Transcript(
        segments=tuple(segments),
        duration=duration,
        language=language,
        language_probability=probability,
        engine=engine,
        model=model_of(language),
        notes=tuple(dict.fromkeys([note for chunk in ordered for note in chunk.notes] + doubts)),
        languages=spoken,
        turns=turns,
    )


def _in_sequence(chunks: Iterable[Chunk], duration: int) -> list[Chunk]:
    ordered: list[Chunk] = []
    ends: dict[int | None, int] = {}  # by channel
    for expected, chunk in enumerate(chunks):
        reached = ends.get(chunk.channel, 0)
        if chunk.index != expected or chunk.start != reached or chunk.end < chunk.start:
            raise BrokenSequence(
                f"chunk {chunk.index} spans {seconds(chunk.start)}..{seconds(chunk.end)} s "
                f"where chunk {expected} had to start at {seconds(reached)} s"
            )
        ends[chunk.channel] = chunk.end
        ordered.append(chunk)
    for reached in ends.values() or (0,):
        if reached != duration:
            raise BrokenSequence(f"the chunks end at {seconds(reached)} s, the recording at {seconds(duration)} s")
    return ordered


def _inside(segment: Segment, duration: int) -> Segment:
    if max(word.end for word in segment.words) <= duration:
        return segment
    late = next((word for word in segment.words if word.start > duration + GRID), None)
    if late is not None:
        raise BrokenSequence(f"a word starts at {seconds(late.start)} s of a recording of {seconds(duration)} s")
    clipped = (word.at(min(word.start, duration), min(word.end, duration)) for word in segment.words)
    return replace(segment, words=tuple(clipped))


def _check_order(words: Iterator[Word]) -> None:
    reached = 0
    for word in words:
        if word.start < reached or word.end < word.start:
            raise BrokenSequence(f"a word at {seconds(word.start)}..{seconds(word.end)} s after {seconds(reached)} s")
        reached = word.start
