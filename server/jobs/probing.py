"""A first look at a stored recording, before its job is accepted: format, length, and whether it is audio at all."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from pipeline.errors import AudioTooLong
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.isolation import Isolation
from server.storage.ports import BlobStore

MAX_AT_ONCE = 8  # each takes a process for some 20 ms, a hostile file for seconds; more of them wait
SLACK_S = 1.0  # tolerance for an encoder's padding; decoding stops this far after the limit


class Prober:
    """Looks at recordings in processes of their own, a few at a time."""

    def __init__(self, isolation: Isolation, blobs: BlobStore) -> None:
        self._isolation = isolation
        self._blobs = blobs
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, "probe")

    async def probe(self, blob: str, *, longest_s: float) -> Probe:
        """The format and stated length of the recording, after decoding its first frame.

        Raises AudioTooLong if the stated length exceeds *longest_s*, and what Isolation.decoding() raises on entering.
        A false length is found during transcription.
        """
        with self._blobs.local(blob) as path:
            probe = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._isolation.probe, path, DecodeLimits()
            )
        if probe.duration_s is not None and probe.duration_stated and probe.duration_s > longest_s + SLACK_S:
            raise AudioTooLong(
                f"the audio has {probe.duration_s:.0f} s, the plan takes {longest_s:.0f} s",
                limit_s=longest_s,
                actual_s=probe.duration_s,
            )
        return probe
