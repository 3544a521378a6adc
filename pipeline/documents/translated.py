"""A transcript in another language, made of the translations of its timeline. Pure.

The words of a translation get times from the words that it translates: where a character stands in the one text is
where it stands in the other. So subtitles are cut by the rules of their own language, and keep time with the speech.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import regex

from pipeline.audio import seconds
from pipeline.documents.formats import OUTPUT_FORMATS, OutputFormat
from pipeline.languages import UNSPACED
from pipeline.timeline import Translation
from pipeline.transcription import Transcription
from pipeline.words import Segment, Transcript, Word

_WORD = regex.compile(r"\s*\S+")
_SIGN = regex.compile(r"\s*(?:[\p{Latin}\p{N}]+|\X)\p{P}*")  # of scripts without spaces: a sign with what ends it


def translated_outputs(formats: Iterable[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the requested files of translations, such as srt.de."""
    targets = tuple(targets)
    return tuple(f"{name}.{target}" for name in formats if OUTPUT_FORMATS[name].translated for target in targets)


def output_format(name: str) -> tuple[OutputFormat, str | None]:
    """Return the format of an output, and the language of a translated one: srt.de is SubRip in de."""
    kind, _, target = name.partition(".")
    return OUTPUT_FORMATS[kind], target or None


def translation_object(entry: Translation) -> dict[str, Any]:
    """Return a translation in the form of events. Times are in seconds."""
    return {
        "target": entry.target,
        "first": entry.first,
        "last": entry.last,
        "start": seconds(entry.start),
        "end": seconds(entry.end),
        "text": entry.text,
        **({} if entry.channel is None else {"channel": entry.channel}),
        **({} if entry.lag_ms is None else {"lag_ms": entry.lag_ms}),
    }


def translation_objects(transcription: Transcription, targets: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the translations in the form of the JSON file: those of each target, in the order of their words."""
    return {
        target: [_without(translation_object(one)) for one in _in_order(transcription, target)] for target in targets
    }


def _without(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name not in ("target", "lag_ms")}


def in_language(
    transcript: Transcript, transcription: Transcription, target: str, *, written: str | None = None
) -> Transcript:
    """Return *transcript*, which was made of *transcription*, in the language *target*.

    What is spoken in that language keeps its words, and what has no translation is left out. *written*: the language
    of all words, where it is not the one that is spoken.
    """
    segments = segments_in(transcript.segments, transcription, target, written=written, spoken=transcript.language)
    return replace(transcript, segments=tuple(segments), language=target, languages={})


def segments_in(
    segments: Sequence[Segment],
    transcription: Transcription,
    target: str,
    *,
    written: str | None = None,
    spoken: str | None = None,
) -> list[Segment]:
    """Return *segments* in the language *target*, without those that have no word in it. See in_language().

    *spoken*: the language of words that do not say theirs.
    """
    translations = {(one.channel, one.first): one for one in _in_order(transcription, target)}
    numbers: dict[int | None, Iterator[int]] = {}
    for segment in segments:
        if segment.channel not in numbers:
            own = [number for number, (_, channel) in enumerate(transcription.said) if channel == segment.channel]
            numbers[segment.channel] = iter(own)
    words: list[list[Word]] = [[] for _ in segments]
    running: dict[int | None, tuple[Translation, list[tuple[int, Word]]]] = {}  # by channel, what is being collected
    for place, segment in enumerate(segments):
        for word in segment.words:
            number = next(numbers[segment.channel])
            if (begun := translations.get((segment.channel, number))) is not None:
                running[segment.channel] = begun, []
            entry, collected = running.get(segment.channel, (None, []))
            if entry is not None and number <= entry.last:
                collected.append((place, word))
                if number == entry.last:
                    for at, translated in _timed(entry.text, collected, target):
                        words[at].append(translated)
            elif (written or word.language or spoken) == target:
                words[place].append(replace(word, language=None))
    return [replace(one, words=tuple(own)) for one, own in zip(segments, words, strict=True) if own]


def _in_order(transcription: Transcription, target: str) -> list[Translation]:
    made = (one for one in transcription.translations.get(target, {}).values() if one.text)
    return sorted(made, key=lambda one: (one.start, one.first))


def _timed(text: str, said: Sequence[tuple[int, Word]], target: str) -> Iterator[tuple[int, Word]]:
    """Yield the words of a translation with their times, each with the place of the word that is said there."""
    pieces = [one for one in (_SIGN if target in UNSPACED else _WORD).findall(text) if one.strip()]
    ends = list(accumulate(len(word.text) for _, word in said))
    whole, scale, reached = ends[-1], ends[-1] / max(1, sum(map(len, pieces))), 0.0

    def time_at(at: float, index: int) -> int:
        word, length = said[index][1], len(said[index][1].text)
        return word.start + round((word.end - word.start) * min(1.0, max(0.0, at - ends[index] + length) / length))

    for piece in pieces:
        first = min(bisect_right(ends, reached), len(said) - 1)
        start = time_at(reached, first)
        reached = min(whole, reached + len(piece) * scale)
        last = min(bisect_left(ends, reached - 1e-6), len(said) - 1)
        spaced = target not in UNSPACED or piece[0].isspace()
        yield said[first][0], Word(piece.strip(), start, max(start, time_at(reached, last)), 1.0, spaced)
