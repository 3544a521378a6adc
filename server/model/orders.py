"""The parsed order of a client, and the source of its audio."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from pipeline.documents.cues import USUAL_SHAPE, SubtitleShape
from pipeline.documents.translated import translated_outputs
from pipeline.ingest.input_formats import AUTO, RawAudio, TrackChoice
from pipeline.languages import ENGLISH
from pipeline.recognition.engine import TRANSCRIBE, TRANSLATE, Hints, hints_for
from pipeline.text.options import NO_CHANGES, TextOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a job's audio comes from."""

    type: str  # upload | url | live
    filename: str | None = None
    url: str | None = None
    bytes: int | None = None
    format: str | None = None  # as found in the bytes, never from the file's name


NOTHING = "none"  # the retention of jobs whose results are delivered once and then erased
AUDIO = "audio"  # the name of the output with a live session's recording
CONTAINER = "container"  # the encoding of files with a header; the other encodings are raw samples
SILENCE, SEMANTIC = "silence", "semantic"  # what ends a turn of a live session


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How a live session's audio arrives, and when its words are final and its turns end."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 16_000
    channels: int = 1
    interim_results: bool = True
    endpointing_ms: int = 500
    ends_at_once: bool = False  # the client asked for endpointing_ms, so no turn may end later
    max_utterance_s: float = 15.0
    latency: str | None = None  # how soon words are final, one of LATENCIES; None: what the server is set to
    endpointing: str = SILENCE  # what ends a turn: SILENCE (of endpointing_ms), or SEMANTIC (a complete sentence)
    eagerness: str = "auto"  # with SEMANTIC: how soon a turn counts as over, one of EAGERNESS
    record: bool = False  # keep the audio as FLAC
    channel: str | None = None  # the name of the account's channel that shows the session


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the client asked for. It never changes after acceptance."""

    output_formats: tuple[str, ...] = ("json",)  # of bounds.FORMATS; at least one, none twice
    word_timestamps: bool = False
    language: str | None = None  # of all that is said; None: found for each utterance
    languages: tuple[str, ...] = ()  # those that may be found; empty: all
    task: str = TRANSCRIBE  # one of TASKS of pipeline/recognition/engine.py
    model: str | None = None
    prompt: str = ""
    keywords: tuple[str, ...] = ()  # names and terms that the speakers are likely to use
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    scenario: str | None = None  # sandbox only
    live: LiveOptions | None = None
    translate_to: tuple[str, ...] = ()  # codes of pipeline/languages.py: what is said is translated into each of them
    retention: str | None = None  # NOTHING, or None: as long as the plan says
    separate: bool = False  # each channel is recognised by itself, with its own speakers
    raw: RawAudio | None = None  # what a file without a header holds, as the client declares it
    track: TrackChoice = AUTO  # the audio track of a container; SEPARATE makes each of them a channel
    diarize: bool = False  # tell speakers apart by their voices
    known_speakers: tuple[str, ...] = ()  # names of people with a recording of their voice
    max_speakers: int | None = None  # None: no bound
    subtitles: SubtitleShape = USUAL_SHAPE  # of the srt and vtt files
    text: TextOptions = NO_CHANGES  # what is done with the words after recognition
    record: bool = False  # keep the file that was sent or fetched; for live sessions LiveOptions has it
    callback: Mapping[str, Any] | None = None
    """The name of the `dialect` that writes the webhook's body, and what it must remember. None: the usual body."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all output files: those that were ordered, and their translations."""
        return (*self.output_formats, *translated_outputs(self.output_formats, self.translate_to))

    @property
    def hints(self) -> Hints:
        """The keywords, and the prompt where it is in a language that may be spoken."""
        written = ENGLISH if self.task == TRANSLATE else self.language
        return hints_for(self.keywords, self.prompt, written=written, allowed=self.languages)

    @property
    def live_channels(self) -> tuple[int | None, ...]:
        """The channels that a live session recognises: each one separately, or with None all mixed."""
        return tuple(range(self.live.channels)) if self.separate and self.live is not None else (None,)

    @property
    def counted_sessions(self) -> int:
        """The number of live sessions that this one counts as: one for each separate channel."""
        return len(self.live_channels)

    @property
    def keeps_audio(self) -> bool:
        """Whether the audio is kept as long as the results."""
        return self.record if self.live is None else self.live.record

    @property
    def keeps_results(self) -> bool:
        """Whether the results are kept after their delivery."""
        return self.retention is None


def without_defaults(order: Any) -> dict[str, Any]:
    """The members of an Order, or of another dataclass, that differ from their defaults.

    An order without newer members has the same result in every version of the server, because defaults are left out.
    """
    given = {}
    for member in fields(order):
        default = member.default if member.default_factory is MISSING else member.default_factory()
        if (value := getattr(order, member.name)) != default:
            given[member.name] = without_defaults(value) if is_dataclass(value) else value
    return given
