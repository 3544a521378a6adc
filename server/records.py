"""A Job as clients see it: the same record in answers, lists, events and webhooks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.documents.formats import SCHEMA, word_object
from pipeline.words import Word
from server.clock import iso, iso_or_none
from server.jobs.states import Job, JobError, Source, State

MOST_WEBHOOK_TEXT = 4096  # bytes of text that travel inside a webhook body

Link = Callable[[Job, str], str]
"""(job, format) -> a signed download URL."""


def record(
    job: Job,
    *,
    base_url: str,
    link: Link,
    words: Sequence[Word] | None = None,
    listed: bool = False,
) -> dict[str, Any]:
    """The job record. *words* are shown iff given; *listed* leaves out the text too, as lists do."""
    order, completed = job.order, job.state is State.COMPLETED
    shown: dict[str, Any] = {
        "job_id": job.id,
        "object": "job",
        "status": job.state.value,
        "environment": job.environment,
        "created_at": iso(job.created_at),
        "started_at": iso_or_none(job.started_at),
        "finished_at": iso_or_none(job.finished_at),
        "expires_at": iso_or_none(job.expires_at),
        "cancel_requested_at": iso_or_none(job.cancel_requested_at),
        "progress": round(job.progress, 4),
        "stage": job.stage,
        "attempt": job.attempt,
        "source": _source(job.source),
        "output_formats": list(order.output_formats),
        "word_timestamps": order.word_timestamps,
        "duration": None if job.duration_s is None else round(job.duration_s, 3),
        "language": job.language,
        "language_probability": _rounded(job.language_probability),
        "model": job.model,
        "engine": job.engine,
        "formats": {name: link(job, name) for name in order.output_formats} if completed else {},
        "error": _error(job.error),
        "metadata": dict(order.metadata),
        "warnings": [dict(warning) for warning in job.warnings],
        "events_url": f"{base_url}/v1/jobs/{job.id}/events",
    }
    if completed and "json" in order.output_formats:
        shown["schema"] = SCHEMA
    if not listed:
        shown["text"] = job.text
        if words is not None:
            shown["words"] = [word_object(word) for word in words]
    return shown


def notice(job: Job, *, base_url: str, link: Link, test: bool = False) -> dict[str, Any]:
    """What a webhook body and the terminal event of a stream both say: the record without words."""
    data = record(job, base_url=base_url, link=link)
    if data["text"] is not None and len(data["text"].encode()) > MOST_WEBHOOK_TEXT:
        del data["text"]
    at = job.finished_at if job.finished_at is not None else job.created_at
    shown: dict[str, Any] = {"type": f"job.{job.state.value}", "timestamp": iso(at), "data": data}
    return {**shown, "test": True} if test else shown


def _source(source: Source) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"type": source.type}
    for name in ("filename", "url", "bytes", "format"):
        if (value := getattr(source, name)) is not None:
            shown[name] = value
    return shown


def _error(error: JobError | None) -> Mapping[str, Any] | None:
    if error is None:
        return None
    return {"code": error.code, "message": error.message, "retryable": error.retryable, "param": None}


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)
