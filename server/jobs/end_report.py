"""Counts and logs the end of a job, whether it was a file or a live session."""

from server.logs import log
from server.metrics import Metrics
from server.model.jobs import Job, State


def report_end(job: Job, metrics: Metrics) -> None:
    """Count *job* by its state and error, its speakers, and its audio if it was transcribed to the end; log it."""
    code = job.error.code if job.error else None
    audio_s = job.duration_s if job.state is State.COMPLETED else None
    metrics.jobs_ended.labels(job.state.value, code or "").inc()
    metrics.audio.labels(job.environment).inc(audio_s or 0)
    metrics.speakers_found.inc(len(job.speakers or ()))
    log.info("job ended", extra={"job": job.id, "state": job.state.value, "error": code, "audio_s": audio_s})
