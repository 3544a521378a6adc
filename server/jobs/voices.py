"""The stored recordings of the people of a job, which are deleted once the job has ended.

No embedding of a voice is ever stored; they are computed from the recordings in memory.
"""

import asyncio
import base64
from collections.abc import Mapping

import orjson

from server.storage.ports import BlobStore


def voices_key(job_id: str) -> str:
    """The prefix of all blobs with voices of a job. They are deleted with its audio."""
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
