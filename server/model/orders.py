"""What a client asked for, already parsed, and where its audio comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a job's audio comes from."""

    type: str  # upload | url | live
    filename: str | None = None
    url: str | None = None
    bytes: int | None = None
    format: str | None = None  # as found in the bytes, never as claimed by a name


AUDIO = "audio"  # the output that is a live session's recording


CONTAINER = "container"  # the encoding that says itself what it is; the others are raw samples


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How a live session's audio arrives and when its words close. Units are in the names."""

    encoding: str = "pcm_s16le"
    sample_rate: int = 16_000
    channels: int = 1
    interim_results: bool = True
    endpointing_ms: int = 500
    max_utterance_s: float = 15.0
    record: bool = False  # keep the audio as FLAC


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the client asked for, already parsed. Never changes after acceptance."""

    output_formats: tuple[str, ...] = ("json",)  # of json, srt, vtt, txt; at least one, no twice
    word_timestamps: bool = False
    language: str | None = None
    model: str | None = None
    prompt: str = ""
    webhook_url: str | None = None
    webhook_events: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    scenario: str | None = None  # sandbox only
    live: LiveOptions | None = None


FORMATS = ("json", "srt", "vtt", "txt")
WEBHOOK_EVENTS = ("job.completed", "job.failed")
SCENARIOS = ("fail", "slow", "empty", "quota_exceeded", "rate_limited", "canceled")
MOST_URL_CHARS = 2048
MOST_PROMPT_CHARS = 1000
MOST_METADATA_KEYS = 16
MOST_METADATA_CHARS = 512
ENCODINGS = ("pcm_s16le", "pcm_f32le", "mulaw", "alaw", CONTAINER)
RATES = range(8_000, 48_001)
TELEPHONE_ENCODINGS = ("mulaw", "alaw")
TELEPHONE_RATE = 8_000
"""Samples a second of TELEPHONE_ENCODINGS where a request names no sample_rate, as telephone lines carry them."""
CHANNELS = range(1, 3)
ENDPOINTING_MS = range(200, 5001)  # below, words of one sentence would be torn apart
UTTERANCE_S = (3.0, 20.0)
