"""Probes a stored recording before its job is accepted: format, length, and whether it is audio at all.

The recordings of known speakers are checked too, and stored until their job has ended. No embedding of them is ever
stored; they are computed in memory.
"""

import asyncio
import base64
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.batch import Batch
from pipeline.errors import AudioTooLong, PipelineError, UnknownTrack, UnusableReference
from pipeline.ingest.input_formats import DecodeLimits, Probe
from pipeline.ingest.isolation import Isolation
from pipeline.speakers.options import MOST_VOICES, SpeakerOptions
from server.accounts.limits import Failures
from server.clock import now_ms
from server.keyed_limits import KeyedTurns, LocalRates
from server.model.accounts import Plan
from server.model.errors import Refused
from server.model.orders import Order
from server.storage.ports import BlobStore, RateCounter

MAX_AT_ONCE = 8  # each takes a process for some 20 ms, a hostile file for seconds; more of them wait
MAX_PER_ACCOUNT = 2  # of these, so that one account's files do not delay the others'
MAX_LEARNING = 2  # requests whose recordings of voices are read at the same time; each may have ten
SLACK_S = 1.0  # tolerance for an encoder's padding; decoding stops this far after the limit

REQUESTS_PER_BAD_FILE = 3
"""A file that cannot be decoded counts as this many requests, because probing it may take seconds of a core."""


class Prober:
    """Probes recordings in separate processes, a few at a time, and counts the bad files of each account."""

    def __init__(self, isolation: Isolation, blobs: BlobStore, rates: RateCounter | None = None) -> None:
        """*rates* counts bad files for all nodes together; with None they are counted in this process."""
        self._isolation = isolation
        self._blobs = blobs
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, "probe")
        self._learning = asyncio.Semaphore(MAX_LEARNING)
        self._turns = KeyedTurns()  # of accounts
        self._bad_files = Failures(what="bad files", rates=rates or LocalRates())

    def admit(self, account: str, plan: Plan) -> None:
        """Raise Refused rate_limited if too many recent files of the account could not be decoded."""
        limit = _max_bad_files(plan)
        window = self._bad_files.look(account, limit=limit)
        if not window.allowed:
            raise Refused(
                "rate_limited",
                f"{limit} files within a minute could not be decoded. Wait before you send the next one.",
                retry_after_s=math.ceil((window.resets_at - now_ms()) / 1000),
            )

    async def probe(self, blob: str, order: Order, *, account: str, plan: Plan) -> Probe:
        """The format and stated length of the account's recording, after decoding its first frame.

        A length that is stated falsely is found during transcription. Raises AudioTooLong if the stated length exceeds
        the plan's, and what Isolation.decoding() raises on entering.
        """
        async with self._turns.turn(account, most=MAX_PER_ACCOUNT):
            try:
                probe = await self._probe(blob, order)
            except PipelineError as error:
                if not (error.retryable or isinstance(error, UnknownTrack)):
                    await self._bad_files.count(account, limit=_max_bad_files(plan))
                raise
        longest_s = plan.audio_s_per_file
        if probe.duration_s is not None and probe.duration_stated and probe.duration_s > longest_s + SLACK_S:
            raise AudioTooLong(
                f"The audio has {probe.duration_s:.0f} s, and the plan takes {longest_s:.0f} s. Send it in parts.",
                limit_s=longest_s,
                actual_s=probe.duration_s,
            )
        return probe

    async def learn_voices(self, batch: Batch, recordings: Mapping[str, bytes], *, account: str, plan: Plan) -> None:
        """Check that the voices in *recordings*, by name, can be learned. Together they count as one file.

        Raises UnusableReference, Refused rate_limited if too many files of the account were bad lately, and what
        Batch.learn_voices() raises.
        """
        self.admit(account, plan)
        async with self._turns.turn(account, most=MAX_PER_ACCOUNT), self._learning:
            try:
                await batch.learn_voices(recordings)
            except UnusableReference:
                await self._bad_files.count(account, limit=_max_bad_files(plan))
                raise

    async def _probe(self, blob: str, order: Order) -> Probe:
        async with self._blobs.local(blob) as path:
            look = partial(
                self._isolation.probe, path, DecodeLimits(), separate=order.separate, track=order.track, raw=order.raw
            )
            return await asyncio.get_running_loop().run_in_executor(self._threads, look)


def _max_bad_files(plan: Plan) -> int:
    return max(1, plan.requests_per_minute // REQUESTS_PER_BAD_FILE)


# --- the recordings of known speakers ----------------------------------------------------------------------------


def speaker_options(order: Order, known: Mapping[str, NDArray[np.float32]] | None = None) -> SpeakerOptions | None:
    """The speaker options of an order; None if it does not ask for speakers."""
    if not order.diarize:
        return None
    return SpeakerOptions(most=order.max_speakers or MOST_VOICES, known=known or {})


def voices_key(job_id: str) -> str:
    """The prefix of the blob keys of a job's voices. The blobs are deleted with the job's audio."""
    return f"{job_id}/voices"


async def keep_known_recordings(job_id: str, recordings: Mapping[str, bytes], blobs: BlobStore) -> None:
    """Store the recording of each known person, by name. Raises BlobsAway, DiskFull."""

    def pack() -> bytes:
        return orjson.dumps({name: base64.b64encode(data).decode() for name, data in recordings.items()})

    packed = await asyncio.to_thread(pack)
    async with blobs.create(f"{voices_key(job_id)}/known") as sink:
        await sink.write(packed)


async def known_recordings(job_id: str, blobs: BlobStore) -> dict[str, bytes]:
    """Return what keep_known_recordings() stored. Raises BlobsAway, NoSuchBlob."""
    packed = b"".join([piece async for piece in blobs.read(f"{voices_key(job_id)}/known")])

    def unpack() -> dict[str, bytes]:
        return {name: base64.b64decode(data) for name, data in orjson.loads(packed).items()}

    return await asyncio.to_thread(unpack)
