"""Stores the recordings of known speakers until their job has ended, and makes the speaker options of an order.

Of these recordings no embedding is ever stored; they are computed in memory.
"""

import asyncio
import base64
from collections.abc import Mapping

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.speakers.options import MOST_VOICES, SpeakerOptions
from server.model.orders import Order
from server.storage.ports import BlobStore


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
    packed = await asyncio.to_thread(_pack, recordings)
    async with blobs.create(_known_key(job_id)) as sink:
        await sink.write(packed)


async def known_recordings(job_id: str, blobs: BlobStore) -> dict[str, bytes]:
    """Return what keep_known_recordings() stored. Raises BlobsAway, NoSuchBlob."""
    packed = b"".join([piece async for piece in blobs.read(_known_key(job_id))])
    return await asyncio.to_thread(_unpack, packed)


def _pack(recordings: Mapping[str, bytes]) -> bytes:
    return orjson.dumps({name: base64.b64encode(data).decode() for name, data in recordings.items()})


def _unpack(packed: bytes) -> dict[str, bytes]:
    return {name: base64.b64decode(data) for name, data in orjson.loads(packed).items()}


def _known_key(job_id: str) -> str:
    return f"{voices_key(job_id)}/known"
