"""Writes the output files of a finished transcript, and makes the Outcome of its job."""

import hashlib
from collections.abc import Mapping, Sequence

from pipeline.audio import seconds
from pipeline.documents.formats import OUTPUT_FORMATS, Heading, OutputFormat
from pipeline.words import Transcript
from server.background import compute
from server.logs import log
from server.model.errors import StorageError
from server.model.events import NewEvent
from server.model.instants import iso
from server.model.jobs import Job, State
from server.model.outcomes import Artifact, Outcome
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore


def output_key(name: str, job: Job, *, epoch: int) -> str:
    """The blob key of the output *name*. Each epoch of the job has its own."""
    return f"{job.id}/{epoch}.{OUTPUT_FORMATS[name].extension}"


async def write_output(
    name: str, transcript: Transcript, job: Job, *, size: int, epoch: int, blobs: BlobStore
) -> Artifact:
    """Store the output *name* of the job under its output_key(). *size* is about that of its chunks, in bytes."""
    kind = OUTPUT_FORMATS[name]
    heading = Heading(
        job_id=job.id,
        created_at=iso(job.created_at),
        metadata=job.order.metadata,
        words=job.order.word_timestamps,
        subtitles=job.order.subtitles,
        paragraphs=job.order.text.paragraphs,
        search=job.order.text.search,
    )
    data, sha256 = await compute(job.account, size, _render, kind, transcript, heading)
    key = output_key(name, job, epoch=epoch)
    async with blobs.create(key) as sink:
        await sink.write(data)
    return Artifact(kind=name, blob=key, sha256=sha256, bytes=len(data))


def _render(kind: OutputFormat, transcript: Transcript, heading: Heading) -> tuple[bytes, str]:
    data = kind.render(transcript, heading)
    return data, hashlib.sha256(data).hexdigest()


async def delete_if_gone(job_id: str, jobs: JobStore, blobs: BlobStore) -> None:
    """Delete the stored files of a job that was deleted while its worker still wrote.

    If that fails, the sweeper does it later.
    """
    try:
        if await jobs.get(job_id) is None:
            await blobs.delete(job_id)
    except (StorageError, OSError) as error:
        log.warning("what a lost job left was not looked for: %s", error, extra={"job": job_id})


def completed_outcome(
    transcript: Transcript,
    artifacts: Sequence[Artifact],
    *,
    warnings: Sequence[Mapping[str, str]] = (),
    heard_s: float | None = None,
    events: Sequence[NewEvent] = (),
) -> Outcome:
    notes = transcript.notes
    return Outcome(
        state=State.COMPLETED,
        duration_s=seconds(transcript.duration),
        language=transcript.language,
        language_probability=transcript.language_probability,
        languages={language: seconds(spoken) for language, spoken in transcript.languages.items()},
        engine=transcript.engine,
        model=transcript.model,
        text=transcript.text,
        speakers=None if transcript.turns is None else {who: seconds(s) for who, s in transcript.speakers.items()},
        artifacts=tuple(artifacts),
        warnings=(*warnings, *(dict(zip(("code", "message"), note.split(": ", 1), strict=False)) for note in notes)),
        heard_s=heard_s,
        events=tuple(events),
    )
