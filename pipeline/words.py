"""The results of recognition, as values: Word, Segment, Chunk, Transcript. All times are positions (see audio.py)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word. 0 <= start <= end; *text* is trimmed and never empty."""

    text: str
    start: int
    end: int
    probability: float  # 0..1
    spaced: bool = True  # False where the script writes it without a space before it (Chinese, Japanese, Thai)
    heard: str | None = None  # the recognised text, if the text stage replaced it and did not redact it
    redacted: bool = False  # a label in place of what was said
    language: str | None = None  # in which it was said, where that was found; None where the request says it
    corrected: bool = False  # a person wrote it
    speaker: str | None = None  # who said it, where a person says so; None: as recognised

    def at(self, start: int, end: int) -> "Word":
        """Return it with other times. It costs half of dataclasses.replace(), and live words move often."""
        return Word(
            self.text,
            start,
            end,
            self.probability,
            self.spaced,
            self.heard,
            self.redacted,
            self.language,
            self.corrected,
            self.speaker,
        )


def without_language(words: Iterable[Word]) -> tuple[Word, ...]:
    """Return words without their languages, for a request that says that of all."""
    return tuple(replace(word, language=None) for word in words)


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of words spoken without a long pause. Its words are in order and it has at least one."""

    words: tuple[Word, ...]
    avg_logprob: float  # mean log-probability per token, <= 0
    no_speech_prob: float  # the probability that this is not speech, by the model, 0..1
    channel: int | None = None  # of the recording, from 0; None where all channels were recognised together
    voice: str | None = None  # the speaker by voice, where voices are told apart
    language_probability: float | None = None  # how sure its language is, where that was found

    @property
    def speaker(self) -> str | None:
        """The name of the speaker, the same in the whole recording; None if it is unknown."""
        return self.voice or speaker_on(self.channel)

    @property
    def language(self) -> str | None:
        """The language of its words, where it was found."""
        return self.words[0].language

    @property
    def start(self) -> int:
        return self.words[0].start

    @property
    def end(self) -> int:
        return self.words[-1].end

    @property
    def text(self) -> str:
        return join_words(self.words)


def speaker_on(channel: int | None) -> str | None:
    """Return the name of the speaker of a separate channel."""
    return None if channel is None else f"S{channel + 1}"


def speaker_members(channel: int | None, speaker: str | None = None) -> dict[str, int | str]:
    """Return the JSON members `speaker` and `channel`; without those that are not known.

    If *speaker* is None, the label of the channel is used.
    """
    members: dict[str, int | str] = {} if channel is None else {"channel": channel}
    known = speaker or speaker_on(channel)
    return members if known is None else {**members, "speaker": known}


UNNAMED = "\0"
"""What the labels of voices without a name begin with until they get their numbers; no name has it."""


@dataclass(frozen=True, slots=True)
class SpeakerTurn:
    """A stretch in which one speaker speaks. Turns of several speakers may overlap."""

    speaker: str
    start: int
    end: int
    channel: int | None = None  # as in Segment


@dataclass(frozen=True, slots=True)
class Chunk:
    """A finished part of a recording. It is what a checkpoint stores.

    Chunks of one recording follow each other without gaps: chunk *n + 1* starts where chunk *n* ends. If each channel
    is recognised separately, this holds for the chunks of each channel; the index counts the chunks of all channels.
    """

    index: int
    jobs_done: int  # decode jobs finished since the file (and channel) began; resuming skips this many
    start: int
    end: int
    segments: tuple[Segment, ...]
    language: str | None  # None until there was speech
    language_probability: float | None
    notes: tuple[str, ...] = ()  # for readers, "code" or "code: message": "audio_truncated", "frames_skipped", ...
    channel: int | None = None  # the channel that was recognised, as in its segments
    turns: tuple[SpeakerTurn, ...] | None = None  # of the whole recording, in its last chunk if voices are told apart


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything that was recognised in one recording."""

    segments: tuple[Segment, ...]
    duration: int
    language: str | None
    language_probability: float | None
    engine: str
    model: str
    notes: tuple[str, ...] = ()
    languages: Mapping[str, int] = field(default_factory=dict)
    """How many samples of speech each language that was found has, most first; none where the request says it."""
    turns: tuple[SpeakerTurn, ...] | None = None  # by their starts; None where voices are not told apart

    @property
    def speakers(self) -> dict[str, int]:
        """How many samples each speaker speaks: by channel and first turn, but S1 always before S2.

        What two channels have of a speaker at the same time counts once.
        """
        by_channel = sorted(self.turns or (), key=lambda turn: -1 if turn.channel is None else turn.channel)
        spoken = dict.fromkeys((turn.speaker for turn in by_channel), 0)
        reached = dict(spoken)
        for turn in self.turns or ():
            spoken[turn.speaker] += max(0, turn.end - max(turn.start, reached[turn.speaker]))
            reached[turn.speaker] = max(turn.end, reached[turn.speaker])
        numbered = iter(sorted(filter(speaker_number, spoken), key=speaker_number))
        order = [next(numbered) if speaker_number(label) else label for label in spoken]
        return {label: spoken[label] for label in order}

    @property
    def words(self) -> tuple[Word, ...]:
        """All words in the order of their starts."""
        return tuple(word for word, _ in words_in_time(self.segments))

    @property
    def text(self) -> str:
        """All words, segment by segment."""
        return join_words(word for segment in self.segments for word in segment.words)


def speaker_number(label: str) -> int:
    """Return the number of a speaker without a name, 1 for S1; 0 for a name."""
    return int(label[1:]) if label[0] == "S" and label[1:].isdecimal() else 0


def words_in_time(segments: Iterable[Segment]) -> list[tuple[Word, Segment]]:
    """Return every word with its segment, in the order of their starts, also where people speak at the same time.

    Of words that start together, that of the lower channel is first, however the segments are cut.
    """
    pairs = [(word, segment) for segment in segments for word in segment.words]
    return sorted(pairs, key=lambda pair: (pair[0].start, pair[1].channel or 0))


def join_words(words: Iterable[Word]) -> str:
    """Return the words as one line of text, with spaces where their script has them."""
    return "".join(f" {word.text}" if word.spaced else word.text for word in words).strip()
