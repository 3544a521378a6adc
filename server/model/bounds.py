"""What a request may contain: the values and bounds that parsers check and /openapi.json documents.

The rates and channels of raw audio are in pipeline/ingest/input_formats.py.
"""

from pipeline.documents.formats import OUTPUT_FORMATS
from pipeline.ingest.input_formats import SAMPLE_BYTES, DecodeLimits
from pipeline.recognition.stream_options import LATENCIES
from pipeline.recognition.turns import EAGERNESS
from server.model.orders import CONTAINER, NOTHING, SEMANTIC, SILENCE

FORMATS = tuple(OUTPUT_FORMATS)
"""The names of the output files."""
WEBHOOK_EVENTS = ("job.completed", "job.failed", "job.corrected")
USUAL_WEBHOOK_EVENTS = WEBHOOK_EVENTS[:2]  # where the request names none
CHANNEL_MODES = ("mixed", "separate")
"""The treatment of a file's channels: recognise them mixed, or each one separately."""

TRACK_NUMBERS = range(1, DecodeLimits().max_streams + 1)
"""Audio tracks of a container; it holds no more streams."""

MAX_SPEAKERS = range(1, 11)
MAX_SPEAKER_CHARS = 64
MAX_REFERENCE_BYTES = 2_000_000
SCENARIOS = ("fail", "slow", "empty", "quota_exceeded", "rate_limited", "canceled")
RETENTIONS = (NOTHING,)
MAX_URL_CHARS = 2048
MAX_PROMPT_CHARS = 1000
MAX_KEYWORDS = 100
MAX_KEYWORDS_CHARS = 1000
"""Characters of all keywords together."""

MAX_TARGETS = 5
"""Languages into which one job is translated."""

MAX_TEXT_TERMS = 100  # to replace or to search

MAX_METADATA_KEYS = 16
MAX_METADATA_CHARS = 512
MAX_KEYS = 20
"""Valid keys of one account. A rotated key counts until it ends."""

MAX_ENDED_KEYS = 80
"""Revoked and expired keys of one account that are still listed; older ones are deleted."""

MAX_CHANNELS = 50
"""Channels of one account in one environment."""

MAX_CHANNEL_CHARS = 64

ENCODINGS = (*SAMPLE_BYTES, CONTAINER)
TELEPHONE_ENCODINGS = ("mulaw", "alaw")
TELEPHONE_RATE = 8_000
"""Samples a second of TELEPHONE_ENCODINGS if a request names no sample_rate; telephone lines use this rate."""
ENDPOINTING_MS = range(200, 5001)  # less would tear a sentence apart
ENDPOINTING = (SILENCE, SEMANTIC)
LATENCY_NAMES = LATENCIES
EAGERNESS_NAMES = tuple(EAGERNESS)
UTTERANCE_S = (3.0, 20.0)
MAX_COLUMNS = range(10, 121)  # less would cut ordinary words
MAX_LINES = range(1, 5)
MAX_CUE_S = (1.0, 20.0)
COLUMNS_PER_SECOND = (5.0, 50.0)
MAX_TOKEN_S = 30 * 24 * 3600  # for reading
MAX_INGEST_TOKEN_S = 3600
