"""Decodes a file of raw audio, whose encoding, rate and channels the order declares, because it has no header."""

from collections.abc import Iterator
from functools import partial

from pipeline.audio import Samples
from pipeline.errors import EmptyAudio, InvalidAudio
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.encodings import SAMPLE_BYTES, RawAudio
from pipeline.ingest.headers import LONGEST_HEADER, starts_with_header
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.pcm import PcmDecoder
from pipeline.ingest.pieces import even_out, up_to
from pipeline.ingest.source import READ_BYTES, ByteSource


def has_header(source: ByteSource) -> bool:
    """Return whether the file begins with the header of a container. People declare an encoding for WAV files too."""
    head = source.read(LONGEST_HEADER) or b""
    source.seek(0)
    return starts_with_header(head)


class RawRecording:
    """A file of raw audio. It can be iterated once, like an OpenRecording, and raises AudioTooLong like one."""

    def __init__(self, source: ByteSource, raw: RawAudio, limits: DecodeLimits, *, separate: bool) -> None:
        """Raises EmptyAudio, InvalidAudio."""
        self._source = source
        self._limits = limits
        self._ledger = Ledger()
        separate = separate and raw.channels > 1
        self._decoder = PcmDecoder(raw.encoding, rate=raw.rate, channels=raw.channels, separate=separate)
        frame_bytes = SAMPLE_BYTES[raw.encoding] * raw.channels
        size = source.seek(0, 2)
        source.seek(0)
        if size == 0:
            raise EmptyAudio("the file has no bytes")
        if size < frame_bytes:
            raise InvalidAudio(f"the file has {size} bytes, less than one sample of all its channels")
        self._ledger.leave_out(size % frame_bytes, "they are less than one sample of all channels")
        self.probe = Probe(
            format="raw",
            codec=raw.encoding,
            rate=raw.rate,
            channels=raw.channels,
            duration_s=size // frame_bytes / raw.rate,
            duration_stated=True,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return self._ledger.notes

    def __iter__(self) -> Iterator[Samples]:
        return up_to(self._limits.longest_s, even_out(self._samples()))

    def _samples(self) -> Iterator[Samples]:
        for data in iter(partial(self._source.read, READ_BYTES), b""):
            yield self._decoder.decode(data or b"")
        yield self._decoder.flush()
