"""Everything that can go wrong between bytes and words, named for what the caller can do about it.

*code* is the stable name that travels to the outside; HTTP is not known here.
"""

from typing import ClassVar


class PipelineError(Exception):
    """Base of all errors of this package."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False  # may the same input succeed later?


class UndecodableAudio(PipelineError):
    """These bytes are no audio container we know. Sending them again will not help."""

    code = "unsupported_audio_format"


class InvalidAudio(PipelineError):
    """The container is known but holds nothing that can be decoded: broken or cut off before the first frame."""

    code = "invalid_audio"


class NoAudioStream(PipelineError):
    """A valid file without an audio track, such as a silent video."""

    code = "no_audio_stream"


class EmptyAudio(PipelineError):
    """Zero bytes."""

    code = "empty_file"


class AudioTooLong(PipelineError):
    """More decoded audio than allowed. Cut the file or use a larger plan."""

    code = "audio_too_long"

    def __init__(self, message: str, *, limit_s: float, actual_s: float) -> None:
        super().__init__(message)
        self.limit_s = limit_s
        self.actual_s = actual_s  # what is known of the length when decoding stopped


class TooFast(PipelineError):
    """More live audio is waiting than a session keeps. Send at the speed of speech."""

    code = "audio_too_fast"


class DecodeTimeout(PipelineError):
    """Decoding made no progress for too long; the decoder was ended."""

    code = "decode_timeout"


class DecoderUnavailable(PipelineError):
    """The decoding process could not be started or was killed from outside, not by the file. Trying again may work."""

    code = "internal"
    retryable = True


class ModelUnavailable(PipelineError):
    """The model is neither on disk nor to be had. The message says how to put it in place."""

    code = "engine_error"


class EngineFailed(PipelineError):
    """The engine raised or its process died in the middle of a call. Trying again may work."""

    code = "engine_error"
    retryable = True


class EngineTimeout(PipelineError):
    """The engine gave no answer in time."""

    code = "engine_timeout"
    retryable = True
