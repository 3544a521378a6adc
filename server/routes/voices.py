"""Recordings of known people that come with a request: checked and stored before its job is made."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import UnusableReference
from server.http.caller import Caller
from server.jobs.known_speakers import REFERENCES
from server.jobs.transcriber import Transcriber
from server.jobs.voices import keep_known_recordings
from server.model.errors import FieldError, invalid
from server.storage.ports import BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVoices:
    """Takes the recordings for files and for live sessions."""

    batches: Mapping[str, Transcriber]  # by environment; none on a node without a model
    blobs: BlobStore

    async def keep(self, job_id: str, caller: Caller, recordings: Mapping[str, bytes]) -> None:
        """Check that the voice of each person, by name, can be learned, and store the recordings until the job's end.

        Raises Refused invalid_parameter.
        """
        if not recordings:
            return
        batch = self.batches.get(caller.environment)
        if batch is None:
            told = "this node does not listen; send the request to one with the role worker"
            raise invalid([FieldError(REFERENCES, "not_offered", told)])
        try:
            await batch.learn_voices(recordings)
        except UnusableReference as error:
            raise invalid([FieldError(REFERENCES, "invalid_value", str(error))]) from error
        await keep_known_recordings(job_id, recordings, self.blobs)
