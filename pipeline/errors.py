"""The errors of the pipeline. Each says what went wrong between bytes and words, and whether to try again.

*code* is the stable name that clients see. HTTP is unknown here.
"""

from typing import ClassVar


class PipelineError(Exception):
    """The base of all errors of the pipeline."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False  # may the same input succeed later?


class UndecodableAudio(PipelineError):
    """The bytes are not an audio container that is known. Sending them again will not help."""

    code = "unsupported_audio_format"


class InvalidAudio(PipelineError):
    """The container is known, but it is broken or cut off before the first frame."""

    code = "invalid_audio"


class NoAudioStream(PipelineError):
    """A valid file without an audio track, such as a silent video."""

    code = "no_audio_stream"


class UnknownTrack(NoAudioStream):
    """The recording does not have the audio track that was requested, or too many of them. The message says which."""


class EmptyAudio(PipelineError):
    """The file has no bytes."""

    code = "empty_file"


class AudioTooLong(PipelineError):
    """The recording is longer than allowed. Cut the file or use a larger plan."""

    code = "audio_too_long"

    def __init__(self, message: str, *, limit_s: float, actual_s: float) -> None:
        super().__init__(message)
        self.limit_s = limit_s
        self.actual_s = actual_s  # what is known of the length when decoding stopped


class TooFast(PipelineError):
    """More live audio is waiting than a session buffers. Send it at the speed of speech."""

    code = "audio_too_fast"


class DecodeTimeout(PipelineError):
    """Decoding made no progress for too long; the decoder was ended."""

    code = "decode_timeout"


class DecoderUnavailable(PipelineError):
    """The decoding process could not start, or something other than the file killed it. Trying again may work."""

    code = "internal"
    retryable = True


class DecodersBusy(PipelineError):
    """All memory that decoders may take together is in use. Trying again soon may work."""

    code = "queue_full"
    retryable = True


class ModelUnavailable(PipelineError):
    """The model is not on disk and cannot be downloaded. The message says how to install it."""

    code = "engine_error"


class SpeakersUnavailable(ModelUnavailable):
    """The models for labelling speakers are not on this machine. Another machine of the cluster may have them."""

    retryable = True


class EngineFailed(PipelineError):
    """The engine raised an error or its process died during a call. Trying again may work."""

    code = "engine_error"
    retryable = True


class EngineTimeout(PipelineError):
    """The engine did not answer in time."""

    code = "engine_timeout"
    retryable = True


class UnusableReference(PipelineError):
    """A recording from which a known person's voice cannot be learned. *name* is that person's."""

    code = "invalid_parameter"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The reference of {name} cannot be used: {reason.rstrip('.')}.")
        self.name = name
