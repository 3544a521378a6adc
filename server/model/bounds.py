"""What a request may contain: the values and bounds that parsers check and /openapi.json documents.

Raw audio has the encodings, rates and channels of pipeline/ingest/pcm.py. They are repeated here because that file
loads the resampler, which a pure module must not do; a test compares the two.
"""

from server.model.orders import CONTAINER

FORMATS = ("json", "srt", "vtt", "txt")
WEBHOOK_EVENTS = ("job.completed", "job.failed")
SCENARIOS = ("fail", "slow", "empty", "quota_exceeded", "rate_limited", "canceled")
MAX_URL_CHARS = 2048
MAX_PROMPT_CHARS = 1000
MAX_METADATA_KEYS = 16
MAX_METADATA_CHARS = 512
FRAME_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""The raw encodings and the bytes of one sample in each."""
ENCODINGS = (*FRAME_BYTES, CONTAINER)
RATES = range(8_000, 48_001)
TELEPHONE_ENCODINGS = ("mulaw", "alaw")
TELEPHONE_RATE = 8_000
"""Samples a second of TELEPHONE_ENCODINGS where a request names no sample_rate, as telephone lines carry them."""
CHANNELS = range(1, 3)
ENDPOINTING_MS = range(200, 5001)  # less would tear a sentence apart
UTTERANCE_S = (3.0, 20.0)
