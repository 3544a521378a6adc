"""Who says each word, by the turns of speakers, and in which languages a recording is, and how sure that is."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from types import MappingProxyType

from pipeline.audio import position, seconds
from pipeline.words import UNNAMED, Chunk, Segment, SpeakerTurn, Word

DOUBT = 0.5
"""A language that is less probable than this is doubtful."""

MUCH = position(3)
"""Speech in a doubtful language is worth a warning if there is more of it than this."""

LANGUAGE_DOUBTFUL = "language_doubtful"
"""The code of that warning."""


class SpeakerTimes:
    """Answers who speaks when. The turns must be in order of their starts."""

    def __init__(self, turns: Sequence[SpeakerTurn]) -> None:
        self._turns = turns
        self._starts = [turn.start for turn in turns]
        self._reached = list(accumulate((turn.end for turn in turns), max))  # the latest end of the turns so far

    def speaker_of(self, word: Word) -> str | None:
        """Return who speaks most of the word's time, or the nearest speaker in time; None where there is no turn."""
        spoken: dict[str, int] = {}
        end = max(word.end, word.start + 1)
        for turn in self._around(word.start, end):
            spoken[turn.speaker] = spoken.get(turn.speaker, 0) + min(end, turn.end) - max(word.start, turn.start)
        return max(spoken, key=lambda speaker: spoken[speaker], default=None)

    def share_of(self, word: Word, speaker: str) -> float:
        """Return the share of the word's time, 0 to 1, in which this speaker speaks."""
        end = max(word.end, word.start + 1)
        spoken = [
            min(end, turn.end) - max(word.start, turn.start)
            for turn in self._around(word.start, end)
            if turn.speaker == speaker
        ]
        return max(0, sum(spoken)) / (end - word.start)

    def _around(self, start: int, end: int) -> Iterator[SpeakerTurn]:
        """Yield the turns that overlap, or where there are none the nearest turn."""
        after = bisect_right(self._starts, end - 1)
        overlapping = [turn for turn in self._turns[bisect_right(self._reached, start) : after] if turn.end > start]
        if overlapping:
            yield from overlapping
        elif self._turns:
            yield min(self._turns[: after + 1], key=lambda turn: max(turn.start - end, start - turn.end))


class SpeakerTimesByChannel:
    """SpeakerTimes for each channel. A channel without turns uses those of all channels."""

    def __init__(self, turns: Sequence[SpeakerTurn]) -> None:
        channels = {turn.channel for turn in turns}
        self._times = {one: SpeakerTimes([turn for turn in turns if turn.channel == one]) for one in channels}
        self._everybody = SpeakerTimes(turns)

    def speaker_of(self, word: Word, channel: int | None) -> str | None:
        return self._times.get(channel, self._everybody).speaker_of(word)

    def share_of(self, word: Word, speaker: str, channel: int | None) -> float:
        return self._times.get(channel, self._everybody).share_of(word, speaker)


def by_speaker(segments: Iterable[Segment], turns: Sequence[SpeakerTurn]) -> list[Segment]:
    """Return the segments, cut where the speaker changes, in order of their starts. Each part has one speaker."""
    times = SpeakerTimesByChannel(turns)
    parts = [
        replace(segment, words=tuple(words), voice=speaker)
        for segment in segments
        for speaker, words in groupby(segment.words, partial(times.speaker_of, channel=segment.channel))
    ]
    return sorted(parts, key=lambda part: part.start)


def final_turns(chunks: Sequence[Chunk]) -> tuple[SpeakerTurn, ...] | None:
    """Return the turns of all speakers, which only the last chunk has; None if speakers were not distinguished."""
    return next((chunk.turns for chunk in reversed(chunks) if chunk.turns is not None), None)


def segments_in_time(chunks: Sequence[Chunk]) -> list[Segment]:
    """Return all segments in order of their starts, cut where the speaker changes if the chunks have turns."""
    segments = without_only_language([segment for chunk in chunks for segment in chunk.segments])
    turns = final_turns(chunks)
    return sorted(segments, key=lambda segment: segment.start) if turns is None else by_speaker(segments, turns)


def spoken_words(segments: Iterable[Segment], turns: Sequence[SpeakerTurn]) -> list[SpeakerTurn]:
    """Return each word as a turn of its speaker; nothing where there are no turns."""
    times = SpeakerTimesByChannel(turns)
    labels = (
        (word, segment.channel, times.speaker_of(word, segment.channel))
        for segment in segments
        for word in segment.words
    )
    return [word_turn(label, word, channel) for word, channel, label in labels if label is not None]


def word_turn(speaker: str, word: Word, channel: int | None) -> SpeakerTurn:
    """Return a word as a turn of its speaker, which has at least one sample."""
    return SpeakerTurn(speaker, word.start, max(word.end, word.start + 1), channel)


@dataclass(frozen=True, slots=True)
class SpeakerRun:
    """Consecutive words of one speaker. *first* and *last* are indices among all words, both included."""

    first: int
    last: int
    speaker: str


def speaker_runs(said: Iterable[tuple[Word, int | None]], turns: Sequence[SpeakerTurn]) -> list[SpeakerRun]:
    """Return the speakers of all words, given with their channels by number; nothing where there are no turns."""
    times = SpeakerTimesByChannel(turns)
    labels = (times.speaker_of(word, channel) for word, channel in said)
    return join_runs((number, label) for number, label in enumerate(labels) if label is not None)


def join_runs(labels: Iterable[tuple[int, str]]) -> list[SpeakerRun]:
    """Return runs of consecutive words with the same label, from pairs (index of a word, label) in order."""
    runs: list[SpeakerRun] = []
    for number, label in labels:
        goes_on = runs and (runs[-1].last, runs[-1].speaker) == (number - 1, label)
        runs.append(SpeakerRun(runs.pop().first if goes_on else number, number, label))
    return runs


def scripted_turns(segments: Iterable[Segment]) -> list[SpeakerTurn]:
    """Return turns of two speakers per channel who alternate by sentence, for the engine without a model."""
    turns: list[SpeakerTurn] = []
    sentences: Counter[int | None] = Counter()
    for segment in segments:
        for word in segment.words:
            speaker = f"{UNNAMED}{segment.channel}.{sentences[segment.channel] % 2}"
            turns.append(word_turn(speaker, word, segment.channel))
            sentences[segment.channel] += word.text.endswith((".", "?", "!"))
    return sorted(turns, key=lambda turn: turn.start)


def number_speakers(turns: Sequence[SpeakerTurn], segments: Iterable[Segment]) -> tuple[SpeakerTurn, ...]:
    """Return the turns with the labels S1, S2, ... in place of names that begin with UNNAMED. Known names stay.

    Speakers are numbered by channel, then by their first word, then by their first turn.
    """
    order = [
        (-1 if part.channel is None else part.channel, 0, part.start, part.voice)
        for part in by_speaker(segments, turns)
        if part.voice is not None
    ]
    order += [(-1 if turn.channel is None else turn.channel, 1, turn.start, turn.speaker) for turn in turns]
    unnamed = dict.fromkeys(speaker for *_, speaker in sorted(order) if speaker.startswith(UNNAMED))
    names = {speaker: f"S{number}" for number, speaker in enumerate(unnamed, start=1)}
    return tuple(replace(turn, speaker=names.get(turn.speaker, turn.speaker)) for turn in turns)


def speech_by_language(segments: Iterable[Segment]) -> dict[str, int]:
    """Return how many samples of speech each language has that was found, most first."""
    spoken: dict[str, int] = {}
    for segment in segments:
        for word in segment.words:
            if word.language is not None:
                spoken[word.language] = spoken.get(word.language, 0) + word.end - word.start
    return dict(sorted(spoken.items(), key=lambda pair: (-pair[1], pair[0])))


def certainty(
    segments: Iterable[Segment], before: Mapping[str, tuple[int, float]] = MappingProxyType({})
) -> dict[str, tuple[int, float]]:
    """Return for each language that was found in how much speech, in samples, and how sure it is there on average.

    *before*: that of earlier segments, which are counted too.
    """
    found = dict(before)
    for segment in segments:
        length, sure = sum(word.end - word.start for word in segment.words), segment.language_probability
        if segment.language is not None and sure is not None and length:
            spoken, mean = found.get(segment.language, (0, 0.0))
            found[segment.language] = spoken + length, mean + (sure - mean) * length / (spoken + length)
    return found


def probability_of(language: str | None, segments: Iterable[Segment]) -> float | None:
    """Return how sure it is that *language* is spoken: the mean over all speech in it; None if that is unknown."""
    return certainty(segments).get(language or "", (0, None))[1]


def doubtful_languages(found: Mapping[str, tuple[int, float]]) -> list[str]:
    """Return a note for each language that is doubtful on average in more than MUCH of speech. *found*: certainty()."""
    return [
        _note(f"{seconds(spoken):.1f} s of speech", language)
        for language, (spoken, sure) in found.items()
        if spoken > MUCH and sure < DOUBT
    ]


def wordless_language(language: str | None, probability: float | None, duration: int) -> list[str]:
    """Return a note if a recording in which no word was found was recognised in a doubtful language."""
    doubtful = duration > MUCH and probability is not None and probability < DOUBT
    return [_note("no words were found, and what is said", language)] if doubtful else []


def _note(what: str, language: str | None) -> str:
    wish = "language or languages in the request say which are spoken"
    return f"{LANGUAGE_DOUBTFUL}: {what} may be in another language than {language}; {wish}"


def without_only_language(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments; if they have only one language, it is that of the recording, and no word names it."""
    if len({word.language for segment in segments for word in segment.words} - {None}) != 1:
        return list(segments)
    return [
        replace(segment, words=tuple(replace(word, language=None) for word in segment.words)) for segment in segments
    ]
